"""Stateless steps as Spark DataFrame operations, which keep every row's origin.

Inside a DataFrame the origin is one struct column, `_origin`; users' expressions see only their
own columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.spark.failures import analysed_step
from millstream.engine.spark.row_wise import transformed
from millstream.errors import InvalidSpec
from millstream.plan.columns import EVERY
from millstream.plan.graph import (
    Drop,
    Explode,
    Node,
    Read,
    Select,
    Stateless,
    Transform,
    Union,
    Where,
    WithColumns,
)
from millstream.plan.stages import POSITION, SIGN, TIME
from millstream.plan.stages import leaves as leaves_of
from millstream.plan.table_graph import TableWhere
from millstream.sources.decode import ORIGIN
from millstream.sources.spec import HIDDEN
from millstream.sql import columns as sql
from millstream.sql.arrow.values import ELEMENTS, TOO_MANY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

_FIELDS = ("source", "partition", "offset", "sub")
_INSIDE = [f"{flat} as {name}" for flat, name in zip(ORIGIN, _FIELDS, strict=True)]
_CARRIED = {SIGN: "sign", TIME: "at", POSITION: "place"}
_FLAT = [f"_origin.{name} as {flat}" for flat, name in zip(ORIGIN, _FIELDS, strict=True)]
_IN_ORIGIN = {"_partition": "_origin.partition", "_offset": "_origin.offset"}


def packed(frame: DataFrame, carried: Sequence[str] = ()) -> DataFrame:
    """Pack the flat origin columns into one struct, with a sign and a time where rows carry them.

    A time that only some rows of a union have is dropped.
    """
    flat, inside = list(ORIGIN), list(_INSIDE)
    if TIME in frame.columns and TIME not in carried:
        flat.append(TIME)
    for name in carried:
        has = name in frame.columns
        assert has or name == SIGN
        flat += [name] if has else []
        inside.append(f"{name if has else '1Y'} as {_CARRIED[name]}")
    return frame.selectExpr(
        f"* except ({', '.join(flat)})", f"struct({', '.join(inside)}) as _origin"
    )


def unpacked(frame: DataFrame, carried: Sequence[str] = ()) -> DataFrame:
    """Unpack the struct into flat origin columns, as kernels need them."""
    more = [f"_origin.{_CARRIED[name]} as {name}" for name in carried]
    return frame.selectExpr("* except (_origin)", *_FLAT, *more)


def build(tree: Node, leaves: Mapping[Node, DataFrame], clock: int) -> DataFrame:
    """The rows of a tree of stateless steps over these leaves (packed frames).

    Steps are passed to Spark as text, not as `Column`s, which would take a hundred calls into the
    JVM per step and half the time of a small batch.

    Raises:
        InvalidSpec: Spark cannot analyse a step; the error names the step and its line.
    """
    if tree in leaves:
        return _with_hidden(leaves[tree], frozenset())
    if isinstance(tree, Union):
        return _union(tree, leaves, clock)
    assert isinstance(tree, Stateless)
    below = tree.input
    hidden = _hidden(tree) if isinstance(below, Read) else frozenset()
    frame = _with_hidden(leaves[below], hidden) if hidden else build(below, leaves, clock)
    with analysed_step(tree):
        made = _STEPS[type(tree)](tree, frame, clock)
    return made.drop(*hidden) if hidden and not isinstance(tree, Select) else made


def _hidden(step: Stateless) -> frozenset[str]:
    """The hidden columns a step directly after a source names."""
    texts = [step.sql] if isinstance(step, Where) else []
    if isinstance(step, Select | WithColumns):
        texts = [text for _, text in step.items if text != EVERY]
    return frozenset(name for text in texts for name in sql.columns_read(text) if name in HIDDEN)


def _with_hidden(frame: DataFrame, wanted: frozenset[str]) -> DataFrame:
    """The frame of a source with these hidden columns only."""
    unwanted = [name for name in HIDDEN if name in frame.columns and name not in wanted]
    frame = frame.drop(*unwanted) if unwanted else frame
    more = [f"{_IN_ORIGIN[name]} as {name}" for name in _IN_ORIGIN if name in wanted]
    return frame.selectExpr("*", *more) if more else frame


def _text(text: str, frame: DataFrame, clock: int) -> str:
    fixed = sql.at_clock(text, clock)
    return fixed if fixed == text else sql.at_clock(text, clock, frame.columns)


def _item(name: str, text: str, frame: DataFrame, clock: int) -> str:
    """An expression with its name on a new line, because the expression may end in a comment."""
    if sql.has_alias(text):
        return _text(text, frame, clock)
    return f"{_text(text, frame, clock)}\n as {sql.quoted(name)}"


def _where(step: Where, frame: DataFrame, clock: int) -> DataFrame:
    return frame.filter(_text(step.sql, frame, clock))


def _table_where(step: TableWhere, frame: DataFrame, clock: int) -> DataFrame:
    """A change whose row does not match becomes a delete of its key."""
    stays = f"(_origin.sign > 0 and coalesce(({_text(step.sql, frame, clock)}\n), false))"
    others = [name for name in frame.columns if name not in (*step.keys, "_origin")]
    kept = [f"if({stays}, {sql.quoted(name)}, null) as {sql.quoted(name)}" for name in others]
    named = dict(zip(others, kept, strict=True))
    sign = _moved(frame, f"if({stays}, 1Y, -1Y)", "sign")
    return frame.selectExpr(
        *(sign if name == "_origin" else named.get(name, sql.quoted(name))
          for name in frame.columns)
    )  # fmt: skip


def _select(step: Select, frame: DataFrame, clock: int) -> DataFrame:
    besides = [name for name in ("_origin", *HIDDEN) if name in frame.columns]
    every = f"* except ({', '.join(besides)})"
    items = [
        every if text == EVERY else _item(name, text, frame, clock) for name, text in step.items
    ]
    return frame.selectExpr(*items, "_origin")


def _with_columns(step: WithColumns, frame: DataFrame, clock: int) -> DataFrame:
    new = {name.lower(): _item(name, text, frame, clock) for name, text in step.items}
    kept = [new.pop(name.lower(), sql.quoted(name)) for name in frame.columns]
    return frame.selectExpr(*kept, *new.values())


def _drop(step: Drop, frame: DataFrame, clock: int) -> DataFrame:
    missing = [name for name in step.names if name not in frame.columns]
    if missing:
        raise sql.unknown_column(missing[0], frame.columns, step="drop")
    return frame.drop(*step.names)


def _explode(step: Explode, frame: DataFrame, clock: int) -> DataFrame:
    """One row per element, each with a distinct position within its row's origin."""
    column = sql.quoted(step.column)
    others = [sql.quoted(name) for name in frame.columns if name != step.column]
    opened = frame.selectExpr(*others, f"posexplode({column}) as (_at, {column})")
    place = f"if(_at < {ELEMENTS}, bigint(_at), raise_error('{TOO_MANY}'))"
    moved = {"_origin": _moved(frame, f"{_within(ELEMENTS)} + {place}", "sub")}
    return opened.selectExpr(*(moved.get(name, sql.quoted(name)) for name in frame.columns))


