"""Decodes Avro data to columns: one field of all records at a time, or record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats import decoding, times
from millstream.formats.avro import exact
from millstream.formats.avro.exact import GREATEST_DAY, LEAST_DAY
from millstream.formats.avro.schema import Enum, Fixed, Items, Maybe, Node, Pairs, Plain, Record
from millstream.formats.block import offsets_of
from millstream.formats.cursors import Cursor, zigzag
from millstream.formats.decoding import BadRecord, Piece
from millstream.schema import Decimal, Scalar, Struct, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.formats.block import Flags, Ints
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema

MOST_ITEMS = 64
_KEY = Plain("string", Scalar("string"))


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema, node: Record) -> Decoded:
    """Decode bare data (binary or large binary) to columns; see `Format.decode`."""
    return decoding.decode(values, schema, _Paths(node))


def decode_exactly(values: pa.Array | pa.ChunkedArray, schema: Schema, node: Record) -> Decoded:
    """As `decode`, by the exact path alone."""
    return decoding.decode(values, schema, _Paths(node), exactly=True)


def are_data(values: pa.Array, node: Record) -> Flags:
    """Whether each value is a bare datum of the schema."""
    found = [np.empty(0, np.bool_)]
    for _, block in decoding.blocks(values):
        _, right, doubtful = _read(block, node)
        for number in np.flatnonzero(doubtful).tolist():
            right[number] = _is_datum(block[number].as_py(), node)
        found.append(right)
    return np.concatenate(found)


def _is_datum(raw: bytes | None, node: Record) -> bool:
    try:
        exact.read(raw, node)
    except BadRecord:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Paths:
    node: Record

    def fast(self, block: pa.Array) -> Iterator[Piece]:
        columns, ok, _ = _read(block, self.node)
        yield Piece.where(ok, columns)

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return exact.read(raw, self.node), False


def _read(values: pa.Array, schema: Record) -> tuple[list[pa.Array], Flags, Flags]:
    """The columns of all records, which records are certainly valid, and which are in doubt.

    For the other records the columns hold arbitrary values.
    """
    cursor = Cursor.over(values)
    rows = np.arange(len(values))
    columns = [_column(cursor, node, rows) for _, node in schema.parts]
    return columns, cursor.finished(), cursor.doubtful


def _column(cursor: Cursor, node: Node, rows: Ints) -> pa.Array:
    if not rows.size:
        return pa.array([], arrow_type(node.type))
    if isinstance(node, Maybe):
        return _maybe(cursor, node, rows)
    if isinstance(node, Record):
        parts = [_column(cursor, part, rows) for _, part in node.parts]
        kind = node.type
        assert isinstance(kind, Struct)
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)))
    if isinstance(node, Items):
        return _items(cursor, node, rows)
    if isinstance(node, Pairs):
        return _pairs(cursor, node, rows)
    if isinstance(node, Enum):
        place = zigzag(cursor.varints(rows))
        place = _inside(cursor, rows, place, 0, len(node.symbols) - 1)
        return pa.array(node.symbols, pa.string()).take(pa.array(place))
    if isinstance(node, Fixed):
        made = cursor.binaries(rows, np.full(rows.size, node.size))
        return _decimals(cursor, made, node.type, rows)
    return _plain(cursor, node, rows)


def _inside(
    cursor: Cursor, rows: Ints, value: Ints, least: int, greatest: int, *, doubt: bool = False
) -> Ints:
    """The values; a value out of bounds loses its record and becomes `least`."""
    wrong = (value < least) | (value > greatest)
    if wrong.any():
        cursor.lose(rows[wrong], doubt=doubt)
        value = np.where(wrong, least, value)
    return value


def _maybe(cursor: Cursor, node: Maybe, rows: Ints) -> pa.Array:
    place = _inside(cursor, rows, zigzag(cursor.varints(rows)), 0, node.size - 1)
    null = (place == node.null) | cursor.lost[rows]
    if not null.any():
        return _column(cursor, node.inner, rows)
    if null.all():
        return pa.nulls(rows.size, arrow_type(node.type))
    made = _column(cursor, node.inner, rows[~null])
    return made.take(pa.array(np.cumsum(~null) - 1, mask=null))


def _plain(cursor: Cursor, node: Plain, rows: Ints) -> pa.Array:
    kind = node.kind
    if kind in ("int", "long"):
        return _numbers(cursor, node, rows)
    if kind == "string":
        return cursor.texts(rows, zigzag(cursor.varints(rows)))
    if kind == "bytes":
        made = cursor.binaries(rows, zigzag(cursor.varints(rows)))
        return _decimals(cursor, made, node.type, rows)
    if kind == "boolean":
        byte = cursor.words(rows, 1).astype(np.int64)
        return pa.array(_inside(cursor, rows, byte, 0, 1).astype(np.bool_))
    if kind == "float":
        return pa.array(cursor.words(rows, 4).astype(np.uint32).view(np.float32))
    return pa.array(cursor.words(rows, 8).view(np.float64))


def _numbers(cursor: Cursor, node: Plain, rows: Ints) -> pa.Array:
    value = zigzag(cursor.varints(rows))
    if node.kind == "int":
        value = _inside(cursor, rows, value, -(2**31), 2**31 - 1)
    if node.unit:
        least, greatest = -(-times.LEAST // node.unit), times.GREATEST // node.unit
        value = _inside(cursor, rows, value, least, greatest) * node.unit
    elif node.type == Scalar("date"):
        value = _inside(cursor, rows, value, LEAST_DAY, GREATEST_DAY)
    if node.kind == "int":
        value = value.astype(np.int32)
    return pa.array(value).view(arrow_type(node.type))


def _decimals(cursor: Cursor, raw: pa.Array, type_: object, rows: Ints) -> pa.Array:
    """Big-endian integers of up to eight bytes; longer ones take the exact path."""
    if not isinstance(type_, Decimal):
        return raw
    offsets = offsets_of(raw)
    size = _inside(cursor, rows, np.diff(offsets).astype(np.int64), 1, 8, doubt=True)
    end = int(offsets[-1])
    data = np.zeros(end + 16, np.uint8)
    data[8 : 8 + end] = np.frombuffer(raw.buffers()[2] or b"", np.uint8, end)
    words = np.ndarray((data.size - 7,), ">u8", buffer=data.data, strides=(1,))
    drop = ((8 - size) << 3).astype(np.int64)
    value = (words[offsets[1:]].astype(np.uint64) << drop.astype(np.uint64)).view(np.int64) >> drop
    if type_.precision <= 18:
        bound = 10**type_.precision - 1
        value = _inside(cursor, rows, value, -bound, bound)
    pair = np.empty((len(raw), 2), np.int64)
    pair[:, 0] = value
    pair[:, 1] = value >> 63
    return pa.Array.from_buffers(arrow_type(type_), len(raw), [None, pa.py_buffer(pair)])


class _Elements:
    """The elements of arrays or maps: each round reads the next one of every record."""

    def __init__(self, cursor: Cursor, nodes: list[Node], rows: Ints) -> None:
        self._cursor, self._nodes, self._rows = cursor, nodes, rows
        self._owners: list[Ints] = []
        self._made: list[list[pa.Array]] = [[] for _ in nodes]
        self._read()

    def _read(self) -> None:
        cursor, rows = self._cursor, self._rows
        waiting = np.arange(rows.size)
        count = np.zeros(rows.size, np.int64)
        total = np.zeros(rows.size, np.int64)
        while waiting.size:
            if not cursor.worth(waiting):
                cursor.lose(rows[waiting], doubt=True)
                return
            fresh = waiting[count[waiting] == 0]
            if fresh.size:
                self._begin_block(fresh, count, total)
                waiting = waiting[(count[waiting] > 0) & ~cursor.lost[rows[waiting]]]
            if waiting.size:
                self._owners.append(waiting)
                for node, made in zip(self._nodes, self._made, strict=True):
                    made.append(_column(cursor, node, rows[waiting]))
                count[waiting] -= 1
                waiting = waiting[~cursor.lost[rows[waiting]]]

    def _begin_block(self, which: Ints, count: Ints, total: Ints) -> None:
        """Read the header of the next block; records with long arrays take the exact path."""
        cursor = self._cursor
        rows = self._rows[which]
        heads = zigzag(cursor.varints(rows))
        below = heads < 0
        if below.any():
            size = zigzag(cursor.varints(rows[below]))
            cursor.lose(rows[below][size < 0])
            heads = np.abs(heads)
        cursor.lose(rows[heads > cursor.left(rows)])
        heads = _inside(cursor, rows, heads, 0, MOST_ITEMS, doubt=True)
        total[which] += heads
        count[which] = heads
        cursor.lose(rows[total[which] > MOST_ITEMS], doubt=True)

    def lists(self) -> tuple[pa.Array, list[pa.Array]]:
        """The bounds of each record's elements, and all elements in order."""
        owners = np.concatenate([np.empty(0, np.int64), *self._owners])
        order = np.argsort(owners, kind="stable")
        bounds = np.zeros(self._rows.size + 1, np.int32)
        np.cumsum(np.bincount(owners, minlength=self._rows.size), out=bounds[1:])
        taken = pa.array(order)
        made = [
            pa.concat_arrays([pa.array([], arrow_type(node.type)), *parts]).take(taken)
            for node, parts in zip(self._nodes, self._made, strict=True)
        ]
        return pa.array(bounds), made


def _items(cursor: Cursor, node: Items, rows: Ints) -> pa.Array:
    bounds, [values] = _Elements(cursor, [node.element], rows).lists()
    return pa.ListArray.from_arrays(bounds, values).cast(arrow_type(node.type))


def _pairs(cursor: Cursor, node: Pairs, rows: Ints) -> pa.Array:
    bounds, [keys, values] = _Elements(cursor, [_KEY, node.value], rows).lists()
    owners = np.repeat(np.arange(rows.size), np.diff(bounds.to_numpy()))
    codes = keys.dictionary_encode().indices.to_numpy()
    whole, counts = np.unique(owners * (len(keys) + 1) + codes, return_counts=True)
    cursor.lose(rows[whole[counts > 1] // (len(keys) + 1)])
    return pa.MapArray.from_arrays(bounds, keys, values).cast(arrow_type(node.type))
