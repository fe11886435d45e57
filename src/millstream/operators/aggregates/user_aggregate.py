"""User-defined aggregates: three functions over Arrow tables, for all keys at once."""

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
    """An aggregate created by `aggregate(…)`; equal to another one with the same functions.

    `chosen` are its columns (empty: all); `state` and `returns` are the declared types (None:
    those that its functions return for no rows).
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
        """None: it reads whole rows, or the chosen columns."""
        return

    @property
    def columns(self) -> tuple[str, ...]:
        """The chosen columns."""
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

    - `partial(rows)` takes a table of the `columns` (by default all) and returns a table with
      the state of each single row.
    - `merge(states, groups, count)` takes the states of `count` groups, sorted by group;
      `groups` (int64, ascending from 0) is the group of each state. It returns a table of
      `count` states. The order and number of merges must not matter, and a single state is
      not merged.
    - `finish(states)` returns an array with one result per state.

    `state` and `returns` are their types in Spark's notation (`"n long, sum double"`,
    `"double"`). If they are left out, the functions are called once without rows, and the
    types are those of their results. `name` names the state in the checkpoint; the default is
    the name of `partial`. Does not support retraction.

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
        InvalidSpec: an argument is not a function, column, type or name.
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
            "aggregate needs a name for its state, made of letters, digits and _",
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
