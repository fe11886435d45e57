"""What becomes of a stream's columns from step to step, as far as building can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan.graph import (
    HIDDEN_TIME,
    Drop,
    EventTime,
    Explode,
    Node,
    Read,
    Select,
    Stateful,
    Transform,
    Union,
    Where,
    WithColumns,
)
from millstream.schema import Array, Decimal, Scalar, Schema, check_names
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schema import Type

EVERY = "*"
_NUMBERS = ("byte", "short", "int", "long", "float", "double")
Items = list[tuple[str, str]]


def check_known(name: str, columns: tuple[str, ...] | None, *, step: str) -> None:
    """Refuse what is no name of a column there is (None: only Spark can tell)."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidSpec(f"{step} needs names of columns", got=repr(name),
                          do='write them as text, one by one: "auction", "bidder"')  # fmt: skip
    if columns is not None and name not in columns:
        raise sql.unknown_column(name, columns, step=step)


def check_select(items: Items, *, hidden: tuple[str, ...]) -> None:
    """Refuse names of `select` that repeat, are reserved, or would carry a hidden column on."""
    for name, text in items:
        if name in hidden:
            raise InvalidSpec("select needs another name for a hidden column", got=repr(text),
                              do=f'write "{name} as {name.lstrip("_")}"')  # fmt: skip
    seen: set[str] = set()
    for name, _ in items:
        if name.lower() in seen:
            raise InvalidSpec("select needs each column once", got=f"{name!r} twice",
                              do='write "… as another_name"')  # fmt: skip
        seen.add(name.lower())
    check_names([name for name, text in items
                 if name != EVERY and sql.renamed(text) != name], "select")  # fmt: skip


def after_with_columns(
    columns: tuple[str, ...] | None, names: Sequence[str]
) -> tuple[str, ...] | None:
    """The columns after `with_columns`: new ones at the end, others in their place."""
    if columns is None:
        return None
    new = {name.lower(): name for name in names}
    kept = tuple(new.pop(column.lower(), column) for column in columns)
    return (*kept, *new.values())


def time_after_select(time: EventTime | None, items: Items) -> EventTime | None:
    """The event time after a select: it follows its column, also under a new name; one that is
    carried beside the columns stays."""
    if time is None or time == HIDDEN_TIME:
        return time
    copies = [name for name, text in items
              if (sql.renamed(text) or "").lower() == time.column.lower()]  # fmt: skip
    if time.column in copies or any(name == EVERY for name, _ in items):
        return time
    return EventTime(copies[0], time.shift) if copies else None


def time_of_union(left: EventTime | None, right: EventTime | None) -> EventTime | None:
    """The event time of a union: one column, meant in one way, or none."""
    if left is not None and right is not None and left != right:
        raise InvalidSpec(
            "union needs the event time of both streams in one column",
            got=f"{left.column!r} and {right.column!r}"
            if left.column != right.column
            else f"{left.column!r} of a window and of a source",
            do="give it the same name on both sides by read(…, time=…) or select(…)",
        )
    return left if left == right else None


def record_keys(node: Node) -> tuple[str, ...]:
    """The keys of the operator that rows come from, under their names here.

    None of them, if not all have come along as they were.
    """
    if isinstance(node, Stateful):
        return node.keys
    if isinstance(node, Union):
        sides = {record_keys(side) for side in node.sides}
        return sides.pop() if len(sides) == 1 else ()
    if isinstance(node, Read | Transform):
        return ()
    here = [name_after(node, key) for key in record_keys(node.inputs[0])]
    return () if None in here else tuple(name for name in here if name is not None)


def type_of(node: Node, column: str) -> Type | None:
    """A column's type, where it comes from a source as it was; else None."""
    if isinstance(node, Read):
        schema = node.source.row_schema()
        return schema[column].type if column in schema.names else None
    if isinstance(node, Transform | Union):
        return None
    if isinstance(node, Stateful):
        found = node.column_source(column)
        if found is None:
            return Scalar("timestamp") if node.time == EventTime(column) else None
        return type_of(*found)
    for below in node.inputs:
        for name in below.columns or ():
            if name_after(node, name) == column:
                return type_of(below, name)
    return None


def output_schema(node: Node, gives: str | None, *, step: str) -> Schema:
    """The columns a user's function says it gives; without a word, those it is given."""
    if gives is not None:
        told = Schema.parse(gives)
        check_names(told.names, f"{step}(gives=…)")
        return told
    types = {name: type_of(node, name) for name in node.columns or ()}
    if not types or None in types.values():
        raise InvalidSpec(f"{step} needs to know the columns of the rows it gives",
                          got="a stream whose types only Spark can tell",
                          do='write gives="user string, total double"')  # fmt: skip
    return Schema.parse(", ".join(f"`{n}` {kind.ddl()}" for n, kind in types.items() if kind))


def check_array(node: Node, column: str) -> None:
    """Refuse to open what is surely no array."""
    found = type_of(node, column)
    if found is not None and not isinstance(found, Array):
        raise InvalidSpec(f"explode({column!r}) needs an array column", got=found.ddl(),
                          do="open a map by with_columns(e=\"map_entries(m)\")")  # fmt: skip


def check_number(node: Node, column: str, *, step: str) -> None:
    """Refuse to add up what is surely no number."""
    found = type_of(node, column)
    if found is None or isinstance(found, Decimal):
        return
    if not isinstance(found, Scalar) or found.name not in _NUMBERS:
        raise InvalidSpec(f"{step} needs a column of numbers", got=f"{column} {found.ddl()}",
                          do="name another column, or cast it with .with_columns(…)")  # fmt: skip


def name_after(node: Node, name: str) -> str | None:
    """What a step calls a column of its input; None if it is gone or not as it was."""
    if isinstance(node, Select):
        copies = [new for new, text in node.items if sql.renamed(text) in (name, EVERY)]
        if not copies:
            return None
        return name if {name, EVERY} & set(copies) else copies[0]
    if isinstance(node, WithColumns):
        return None if name.lower() in {new.lower() for new, _ in node.items} else name
    if isinstance(node, Drop):
        return None if name in node.names else name
    if isinstance(node, Explode):
        return None if name == node.column else name
    assert isinstance(node, Where | Stateful)
    return name
