"""The specs of tables: how records are changes, which row of a key is current, folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, get_args

from millstream.errors import InvalidSpec
from millstream.schema import Schema, check_names

Keys = str | list[str] | tuple[str, ...]
ChangesAre = Literal["upsert", "debezium"]
CHANGE, CHANGED_AT = "change", "changed_at"
Row = dict[str, Any]
Fold = Callable[[Row, Row], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """Records that set or delete the row of their key.

    `kind` is `upsert`, where a record is the row and one without a value deletes it, or
    `debezium`. `time` is the column with the time of a change; None means the record's
    timestamp.
    """

    keys: tuple[str, ...]
    kind: ChangesAre = "upsert"
    time: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(ChangesAre):
            raise InvalidSpec('table(changes=…) needs "upsert" or "debezium"', got=repr(self.kind))

    def __str__(self) -> str:
        return f"{self.kind} by {', '.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class Current:
    """The current row per key.

    By `time` it is the one with the largest (time, source position, offset); by `origin` the
    last in order of origin, whatever its time. With `each`, every change is emitted; without,
    the net change of each batch. Changes of a `database` may lack unchanged values.
    """

    keys: tuple[str, ...]
    order: Literal["time", "origin"] = "time"
    each: bool = False
    database: bool = False

    def __str__(self) -> str:
        word = "latest" if self.order == "origin" else "current"
        return f"{word}(by={list(self.keys)!r})"


@dataclass(frozen=True, slots=True)
class Folded:
    """A function over the rows of each key, in order: `state = step(state, row)`."""

    by: tuple[str, ...]
    start: tuple[tuple[str, Any], ...]
    step: Fold
    gives: Schema

    def __str__(self) -> str:
        name = getattr(self.step, "__name__", "a function")
        return f"fold({name}, by={list(self.by)!r})"


_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string",
                           bytes: "binary", datetime: "timestamp", date: "date"}  # fmt: skip


def folded(by: tuple[str, ...], start: object, step: object, gives: str | None) -> Folded:
    """The spec from the user's arguments.

    Raises:
        InvalidSpec: `start` is not a dict of columns, `step` not a function, or a type is unknown.
    """
    if not isinstance(start, Mapping) or not start or not callable(step):
        raise InvalidSpec("fold needs a dict to start from and a function of (state, row)",
                          got=f"start={start!r}, step={step!r}",
                          do='write fold(by="id", start={"n": 0}, step=add)')  # fmt: skip
    if gives is None:
        unknown = [name for name, value in start.items() if type(value) not in _TYPES]
        if unknown:
            raise InvalidSpec("fold needs the types of its state",
                              got=f"{unknown[0]}={start[unknown[0]]!r}",
                              do=f'write gives="{unknown[0]} string, …"')  # fmt: skip
        gives = ", ".join(f"`{name}` {_TYPES[type(value)]}" for name, value in start.items())
    schema = Schema.parse(gives)
    check_names(schema.names, "fold(start=…)")
    other = set(start) - set(schema.names)
    if other or set(by) & set(schema.names):
        raise InvalidSpec("fold needs a state of the columns in gives=, without its keys",
                          got=", ".join(sorted(other or set(by) & set(schema.names))),
                          do="correct start= or gives=")  # fmt: skip
    return Folded(by, tuple(start.items()), step, schema)


def key_names(key: object, *, step: str) -> tuple[str, ...]:
    """The columns in `key=` or `by=`.

    >>> key_names("id", step="table(key=…)")
    ('id',)

    Raises:
        InvalidSpec: no column, something that is not a name, or a column twice.
    """
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidSpec(f"{step} needs a column, or a list of them", got=repr(key),
                          do='write "id" or ["country", "id"]')  # fmt: skip
    if len(set(names)) < len(names):
        raise InvalidSpec(f"{step} needs each column once", got=", ".join(names), do="name it once")
    return names
