"""The specs of triggers: when a window emits panes before and after its on-time pane.

A window always emits one on-time pane. `early` and `late` define when else it fires, at the end
of a batch and only if it has new rows; `panes` defines what each pane contains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from millstream.duration import Duration, positive_micros, text
from millstream.errors import InvalidSpec

Panes = Literal["accumulating", "discarding", "retracting"]


@dataclass(frozen=True, slots=True)
class Every:
    """A period (µs) of batch clock after the last firing, or after the window's first row."""

    period: int

    def __str__(self) -> str:
        return f'every("{text(self.period)}")'


@dataclass(frozen=True, slots=True)
class Each:
    """A number of rows since the last pane."""

    rows: int = 1

    def __str__(self) -> str:
        return f"each({'' if self.rows == 1 else self.rows})"


@dataclass(frozen=True, slots=True)
class When:
    """A condition over the window's aggregates."""

    sql: str

    def __str__(self) -> str:
        return f"when({self.sql!r})"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Fires when one of them would fire."""

    firings: tuple[Firing, ...]

    def __str__(self) -> str:
        return f"any_of({', '.join(map(str, self.firings))})"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Fires when all of them would fire at the end of the same batch."""

    firings: tuple[Firing, ...]

    def __str__(self) -> str:
        return f"all_of({', '.join(map(str, self.firings))})"


Firing = Every | Each | When | AnyOf | AllOf


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a window fires in addition to its on-time pane, and what its panes contain.

    Without `late`, each batch with new rows for a kept window fires.
    """

    early: Firing | None = None
    late: Firing | None = None
    panes: Panes = "accumulating"

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (("early", self.early), ("late", self.late))
                 if value is not None]  # fmt: skip
        return f"trigger({', '.join([*parts, f'panes={self.panes!r}'])})"


def every(duration: Duration) -> Every:
    """Fire when this much batch clock has passed since the last pane.

    >>> print(every("1 second"))
    every("1 second")
    """
    return Every(positive_micros(duration, what="every"))


def each(n: int = 1) -> Each:
    """Fire at the end of a batch if at least `n` rows have arrived since the last pane."""
    if type(n) is not int or n < 1:
        raise InvalidSpec("each needs a number of rows from 1", got=repr(n), do="write each(100)")
    return Each(n)


def when(sql: str) -> When:
    """Fire when a condition over the aggregates is true and there are new rows."""
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidSpec("when needs a condition over the aggregates", got=repr(sql),
                          do='write when("total > 1000")')  # fmt: skip
    return When(sql)


def any_of(*firings: Firing) -> AnyOf:
    """Fire when one of these would."""
    return AnyOf(_several("any_of", firings))


def all_of(*firings: Firing) -> AllOf:
    """Fire when all of these would."""
    return AllOf(_several("all_of", firings))


def trigger(
    early: Firing | None = None, late: Firing | None = None, panes: Panes = "accumulating"
) -> Trigger:
    """The spec from the user's arguments.

    Raises:
        InvalidSpec: an argument is not a trigger, or the kind of panes is unknown.
    """
    for name, firing in (("early", early), ("late", late)):
        if firing is not None and not isinstance(firing, Firing):
            raise InvalidSpec(f"trigger({name}=…) needs a trigger", got=repr(firing),
                              do=f'write {name}=ms.every("1 second")')  # fmt: skip
    if panes not in get_args(Panes):
        raise InvalidSpec(f"trigger(panes=…) needs one of {', '.join(get_args(Panes))}",
                          got=repr(panes), do='write panes="accumulating"')  # fmt: skip
    return Trigger(early, late, panes)


def conditions(firing: Firing | None) -> tuple[str, ...]:
    """The SQL conditions in a trigger."""
    match firing:
        case When(sql):
            return (sql,)
        case AnyOf(firings) | AllOf(firings):
            return tuple(sql for one in firings for sql in conditions(one))
        case _:
            return ()


def _several(word: str, firings: tuple[Any, ...]) -> tuple[Firing, ...]:
    if not firings or not all(isinstance(firing, Firing) for firing in firings):
        raise InvalidSpec(f"{word} needs triggers", got=repr(firings),
                          do=f'write {word}(ms.every("1 minute"), ms.each(1000))')  # fmt: skip
    return firings
