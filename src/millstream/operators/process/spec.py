"""The spec of `.process`: a user-defined function per key, with state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from millstream.schema import Schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


@dataclass(slots=True)
class Visit:
    """One key in one batch, as the user's function sees it.

    `rows` are its new rows in order of origin; `timers` the timers that fire, of event time
    (`"event"`) or of the batch clock (`"clock"`). `state` has the declared columns, or is None
    for a key without state. The function may change or replace it; None deletes it.
    """

    key: Row
    rows: list[Row]
    state: Row | None
    timers: list[tuple[str, datetime]]
    watermark: datetime | None
    clock: datetime
    wanted: list[tuple[str, datetime]] = field(default_factory=list)

    def at(self, time: datetime) -> None:
        """Call again when the watermark has passed this event time."""
        self.wanted.append(("event", _aware(time)))

    def at_clock(self, time: datetime) -> None:
        """Call again in the first batch whose clock has reached this time."""
        self.wanted.append(("clock", _aware(time)))

    def after(self, length: timedelta) -> None:
        """Call again when the batch clock has advanced by this length."""
        self.at_clock(self.clock + length)


Function = Callable[[Visit], Iterable[Mapping[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class Process:
    """A function per key; `gives` are the columns of the rows it returns."""

    by: tuple[str, ...]
    function: Function
    state: Schema
    gives: Schema

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", "a function")
        return f"process({name}, by={list(self.by)!r})"


def _aware(time: object) -> datetime:
    if not isinstance(time, datetime):
        raise InvalidSpec("a timer needs a datetime", got=repr(time),
                          do="write visit.at(row[\"ts\"] + timedelta(minutes=5))")  # fmt: skip
    return time if time.tzinfo else time.replace(tzinfo=UTC)
