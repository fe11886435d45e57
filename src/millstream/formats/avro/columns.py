"""Blocks of Avro data to columns: one field of all records at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats import times
from millstream.formats.avro.exact import GREATEST_DAY, LEAST_DAY
from millstream.formats.avro.schema import Enum, Fixed, Items, Maybe, Node, Pairs, Plain, Record
from millstream.formats.cursors import Cursor, zigzag
from millstream.schema import Decimal, Scalar, Struct, arrow_type

if TYPE_CHECKING:
    from millstream.formats.block import Flags, Ints

MOST_ITEMS = 64
_KEY = Plain("string", Scalar("string"))


def read(values: pa.Array, schema: Record) -> tuple[list[pa.Array], Flags, Flags]:
    """The columns of all records, which records are surely right, and which are in doubt.

    The columns of the others hold something of the right type.
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
    """The values; those out of bounds are lost, and `least` stands in their place."""
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
    """Big-endian whole numbers of up to eight bytes; longer ones take the exact path."""
    if not isinstance(type_, Decimal):
        return raw
    offsets = np.frombuffer(raw.buffers()[1], np.int32, len(raw) + 1, raw.offset * 4)
    size = np.diff(offsets).astype(np.int64)
    size = _inside(cursor, rows, size, 1, 8, doubt=True)
    data = np.zeros(int(offsets[-1]) + 16, np.uint8)
    data[8 : 8 + int(offsets[-1])] = np.frombuffer(raw.buffers()[2] or b"", np.uint8,
                                                   int(offsets[-1]))  # fmt: skip
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
    """The elements of arrays or maps, read one for each record and round."""

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
                self._begin(fresh, count, total)
                waiting = waiting[(count[waiting] > 0) & ~cursor.lost[rows[waiting]]]
            if waiting.size:
                self._owners.append(waiting)
                for node, made in zip(self._nodes, self._made, strict=True):
                    made.append(_column(cursor, node, rows[waiting]))
                count[waiting] -= 1
                waiting = waiting[~cursor.lost[rows[waiting]]]

    def _begin(self, places: Ints, count: Ints, total: Ints) -> None:
        """The head of the next block of each; long arrays are left to the exact path."""
        cursor = self._cursor
        rows = self._rows[places]
        heads = zigzag(cursor.varints(rows))
        below = heads < 0
        if below.any():
            size = zigzag(cursor.varints(rows[below]))
            cursor.lose(rows[below][size < 0])
            heads = np.abs(heads)
        cursor.lose(rows[heads > cursor.left(rows)])
        heads = _inside(cursor, rows, heads, 0, MOST_ITEMS, doubt=True)
        total[places] += heads
        count[places] = heads
        cursor.lose(rows[total[places] > MOST_ITEMS], doubt=True)

    def lists(self) -> tuple[pa.Array, list[pa.Array]]:
        """The bounds of each record's elements, and the elements in order."""
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
