"""Parses Avro schemas: from JSON to a tree of nodes with column types."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millstream.errors import InvalidSpec
from millstream.schema import Array, Decimal, Field, Map, Scalar, Schema, Struct, Type

_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_INSTANTS = {
    "timestamp-millis": ("timestamp", 1000),
    "timestamp-micros": ("timestamp", 1),
    "local-timestamp-millis": ("timestamp_ntz", 1000),
    "local-timestamp-micros": ("timestamp_ntz", 1),
}


@dataclass(frozen=True, slots=True)
class Plain:
    """A primitive: `kind` is Avro's name; `unit` is the tick of a time in microseconds."""

    kind: str
    type: Type
    unit: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes, which may be a decimal."""

    name: str
    size: int
    type: Type


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum: one of the symbols, written as its index."""

    name: str
    symbols: tuple[str, ...]

    @property
    def type(self) -> Type:
        return Scalar("string")


@dataclass(frozen=True, slots=True)
class Maybe:
    """A union of null and at most one other type; `null` is the index of null, -1 without null."""

    inner: Node
    null: int
    size: int

    @property
    def type(self) -> Type:
        return self.inner.type


@dataclass(frozen=True, slots=True)
class Items:
    """An array."""

    element: Node

    @property
    def type(self) -> Type:
        return Array(self.element.type)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map with string keys."""

    value: Node

    @property
    def type(self) -> Type:
        return Map(Scalar("string"), self.value.type)


@dataclass(frozen=True, slots=True)
class Record:
    """A record: named fields in order."""

    name: str
    parts: tuple[tuple[str, Node], ...]

    @property
    def type(self) -> Type:
        return Struct(tuple(Field(name, node.type) for name, node in self.parts))


Node = Plain | Fixed | Enum | Maybe | Items | Pairs | Record


@lru_cache(maxsize=64)
def parse_schema(text: str) -> Record:
    """Parse a schema's JSON.

    Raises:
        InvalidSpec: it is not the Avro schema of a record, or a field has no column type.
    """
    try:
        body = json.loads(text)
    except ValueError as error:
        raise InvalidSpec("an Avro schema needs to be JSON", got=str(error)) from None
    node = _Names().node(body, "", "the schema")
    if not isinstance(node, Record) or not node.parts:
        raise InvalidSpec("an Avro schema needs a record with fields at the top",
                          got=text[:60])  # fmt: skip
    return node


def row_schema(text: str) -> Schema:
    """The columns of a record schema; every column may be null, as in Spark."""
    return Schema(tuple(Field(name, node.type) for name, node in parse_schema(text).parts))


class _Names:
    """The named types of one schema during parsing: complete ones and incomplete ones."""

    def __init__(self) -> None:
        self._known: dict[str, Node | None] = {}

    def node(self, body: Any, space: str, path: str) -> Node:
        if isinstance(body, list):
            return self._union(body, space, path)
        if isinstance(body, str):
            return self._word(body, {}, space, path)
        if not isinstance(body, dict) or "type" not in body:
            raise _wrong(path, body)
        kind = body["type"]
        if isinstance(kind, dict | list):
            return self.node(kind, space, path)
        if kind == "array":
            return Items(self._filling(body.get("items"), space, f"{path}[]"))
        if kind == "map":
            return Pairs(self.node(body.get("values"), space, f"{path}[]"))
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(kind, body, space, path)
        return self._word(kind, body, space, path)

    def _filling(self, body: Any, space: str, path: str) -> Node:
        """An array element; it needs a byte, so that the record's size limits their number."""
        node = self.node(body, space, path)
        if min_size(node) == 0:
            raise InvalidSpec("an Avro array needs elements of at least one byte", got=path)
        return node

    def _word(self, kind: Any, body: dict[str, Any], space: str, path: str) -> Node:
        if kind in _PRIMITIVES:
            return _plain(kind, body, path)
        if isinstance(kind, str):
            for name in (kind, f"{space}.{kind}"):
                if name in self._known:
                    found = self._known[name]
                    if found is None:
                        raise InvalidSpec("a column needs a type that is not recursive",
                                          got=f"{path}: {kind} contains itself")  # fmt: skip
                    return found
        raise _wrong(path, kind)

    def _union(self, body: list[Any], space: str, path: str) -> Node:
        others = [part for part in body if not _is_null(part)]
        if len(others) != 1 or len(body) - len(others) > 1:
            raise InvalidSpec(
                "an Avro union needs to be of null and one other type",
                got=f"{path}: {json.dumps(body)[:80]}",
                do="give each kind of value its own field",
            )
        place = next((n for n, part in enumerate(body) if _is_null(part)), -1)
        return Maybe(self.node(others[0], space, path), place, len(body))

    def _named(self, kind: str, body: dict[str, Any], space: str, path: str) -> Node:
        name = body.get("name")
        if not isinstance(name, str) or not all(_NAME.match(word) for word in name.split(".")):
            raise _wrong(path, f"a {kind} named {name!r}")
        inner = name.rpartition(".")[0] or body.get("namespace", space)
        full = name if "." in name else f"{inner}.{name}".lstrip(".")
        if full in self._known:
            raise _wrong(path, f"{full} twice")
        self._known[full] = None
        node = self._made(kind, full, body, inner, path)
        self._known[full] = node
        return node

    def _made(self, kind: str, full: str, body: dict[str, Any], space: str, path: str) -> Node:
        if kind == "enum":
            symbols = body.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise _wrong(path, body)
            return Enum(full, tuple(symbols))
        if kind == "fixed":
            size = body.get("size")
            if type(size) is not int or size < 0:
                raise _wrong(path, body)
            return Fixed(full, size, _decimal(body, path) or Scalar("binary"))
        return Record(full, tuple(self._parts(body, space, path)))

    def _parts(self, body: dict[str, Any], space: str, path: str) -> list[tuple[str, Node]]:
        fields = body.get("fields")
        if not isinstance(fields, list):
            raise _wrong(path, body)
        parts = []
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str):
                raise _wrong(path, field)
            name = field["name"]
            if "type" not in field:
                raise _wrong(f"{path}.{name}", field)
            parts.append((name, self.node(field["type"], space, name)))
        return parts


