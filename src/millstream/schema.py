"""Schemas as values: parses Spark's column text without Spark.

`Schema.parse("auction long, price double not null, tags array<string>")` reads the same text as
Spark. Times are instants in UTC with microseconds; a `timestamp_ntz` is a wall-clock time without a
zone. `varchar(n)` and `char(n)` are plain strings: their length is not enforced.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_SYNONYMS = {
    "boolean": "boolean", "bool": "boolean",
    "tinyint": "byte", "byte": "byte",
    "smallint": "short", "short": "short",
    "int": "int", "integer": "int",
    "bigint": "long", "long": "long",
    "float": "float", "real": "float",
    "double": "double",
    "string": "string", "varchar": "string", "char": "string", "character": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp", "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_DECIMALS = ("decimal", "dec", "numeric")
_NESTED = ("array", "struct", "map")
_SIZED = ("varchar", "char", "character")
_KNOWN = (*_SYNONYMS, *_DECIMALS, *_NESTED)
_RESERVED = ("window_start", "window_end", "pane", "pane_index", "retract")
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\W\d]\w*)|(?P<number>\d+\w*)"
    r"|(?P<text>'(?:[^'\\]|\\.)*')|(?P<mark>[<>(),:]))"
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts: boolean, byte, short, int, long, float, double, string, …"""

    name: str

    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """`precision` digits in all, `scale` of them after the point."""

    precision: int
    scale: int

    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    """An array with elements of one type, which may be null."""

    element: Type

    def ddl(self) -> str:
        return f"array<{self.element.ddl()}>"


@dataclass(frozen=True, slots=True)
class Map:
    """A map; its keys are never null, its values may be."""

    key: Type
    value: Type

    def ddl(self) -> str:
        return f"map<{self.key.ddl()},{self.value.ddl()}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named fields, in order."""

    fields: tuple[Field, ...]

    def ddl(self) -> str:
        return f"struct<{', '.join(part.ddl(mark=':') for part in self.fields)}>"


