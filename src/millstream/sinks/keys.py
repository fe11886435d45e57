"""The key columns of a sink."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from millstream.errors import InvalidSpec
from millstream.sources.kafka.topic import Topic

Key = str | list[str] | tuple[str, ...] | None


@runtime_checkable
class Keyed(Protocol):
    """A sink whose rows may replace earlier ones with the same key."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty for a sink that only appends."""


def accepts_retractions(sink: object) -> bool:
    """Whether a sink can process retractions: rows with the sign −1 that withdraw earlier rows.

    It can if it has a key to find the earlier row by, or sets `accepts_retractions = True`. A sink
    that only appends would store a retraction as one more row.
    """
    if getattr(sink, "accepts_retractions", False) is True:
        return True
    return not isinstance(sink, Topic) and isinstance(sink, Keyed) and bool(sink.keys)


def keys_of(key: Key, sink: str) -> tuple[str, ...]:
    """Return the column names in a sink's `key=`; empty if there is no key.

    >>> keys_of("auction", "Postgres"), keys_of(["auction", "window_start"], "Postgres")
    (('auction',), ('auction', 'window_start'))

    Raises:
        InvalidSpec: it is neither a name nor a list of distinct names.
    """
    if key is None:
        return ()
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    good = names and all(isinstance(name, str) and name for name in names)
    if not good or len(set(names)) < len(names):
        raise InvalidSpec(f"{sink}(key=…) needs distinct column names", got=repr(key),
                          do='write key=["auction", "window_start"]')  # fmt: skip
    return names
