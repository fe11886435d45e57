"""`Chart` and `LiveTable`: results on the page, kept in a bounded store per job.

    counts.to(ms.Chart("views", x="window_start", y="n", by="page"))
    counts.to(ms.LiveTable("newest", key=["page", "window_start"]))

Beyond the bound the oldest rows are removed. The store can be read while the job is down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from millstream.errors import InvalidSpec
from millstream.sinks.keys import Key, keys_of

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer

SYSTEM = "live"
MOST_ROWS = 100_000
Shape = Literal["line", "bars"]


@dataclass(frozen=True, init=False)
class Chart:
    """A chart on the page: `y` over `x`, one line for each value of `by`.

    A row replaces the earlier one with the same `x` and `by`, so early and late panes move a point
    instead of adding one. `keep` is the number of points kept.
    """

    name: str
    x: str
    y: tuple[str, ...]
    by: str | None
    shape: Shape
    keep: int
    accepts_retractions: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        x: str = "window_start",
        y: str | list[str] | tuple[str, ...],
        by: str | None = None,
        shape: Shape = "line",
        keep: int = 1000,
    ) -> None:
        _check(name, keep, "Chart")
        if shape not in ("line", "bars"):
            raise InvalidSpec('Chart(shape=…) needs "line" or "bars"', got=repr(shape))
        lines = _lines(y)
        if by is not None and len(lines) > 1:
            raise InvalidSpec("Chart(by=…) needs one y", got=", ".join(lines),
                              do="leave out by=, or use one chart for each")  # fmt: skip
        for name_, value in (("name", name), ("x", x), ("y", lines), ("by", by),
                             ("shape", shape), ("keep", keep)):  # fmt: skip
            object.__setattr__(self, name_, value)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a point."""
        return (self.x,) if self.by is None else (self.x, self.by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rows must have."""
        return (*self.key, *self.y)

    @property
    def system(self) -> str:
        """All charts and tables of a job share one store."""
        return SYSTEM

    def writer(self, opening: Opening) -> Writer:
        """Return the writer of the job's charts and tables."""
        from millstream.sinks.live.store import LiveWriter

        return LiveWriter(opening)


@dataclass(frozen=True, init=False)
class LiveTable:
    """A table on the page: the newest rows, or with `key` the newest row of each key."""

    name: str
    key: tuple[str, ...]
    keep: int
    columns: tuple[str, ...] = field(default=(), repr=False)
    accepts_retractions: ClassVar[bool] = True

    def __init__(self, name: str, *, key: Key = None, keep: int = 200) -> None:
        _check(name, keep, "LiveTable")
        for name_, value in (("name", name), ("key", keys_of(key, "LiveTable")), ("keep", keep)):
            object.__setattr__(self, name_, value)
        object.__setattr__(self, "columns", self.key)

    @property
    def system(self) -> str:
        """All charts and tables of a job share one store."""
        return SYSTEM

    def writer(self, opening: Opening) -> Writer:
        """Return the writer of the job's charts and tables."""
        from millstream.sinks.live.store import LiveWriter

        return LiveWriter(opening)


def _lines(y: Key) -> tuple[str, ...]:
    lines = (y,) if isinstance(y, str) else tuple(y or ())
    if not lines or not all(isinstance(line, str) and line for line in lines):
        raise InvalidSpec("Chart(y=…) needs names of columns", got=repr(y), do='write y="n"')
    return lines


def _check(name: str, keep: int, sink: str) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > 100:
        raise InvalidSpec(f"{sink} needs a name of 1 to 100 characters", got=repr(name))
    if type(keep) is not int or not 1 <= keep <= MOST_ROWS:
        raise InvalidSpec(f"{sink}(keep=…) needs a number of rows from 1 to {MOST_ROWS:,}",
                          got=repr(keep))  # fmt: skip
