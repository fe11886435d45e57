"""`Memory`: rows in this process, as a source and as a sink."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal as Number
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec
from millstream.schema import Array, Decimal, Field, Scalar, Schema, Struct, Type

if TYPE_CHECKING:
    from millstream.sources.spec import Opener, Reader, SourceOpening

_SCALARS: dict[type, str] = {
    bool: "boolean", int: "long", float: "double", str: "string", bytes: "binary",
    datetime: "timestamp", date: "date",
}  # fmt: skip


class Memory:
    """Rows in a list: `ms.Memory(rows)` to read them, `results = ms.Memory()` and then
    `results.rows` to collect them.

    As a source it is bounded: it has the rows that exist when a run starts. Their columns are
    inferred from the rows, or given by `schema`. As a sink it holds the rows of each batch once,
    as long as this process lives. If all sources and sinks of a pipeline are `Memory`, each run
    starts from the first row and with empty sinks. A string instead of rows is the name.

    >>> Memory([{"auction": 1, "price": 2.5}]).row_schema().ddl()
    '`auction` long, `price` double'
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]] | str = (),
        *,
        name: str = "memory",
        schema: str | Schema | None = None,
    ) -> None:
        given = () if isinstance(rows, str) else rows
        self.name = rows if isinstance(rows, str) else name
        if not isinstance(given, Iterable) or isinstance(given, Mapping):
            raise InvalidSpec("Memory needs rows as dicts", got=repr(rows),
                              do='write Memory([{"auction": 1}])')  # fmt: skip
        self.rows: list[dict[str, Any]] = []
        for row in given:
            if not isinstance(row, Mapping):
                raise InvalidSpec("Memory needs rows as dicts", got=repr(row),
                                  do='write Memory([{"auction": 1}])')  # fmt: skip
            self.rows.append(dict(row))
        self._schema = Schema.parse(schema) if isinstance(schema, str) else schema

    def __repr__(self) -> str:
        return f"Memory({self.name!r})"

    def row_schema(self) -> Schema:
        """The columns of its rows: as given, or inferred from the rows."""
        if self._schema is not None:
            return self._schema
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        if not names:
            raise InvalidSpec(
                "reading rows in memory needs rows or a schema",
                got="neither",
                do='write Memory(rows, schema="auction long, at timestamp")',
            )
        return Schema(tuple(
            Field(name, _type([row.get(name) for row in self.rows], name)) for name in names
        ))  # fmt: skip

    def opener(self) -> Opener:
        """Rows as JSON records."""
        from millstream.formats.json.format import Json
        from millstream.sources.values import Values

        return Values(Json())

    def reader(self, opening: SourceOpening) -> Reader:
        """Open the current rows; a later run needs the same rows."""
        from millstream.sources.plain_json import as_json
        from millstream.sources.rows_reader import RowsReader

        digest = hashlib.blake2b(digest_size=16)
        records: list[dict[str, Any]] = []
        for offset, row in enumerate(self.rows):
            value = as_json(row, "Memory")
            digest.update(len(value).to_bytes(8, "big") + value)
            records.append({"value": value, "partition": 0, "offset": offset, "timestamp": None})
        return RowsReader(lambda: {0: records}, digest.hexdigest())


def _type(values: Iterable[Any], path: str) -> Type:
    """The type of all these values; nulls fit every type."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if kinds and kinds <= {int, float}:
        return Scalar("double" if float in kinds else "long")
    if kinds == {Number}:
        return _decimal(there)
    if kinds and kinds <= {list, tuple}:
        return Array(_type([part for value in there for part in value], f"{path}[]"))
    if kinds == {dict}:
        names = list(dict.fromkeys(name for value in there for name in value))
        parts = ((name, _type([value.get(name) for value in there], f"{path}.{name}"))
                 for name in names)  # fmt: skip
        return Struct(tuple(Field(name, type_) for name, type_ in parts))
    if len(kinds) == 1 and (name := _SCALARS.get(next(iter(kinds)))):
        return Scalar(name)
    got = ", ".join(sorted(kind.__name__ for kind in kinds)) or "only None"
    raise InvalidSpec(f"the column {path} needs values of one type", got=got,
                      do='give the columns: Memory(rows, schema="…")')  # fmt: skip


def _decimal(values: list[Number]) -> Type:
    scale = max([0, *(-int(v.as_tuple().exponent) for v in values if v.is_finite())])
    return Decimal(38, min(38, scale))
