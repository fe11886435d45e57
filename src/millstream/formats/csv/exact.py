"""The exact path for CSV: reads a record cell by cell.

This slow path defines the format: whatever the fast path accepts, this path accepts with the same
values. A cell has the form that its type has in JSON, without quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.formats.decoding import NULL_VALUE, BadRecord, BadValue
from millstream.formats.json.exact import LIMITS, NON_FINITE, Notes, reader
from millstream.formats.json.syntax import Real, Whole
from millstream.schema import Decimal, Scalar

if TYPE_CHECKING:
    from millstream.schema import Field, Schema, Type

_CELL = re.compile(r'"((?:[^"]++|"")*+)"(?=,|\Z)|([^",\r\n]*+)(?=,|\Z)')
_ODD = re.compile(r'["\r\n]')
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_REAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_NUMBERS = (*LIMITS, "float", "double")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; an empty cell is null unless it is quoted."""

    text: str
    quoted: bool


def parse_cells(raw: bytes | None, width: int | None = None) -> list[Cell]:
    """Return the cells of one record.

    Raises:
        BadRecord: the record is null or not UTF-8, its quotes are wrong, or the number of
            cells is not `width`.
    """
    text = _text(raw)
    if _ODD.search(text) is None:
        count = text.count(",") + 1
        if width not in (None, count):
            raise BadRecord(f"needs {width} cells; got {count}")
        return [Cell(part, quoted=False) for part in text.split(",")]
    found: list[Cell] = []
    count = at = 0
    while at <= len(text):
        match = _CELL.match(text, at)
        if match is None:
            raise BadRecord(_wrong(text, at, count + 1))
        count += 1
        if width is None or count <= width:
            quoted = match[1] is not None
            found.append(Cell(match[1].replace('""', '"') if quoted else match[2], quoted))
        at = match.end() + 1
    if width not in (None, count):
        raise BadRecord(f"needs {width} cells; got {count}")
    return found


def _text(raw: bytes | None) -> str:
    if raw is None:
        raise BadRecord(NULL_VALUE)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"not CSV: invalid UTF-8 at byte {error.start + 1}") from None
    if text[:1] == "\ufeff":
        raise BadRecord("not CSV: it begins with a byte order mark")
    if text.endswith("\n"):
        text = text[:-1].removesuffix("\r")
    return text


def _wrong(text: str, at: int, number: int) -> str:
    if text[at] != '"':
        end = text.find(",", at)
        mark = "a quote" if text.find('"', at, None if end < 0 else end) >= 0 else "a line break"
        return f"not CSV: {mark} inside cell {number}, which is not in quotes"
    if text.count('"', at) % 2:
        return f"not CSV: the quotes of cell {number} do not end"
    return f"not CSV: text after the quotes of cell {number}"


def read(
    raw: bytes | None, fields: tuple[Field, ...], places: tuple[int | None, ...], width: int
) -> list[object]:
    """Return a row's values in the schema's order.

    `places` is the cell of each field (None: in no cell), `width` the number of cells.

    Raises:
        BadRecord: `str(error)` is the reason.
    """
    found = parse_cells(raw, width)
    row: list[object] = []
    for field, place in zip(fields, places, strict=True):
        cell = found[place] if place is not None else None
        if cell is None or not (cell.text or cell.quoted):
            if not field.nullable:
                lack = "it is missing" if cell is None else "the cell is empty"
                raise BadValue(f"needs {field.type.ddl()}; {lack}").inside(field.name)
            row.append(None)
            continue
        try:
            row.append(_value(cell.text, field.type))
        except BadValue as refused:
            raise refused.inside(field.name) from None
    return row


def _value(text: str, type_: Type) -> object:
    token: object = text
    if isinstance(type_, Scalar):
        if type_.name in _NUMBERS:
            token = _number(text, type_)
        elif type_.name == "boolean":
            token = _BOOLEANS.get(text, text)
        elif type_.name == "timestamp" and _WHOLE.fullmatch(text):
            token = Whole(text)
    if isinstance(token, bool) or type_ != Scalar("boolean"):
        return reader(type_)(token, Notes())
    raise BadValue(f"needs a boolean; got the text {preview(text)}")


def _number(text: str, type_: Scalar) -> str:
    if _WHOLE.fullmatch(text):
        return Whole(text)
    if _REAL.fullmatch(text):
        return Real(text)
    if text in NON_FINITE and type_.name in ("float", "double"):
        return text
    raise BadValue(f"needs {'an' if type_.name == 'int' else 'a'} {type_.name}; "
                  f"got the text {preview(text)}")  # fmt: skip


def preview(text: str) -> str:
    """Text for a reason: quoted, truncated if it is long."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")


def check_schema(schema: Schema) -> None:
    """Refuse a column that does not fit into a cell.

    Raises:
        InvalidSpec: the message names the column.
    """
    for field in schema:
        if not isinstance(field.type, Scalar | Decimal):
            raise InvalidSpec(
                "a CSV cell needs a type without parts",
                got=f"{field.name} {field.type.ddl()}",
                do="use JSON, Avro or Parquet for arrays, maps and structs",
            )