def _is_null(part: Any) -> bool:
    return part in ("null", {"type": "null"})


def _plain(kind: str, body: dict[str, Any], path: str) -> Plain:
    logical = body.get("logicalType")
    if kind == "null":
        raise InvalidSpec("a column needs a type", got=f"{path}: only null")
    if kind == "long" and logical in _INSTANTS:
        name, unit = _INSTANTS[logical]
        return Plain(kind, Scalar(name), unit)
    if kind == "int" and logical == "date":
        return Plain(kind, Scalar("date"))
    if kind == "bytes" and (decimal := _decimal(body, path)):
        return Plain(kind, decimal)
    return Plain(kind, Scalar({"bytes": "binary"}.get(kind, kind)))


def _decimal(body: dict[str, Any], path: str) -> Decimal | None:
    if body.get("logicalType") != "decimal":
        return None
    precision, scale = body.get("precision"), body.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        raise _wrong(path, body)
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise InvalidSpec("a decimal needs 1 to 38 digits, and a scale that is not larger",
                          got=f"{path} decimal({precision},{scale})")  # fmt: skip
    return Decimal(precision, scale)


def min_size(node: Node) -> int:
    """The smallest size of a value in bytes."""
    if isinstance(node, Fixed):
        return node.size
    if isinstance(node, Record):
        return sum(min_size(part) for _, part in node.parts)
    return {"float": 4, "double": 8}.get(node.kind, 1) if isinstance(node, Plain) else 1


def derive_schema(schema: Schema) -> str:
    """The schema for rows without a given one: each column is a union with null."""
    return json.dumps(_record("row", schema.fields, ""))


def _record(name: str, fields: tuple[Field, ...], path: str) -> dict[str, Any]:
    parts = []
    for field in fields:
        if not _NAME.match(field.name):
            raise InvalidSpec("an Avro field needs a name of letters, digits and underscores",
                              got=repr(field.name), do="rename it with select")  # fmt: skip
        inner = f"{path}_{field.name}".lstrip("_")
        parts.append({"name": field.name, "type": ["null", _body(field.type, inner)]})
    return {"type": "record", "name": name, "fields": parts}


def _body(type_: Type, path: str) -> Any:
    if isinstance(type_, Decimal):
        return {"type": "bytes", "logicalType": "decimal",
                "precision": type_.precision, "scale": type_.scale}  # fmt: skip
    if isinstance(type_, Array):
        return {"type": "array", "items": ["null", _body(type_.element, path)]}
    if isinstance(type_, Map):
        if type_.key != Scalar("string"):
            raise InvalidSpec("a map in Avro needs string keys", got=type_.ddl())
        return {"type": "map", "values": ["null", _body(type_.value, path)]}
    if isinstance(type_, Struct):
        return _record(f"row_{path}", type_.fields, path)
    logical = {"timestamp": ("long", "timestamp-micros"), "date": ("int", "date"),
               "timestamp_ntz": ("long", "local-timestamp-micros")}  # fmt: skip
    if type_.name in logical:
        kind, word = logical[type_.name]
        return {"type": kind, "logicalType": word}
    return {"byte": "int", "short": "int", "binary": "bytes"}.get(type_.name, type_.name)


def _wrong(path: str, got: Any) -> InvalidSpec:
    return InvalidSpec(f"an Avro schema needs a known type at {path}", got=str(got)[:80])
