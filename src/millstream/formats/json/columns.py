"""Reads the slots of matched rows into Arrow columns, strictly.

Each reader returns a column and a mask, which is False where a slot is not certainly a valid value.
Those rows take the exact path, and their values in the column are arbitrary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats.block import Block, Flags, Ints, contains_any
from millstream.formats.json import exact, instants
from millstream.formats.json.numbers import (
    parse_decimals,
    parse_doubles,
    parse_integers,
    to_int64,
)
from millstream.schema import Decimal, Scalar, Struct, Type, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.formats.json.shapes import Match, Shape, Slot, Source
    from millstream.schema import Field

_NULL, _TRUE, _FALSE = (
    np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false")
)
_FOUR, _FIVE = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
_TENS = np.array([10**power for power in range(19)], np.uint64)


@dataclass(frozen=True, slots=True)
class Span:
    """A slot in all rows of a match."""

    block: Block
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return self.start.size

    def is_word(self, word: np.uint64, mask: np.uint64) -> Flags:
        size = 4 if mask == _FOUR else 5
        same = (self.block.word(self.start) & mask) == word
        return np.asarray(same & (self.end - self.start == size))


def read(
    block: Block, shape: Shape, found: Match, fields: tuple[Field, ...]
) -> tuple[list[pa.Array], Flags]:
    """The columns of the matched rows, and which rows are certainly valid."""
    ok = np.ones(found.rows.size, np.bool_)
    made: list[pa.Array | None] = []
    for slot, (start, end) in zip(shape.slots, found.bounds, strict=True):
        column, right = _slot(slot, Span(block, start, end))
        ok &= right
        made.append(column)
    rows = found.rows.size
    parts = zip(shape.sources, fields, strict=True)
    return [_column(source, field.type, made, rows) for source, field in parts], ok


def _column(source: Source, type_: Type, made: list[pa.Array | None], rows: int) -> pa.Array:
    if source is None:
        return pa.nulls(rows, arrow_type(type_))
    if isinstance(source, int):
        return made[source]
    assert isinstance(type_, Struct)
    kind = arrow_type(type_)
    parts = [
        _column(part, field.type, made, rows)
        for part, field in zip(source, type_.fields, strict=True)
    ]
    buffers: list[pa.Buffer | None] = [None]
    return pa.Array.from_buffers(kind, rows, buffers, children=parts)


def _slot(slot: Slot, span: Span) -> tuple[pa.Array | None, Flags]:
    if slot.quoted:
        return read_quoted(slot.type, span)
    if slot.type is None:
        return None, _any_bare(span)
    column = read_bare(slot.type, span)
    if column is not None and column.ok.all():
        return column.array(slot.type), column.ok
    null = span.is_word(_NULL, _FOUR)
    if column is None:  # the shape was learned from a record with null here, so null is allowed
        return pa.nulls(len(span), arrow_type(slot.type)), null
    column.valid = ~null
    return column.array(slot.type), column.ok | (null & slot.nullable)


@dataclass(slots=True)
class Values:
    """Fixed-width values and their masks, before they become an Arrow array."""

    values: np.ndarray
    ok: Flags
    valid: Flags | None = None

    def array(self, type_: Type) -> pa.Array:
        kind = arrow_type(type_)
        bits = None
        if self.valid is not None and not self.valid.all():
            bits = pa.py_buffer(np.packbits(self.valid, bitorder="little"))
        data = self.values
        if data.dtype == np.bool_:
            data = np.packbits(data, bitorder="little")
        elif not isinstance(type_, Decimal):
            data = data.astype(f"{data.dtype.kind}{kind.bit_width // 8}", copy=False)
        return pa.Array.from_buffers(kind, len(self.ok), [bits, pa.py_buffer(data)])


def read_bare(type_: Type, span: Span) -> Values | None:
    """Numbers and booleans; None for a type that is never written without quotes."""
    if isinstance(type_, Decimal):
        return _decimals(type_, span)
    if not isinstance(type_, Scalar):
        return None
    if type_.name in exact.LIMITS:
        number = parse_integers(span.block, span.start, span.end)
        return Values(*to_int64(number, exact.LIMITS[type_.name]))
    maker = _BARE.get(type_.name)
    return maker(span) if maker is not None else None


def _any_bare(span: Span) -> Flags:
    """Whether each slot is a number, true, false or null."""
    _, ok = parse_doubles(span.block, span.start, span.end)
    if not ok.all():
        ok |= span.is_word(_NULL, _FOUR) | span.is_word(_TRUE, _FOUR)
        ok |= span.is_word(_FALSE, _FIVE)
    return ok


def _booleans(span: Span) -> Values:
    true = span.is_word(_TRUE, _FOUR)
    return Values(true, true | span.is_word(_FALSE, _FIVE))


def _doubles(span: Span) -> Values:
    return Values(*parse_doubles(span.block, span.start, span.end))


def _floats(span: Span) -> Values:
    values, ok = parse_doubles(span.block, span.start, span.end)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return Values(single, ok & np.isfinite(single))


def _millis(span: Span) -> Values:
    return Values(*instants.parse_millis(span.block, span.start, span.end))


def _decimals(type_: Decimal, span: Span) -> Values:
    """Decimals of up to 18 digits; longer ones take the exact path."""
    number = parse_decimals(span.block, span.start, span.end)
    missing = type_.scale - number.places
    room = _TENS[np.clip(18 - missing, 0, 18)]
    ok = number.ok & (missing >= 0) & (missing <= 18) & (number.mantissa < room)
    value = number.mantissa * _TENS[np.where(ok, missing, 0)]
    if type_.precision <= 18:
        ok &= value < _TENS[type_.precision]
    pair = np.zeros((len(span), 2), np.int64)
    pair[:, 0] = value.view(np.int64)
    if number.minus is not None:
        np.negative(pair[:, 0], out=pair[:, 0], where=number.minus)
    pair[:, 1] = pair[:, 0] >> 63
    return Values(pair, ok)


def read_quoted(type_: Type | None, span: Span) -> tuple[pa.Array | None, Flags]:
    if type_ is None:
        return None, _strings(span)[1]
    if isinstance(type_, Decimal):
        column = _decimals(type_, span)
        return column.array(type_), column.ok
    if isinstance(type_, Scalar):
        if type_.name == "string":
            return _strings(span)
        if type_.name == "binary":
            return _binaries(span)
        maker = _QUOTED.get(type_.name)
        if maker is not None:
            column = maker(span)
            return column.array(type_), column.ok
    return pa.nulls(len(span), arrow_type(type_)), np.zeros(len(span), np.bool_)


def _strings(span: Span) -> tuple[pa.Array, Flags]:
    block = span.block
    ok = np.ones(len(span), np.bool_)
    if not block.ascii:
        ok = _sound(span)
    if not block.escapes.size:
        return block.slices(span.start, np.where(ok, span.end, span.start), pa.string()), ok
    escaped = contains_any(block.escapes, span.start, span.end)
    column = block.slices(span.start, np.where(ok, span.end, span.start), pa.string())
    which = np.flatnonzero(escaped & ok)
    if which.size:
        texts = _unescaped(column.take(pa.array(which)).to_pylist())
        ok[which] = [text is not None for text in texts]
        column = _replaced(column, which, texts)
    return column, ok


def _sound(span: Span) -> Flags:
    """Which slots are valid UTF-8. If one is not, all with non-ASCII bytes take the exact path."""
    texts = span.block.slices(span.start, span.end, pa.binary())
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return ~contains_any(span.block.high, span.start, span.end)
    return np.ones(len(span), np.bool_)


def _unescaped(texts: list[str]) -> list[str | None]:
    """The contents of JSON strings, unescaped; None where an escape is invalid.

    They contain no unescaped quote, so all of them can be parsed as one array.
    """
    try:
        made: list[str | None] = json.loads('["' + '","'.join(texts) + '"]')
        assert len(made) == len(texts)
        "".join(str(text) for text in made).encode()
    except ValueError:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return _unescaped(texts[:half]) + _unescaped(texts[half:])
    return made


def _replaced(column: pa.Array, which: Ints, texts: list[str | None]) -> pa.Array:
    order = np.arange(len(column))
    order[which] = len(column) + np.arange(which.size)
    fresh = pa.array([text or "" for text in texts], pa.string())
    return pa.concat_arrays([column, fresh]).take(pa.array(order))


def _binaries(span: Span) -> tuple[pa.Array, Flags]:
    made: list[bytes | None] = []
    for text in span.block.slices(span.start, span.end, pa.binary()).to_pylist():
        try:
            made.append(exact.from_base64(text.decode("ascii")))
        except ValueError:
            made.append(None)
    return pa.array(made, pa.binary()), np.array([value is not None for value in made], np.bool_)


def _dates(span: Span) -> Values:
    return Values(*instants.parse_dates(span.block, span.start, span.end))


def _times(span: Span) -> Values:
    return Values(*instants.parse_timestamps(span.block, span.start, span.end, zoned=True))


def _wall_clocks(span: Span) -> Values:
    return Values(*instants.parse_timestamps(span.block, span.start, span.end, zoned=False))


_BARE: dict[str, Callable[[Span], Values]] = {
    "boolean": _booleans,
    "double": _doubles,
    "float": _floats,
    "timestamp": _millis,
}
_QUOTED: dict[str, Callable[[Span], Values]] = {
    "date": _dates,
    "timestamp": _times,
    "timestamp_ntz": _wall_clocks,
}
