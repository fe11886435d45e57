"""The columns that say which row of a table is meant."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from millstream.errors import InvalidSpec
from millstream.sources.kafka.topic import Topic

Key = str | list[str] | tuple[str, ...] | None


@runtime_checkable
class Keyed(Protocol):
    """A sink in which a row may take the place of an earlier one."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say which row is meant; none for a sink that only appends."""


def takes_back(sink: object) -> bool:
    """Whether a sink can be given rows that take earlier ones back (sign −1).

    It finds the earlier row by its key, or says itself (`takes_back = True`) that it knows what
    to do with the sign. What only appends would take such a row for one more.
    """
    if getattr(sink, "takes_back", False) is True:
        return True
    return not isinstance(sink, Topic) and isinstance(sink, Keyed) and bool(sink.keys)


def keys_of(key: Key, sink: str) -> tuple[str, ...]:
    """A sink's `key=` as names; none where it only appends.

    >>> keys_of("auction", "Postgres"), keys_of(["auction", "window_start"], "Postgres")
    (('auction',), ('auction', 'window_start'))

    Raises:
        InvalidSpec: it is no name, no list of names, or names one twice.
    """
    if key is None:
        return ()
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    good = names and all(isinstance(name, str) and name for name in names)
    if not good or len(set(names)) < len(names):
        raise InvalidSpec(f"{sink}(key=…) needs names of columns, each once", got=repr(key),
                          do='write key=["auction", "window_start"]')  # fmt: skip
    return names