Type = Scalar | Decimal | Array | Map | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """A name, its type, and whether it may be null or missing."""

    name: str
    type: Type
    nullable: bool = True

    def ddl(self, *, mark: str = "") -> str:
        return f"{_quoted(self.name)}{mark} {self.type.ddl()}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a stream: an immutable, hashable sequence of fields."""

    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read Spark's column text.

        >>> Schema.parse("auction bigint, price real NOT NULL").names
        ('auction', 'price')

        Raises:
            InvalidSpec: the text is not a schema; the message names the position.
        """
        if not isinstance(text, str) or not text.strip():
            raise InvalidSpec(
                "a schema needs columns", got=repr(text), do='write "auction long, price double"'
            )
        return cls(_Reader(text).columns())

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """The schema of Arrow columns; a column that Spark cannot hold is refused by name."""
        return cls(_from_arrow_fields(schema))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def ddl(self) -> str:
        """Text that `parse` and Spark read back to the same schema."""
        return ", ".join(field.ddl() for field in self.fields)

    def arrow(self) -> pa.Schema:
        """The same columns in Arrow: times as `timestamp[us, UTC]`, decimals as `decimal128`."""
        import pyarrow as pa

        return pa.schema(list(arrow_type(Struct(self.fields))))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


def check_names(names: Iterable[str], what: str) -> None:
    """Refuse names that repeat (to Spark, `a` and `A` are equal) or are reserved.

    Raises:
        InvalidSpec: `what` (such as "select") would make such a column.
    """
    given = list(names)
    _refuse_repeats(given, what)
    for name in given:
        if name.startswith("_") or name.lower() in _RESERVED:
            raise InvalidSpec(
                f"{what} needs column names that are not reserved",
                got=_quoted(name),
                do=f"choose a name that does not begin with `_` and is none of "
                f"{', '.join(_RESERVED)}",
            )


def _refuse_repeats(names: list[str], what: str) -> None:
    counts = Counter(name.lower() for name in names)
    for name in names:
        if counts[name.lower()] > 1:
            raise InvalidSpec(
                f"{what} needs different column names",
                got=f"{_quoted(name)} {counts[name.lower()]} times (upper and lower case are one)",
                do="rename all but one",
            )


class _Reader:
    """Recursive descent over the tokens of one schema text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0

    def columns(self) -> tuple[Field, ...]:
        fields = self._fields(nested=False)
        if self._next < len(self._tokens):
            raise self._wrong("a comma or the end of the schema")
        return fields

    def _split(self) -> Iterator[tuple[str, str, int]]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                at = end - len(self._text[at:end].lstrip())
                raise self._error("a schema needs columns such as `auction long`", at)
            kind = str(found.lastgroup)
            yield kind, found.group(kind), found.start(kind)
            at = found.end()

    def _fields(self, *, nested: bool) -> tuple[Field, ...]:
        fields = [self._field(nested=nested)]
        while self._took(","):
            fields.append(self._field(nested=nested))
        _refuse_repeats([field.name for field in fields], "a schema")
        return tuple(fields)

    def _field(self, *, nested: bool) -> Field:
        kind, token, _ = self._peek()
        if kind not in ("word", "quoted"):
            raise self._wrong("a column name")
        self._next += 1
        name = token[1:-1].replace("``", "`") if kind == "quoted" else token
        if nested:
            self._took(":")
        type_ = self._type()
        nullable = True
        if self._took("not"):
            self._need("null", "`null` after `not`")
            nullable = False
        if self._took("comment"):
            if self._peek()[0] != "text":
                raise self._wrong("a comment in single quotes")
            self._next += 1
        return Field(name, type_, nullable)

    def _type(self) -> Type:
        kind, token, at = self._peek()
        word = token.lower()
        if kind != "word":
            raise self._wrong("a type")
        self._next += 1
        if word in _DECIMALS:
            return self._decimal(at)
        if word in _NESTED:
            return self._nested(word)
        if word not in _SYNONYMS:
            near = difflib.get_close_matches(word, _KNOWN, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"choose among {', '.join(_KNOWN)}"
            raise self._error("a schema needs Spark's type names", at, do=hint)
        if word in _SIZED and self._took("("):
            self._number("a length")
            self._need(")", "`)`")
        return Scalar(_SYNONYMS[word])

    def _nested(self, word: str) -> Type:
        self._need("<", f"`<` after {word}")
        made: Type
        if word == "array":
            made = Array(self._type())
        elif word == "map":
            key = self._type()
            self._need(",", "a comma between the map's key and value")
            made = Map(key, self._type())
        else:
            made = Struct(self._fields(nested=True))
        self._need(">", f"`>` to end the {word}")
        return made

    def _decimal(self, at: int) -> Decimal:
        precision, scale = 10, 0
        if self._took("("):
            precision = self._number("a precision")
            if self._took(","):
                scale = self._number("a scale")
            self._need(")", "`)`")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self._error("a decimal needs 1 to 38 digits, and a scale that is not larger", at)
        return Decimal(precision, scale)

    def _number(self, what: str) -> int:
        kind, token, _ = self._peek()
        if kind != "number" or not (token.isascii() and token.isdigit()):
            raise self._wrong(f"{what}, a whole number")
        self._next += 1
        return int(token)

    def _peek(self) -> tuple[str, str, int]:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return "end", "", len(self._text)

    def _took(self, wanted: str) -> bool:
        kind, token, _ = self._peek()
        found = kind in ("word", "mark") and token.lower() == wanted
        self._next += found
        return found

    def _need(self, wanted: str, words: str) -> None:
        if not self._took(wanted):
            raise self._wrong(words)

    def _wrong(self, wanted: str) -> InvalidSpec:
        return self._error(f"a schema needs {wanted} here", self._peek()[2])

    def _error(self, need: str, at: int, *, do: str | None = None) -> InvalidSpec:
        rest = self._text[at : at + 20]
        got = f"{rest!r} at position {at + 1}" if rest.strip() else "the end of the text"
        return InvalidSpec(need, got=f"{got} of {self._text!r}", do=do)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@cache
def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type that holds the values of a column."""
    import pyarrow as pa

    if isinstance(type_, Scalar):
        scalars = {
            "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "int": pa.int32(),
            "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
            "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
            "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
        }  # fmt: skip
        return scalars[type_.name]
    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, Array):
        return pa.list_(arrow_type(type_.element))
    if isinstance(type_, Map):
        return pa.map_(arrow_type(type_.key), arrow_type(type_.value))
    return pa.struct(
        [pa.field(part.name, arrow_type(part.type), part.nullable) for part in type_.fields]
    )


def _from_arrow_fields(parts: Iterable[pa.Field], path: str = "") -> tuple[Field, ...]:
    return tuple(
        Field(part.name, _from_arrow(part.type, path + part.name), part.nullable) for part in parts
    )


def _from_arrow(type_: pa.DataType, path: str) -> Type:
    import pyarrow.types as kinds

    if kinds.is_dictionary(type_):
        return _from_arrow(type_.value_type, path)
    if kinds.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return Decimal(type_.precision, type_.scale)
    if kinds.is_map(type_):
        return Map(_from_arrow(type_.key_type, path), _from_arrow(type_.item_type, path))
    if kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_):
        return Array(_from_arrow(type_.value_type, path))
    if kinds.is_struct(type_):
        return Struct(_from_arrow_fields(type_, f"{path}."))
    return Scalar(_scalar_name(type_, path))


def _scalar_name(type_: pa.DataType, path: str) -> str:
    import pyarrow.types as kinds

    if kinds.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    same = {
        "bool": "boolean", "int8": "byte", "int16": "short", "int32": "int", "int64": "long",
        "float": "float", "double": "double", "string": "string", "large_string": "string",
        "string_view": "string", "binary": "binary", "large_binary": "binary",
        "binary_view": "binary", "date32[day]": "date", "date64[ms]": "date",
    }  # fmt: skip
    name = same.get(str(type_))
    if name is None and kinds.is_fixed_size_binary(type_):
        name = "binary"
    if name is None:
        raise InvalidSpec(
            "a column needs a type that Spark holds",
            got=f"{path} of Arrow type {type_}",
            do="cast it to a signed integer, double, string, timestamp or another Spark type",
        )
    return name