def _within(places: int) -> str:
    """A row's position, shifted to make room for that many positions within it.

    The position of a result is a 64-bit hash, so a multiplication would overflow.
    """
    return f"shiftleft(_origin.sub, {(places - 1).bit_length()})"


def _moved(frame: DataFrame, value: str, part: str) -> str:
    """The origin with another value for one of its parts."""
    fields = frame.schema["_origin"].dataType.fieldNames()  # type: ignore[attr-defined]
    inside = [f"{value if name == part else f'_origin.{name}'} as {name}" for name in fields]
    return f"struct({', '.join(inside)}) as _origin"


def _transform(step: Transform, frame: DataFrame, clock: int) -> DataFrame:
    return transformed(step, frame)


def _union(tree: Union, leaves: Mapping[Node, DataFrame], clock: int) -> DataFrame:
    """The sides concatenated; rows with one origin on both sides get distinct positions."""
    frames = [build(side, leaves, clock) for side in tree.sides]
    if _overlapping(tree):
        frames = [
            frame.selectExpr(
                "* except (_origin)",
                _moved(frame, f"{_within(len(frames))} + {place}", "sub"),
            )
            for place, frame in enumerate(frames)
        ]
    with analysed_step(tree):
        whole = frames[0]
        for frame in frames[1:]:
            _need_the_same_columns(whole, frame)
            whole = whole.unionByName(frame)
        return whole


def _overlapping(tree: Union) -> bool:
    seen: set[Node] = set()
    for side in tree.sides:
        below = set(leaves_of(side))
        if below & seen:
            return True
        seen |= below
    return False


def _need_the_same_columns(left: DataFrame, right: DataFrame) -> None:
    other = set(left.columns) ^ set(right.columns)
    if other:
        raise InvalidSpec("union needs two streams with the same columns",
                          got=f"{', '.join(sorted(other))} on one side only",
                          do="select the same columns on both")  # fmt: skip


_STEPS: dict[type[Stateless], Callable[..., DataFrame]] = {
    Where: _where,
    TableWhere: _table_where,
    Select: _select,
    WithColumns: _with_columns,
    Drop: _drop,
    Explode: _explode,
    Transform: _transform,
}
