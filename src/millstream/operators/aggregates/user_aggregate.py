"""Aggregates of the user's own making: three functions over Arrow, for all keys at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import InvalidSpec
from millstream.schema import Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa

    Partial = Callable[[pa.Table], pa.Table]
    Merge = Callable[[pa.Table, np.ndarray[Any, np.dtype[np.int64]], int], pa.Table]
    Finish = Callable[[pa.Table], pa.Array]


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate that `aggregate(…)` made; equal to another if its functions are the same.

    `chosen` are the columns it was given (empty: all), `state` and `returns` the types it
    declares (None: those that its functions give for no rows).
    """

    partial: Partial
    merge: Merge
    finish: Finish
    name: str
    chosen: tuple[str, ...] = ()
    state: Schema | None = None
    returns: Type | None = None
    kind: ClassVar[str] = "aggregate"
    supports_retraction: ClassVar[bool] = False
    can_retract: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    of_numbers: ClassVar[bool] = False

    @property
    def column(self) -> None:
        """None: it reads whole rows, or the columns it has chosen."""
        return

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it has chosen."""
        return self.chosen

    def __str__(self) -> str:
        return f"aggregate({', '.join([f'name={self.name}', *self.chosen])})"


def aggregate(
    *,
    partial: Partial,
    merge: Merge,
    finish: Finish,
    columns: Sequence[str] = (),
    state: str | None = None,
    returns: str | None = None,
    name: str | None = None,
) -> UserAggregate:
    """An aggregate from three functions over Arrow, each called for many keys at once.

    - `partial(rows)` takes a table of the `columns` (without any: of all) and gives a
      table with the state of each row by itself, as many rows as there are.
    - `merge(states, groups, count)` takes states of `count` groups, those of a group one
      after the other; `groups` (int64, ascending from 0) says whose each is. It gives a
      table of `count` states. It must not matter in what order and in how many steps
      states are merged, and a state that is alone is not merged at all.
    - `finish(states)` gives an array with one answer per state.

    `state` and `returns` are the types of both as Spark writes them (`"n long, sum
    double"`, `"double"`); where they are left out, the functions are called once with no
    rows, and what they give has the types. `name` names its state in the checkpoint;
    without it it is the name of `partial`. Rows cannot be retracted from it.

    >>> def partial(rows):
    ...     return rows.rename_columns(["longest"])
    >>> def merge(states, groups, count):
    ...     grouped = states.append_column("g", [groups]).group_by("g", use_threads=False)
    ...     longest = grouped.aggregate([("longest", "max")])["longest_max"]
    ...     return pa.table({"longest": longest})
    >>> def finish(states):
    ...     return states["longest"]
    >>> print(aggregate(partial=partial, merge=merge, finish=finish, columns=["seconds"]))
    aggregate(name=partial, seconds)

    Raises:
        InvalidSpec: something given is no function, no column, no type or no name.
    """
    for word, function in (("partial", partial), ("merge", merge), ("finish", finish)):
        if not callable(function):
            raise InvalidSpec(
                f"aggregate needs a function as {word}",
                got=repr(function),
                do="write aggregate(partial=…, merge=…, finish=…) with three functions",
            )
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)
    for column in chosen:
        if not isinstance(column, str) or not column.strip():
            raise InvalidSpec(
                "aggregate needs names of columns",
                got=repr(column),
                do='write columns=["price", "quantity"]',
            )
    return UserAggregate(
        partial,
        merge,
        finish,
        _named(name, partial),
        chosen,
        None if state is None else Schema.parse(state),
        None if returns is None else _one_type(returns),
    )


def _named(name: str | None, partial: object) -> str:
    found = getattr(partial, "__name__", type(partial).__name__) if name is None else name
    if not isinstance(found, str) or not found.isidentifier():
        raise InvalidSpec(
            "aggregate needs a name for its state, of letters, digits and _",
            got=repr(found),
            do='write aggregate(name="spread", …)',
        )
    return found


def _one_type(text: str) -> Type:
    found = Schema.parse(f"answer {text}").fields if isinstance(text, str) else ()
    if len(found) != 1:
        raise InvalidSpec(
            "aggregate needs one type in returns", got=repr(text), do='write returns="double"'
        )
    return found[0].type
