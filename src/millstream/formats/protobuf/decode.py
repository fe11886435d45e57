"""Decodes Protobuf messages to columns: each round reads the next field of every message.

Messages of one producer have the same fields in the same order, so a round usually reads the same
field of all messages. Rare cases (maps, repeated occurrences of a singular message, another wire
type, unknown enum values, groups) take the exact path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats import decoding, times
from millstream.formats.cursors import Cursor, zigzag
from millstream.formats.decoding import Piece
from millstream.formats.protobuf import exact
from millstream.formats.protobuf.schema import (
    FIXED32,
    FIXED64,
    SIZED,
    VARINT,
    Leaf,
    Message,
    Part,
    parse_message,
)
from millstream.schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.formats.block import Flags, Ints, Words
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema

MOST_ROUNDS = 256
_WIDTHS = {FIXED32: 4, FIXED64: 8}
_LARGEST = (1 << 29) - 1


def decode(
    values: pa.Array | pa.ChunkedArray, schema: Schema, files: bytes, message: str
) -> Decoded:
    """Decode bare messages (binary or large binary) to columns; see `Format.decode`."""
    return decoding.decode(values, schema, _Paths(files, message))


def decode_exactly(
    values: pa.Array | pa.ChunkedArray, schema: Schema, files: bytes, message: str
) -> Decoded:
    """As `decode`, by the exact path alone."""
    return decoding.decode(values, schema, _Paths(files, message), exactly=True)


@dataclass(frozen=True, slots=True)
class _Paths:
    files: bytes
    message: str

    def fast(self, block: pa.Array) -> Iterator[Piece]:
        cursor = Cursor.over(block)
        node = parse_message(self.files, self.message)
        found = _Found(cursor, node)
        columns = [found.column(part) for part in node.parts]
        yield Piece.where(cursor.finished(), columns, found.extra)

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return exact.reader(self.files, self.message)(raw)


class _Found:
    """The fields of the messages under a cursor, as numbers or bounds of their bytes."""

    def __init__(self, cursor: Cursor, node: Message) -> None:
        self.cursor, self._node = cursor, node
        count = cursor.at.size
        self.extra: Flags = np.zeros(count, np.bool_)
        self._parts = {part.number: part for part in node.parts}
        self._there = {part.number: np.zeros(count, np.bool_) for part in node.parts}
        self._one: dict[int, Words] = {}
        self._spans: dict[int, tuple[Ints, Ints]] = {}
        self._owners: dict[int, list[Ints]] = {p.number: [] for p in node.parts}
        self._many: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {
            p.number: [] for p in node.parts
        }
        self._read()
        self._check()

    def _read(self) -> None:
        cursor = self.cursor
        rows = np.flatnonzero(cursor.at < cursor.end)
        rounds = 0
        while rows.size:
            rounds += 1
            if rounds > MOST_ROUNDS:
                cursor.lose(rows)
                return
            tags = cursor.varints(rows)
            if (tags == tags[0]).all():
                self._fields(int(tags[0]), rows)
            else:
                for tag in np.unique(tags).tolist():
                    self._fields(tag, rows[tags == tag])
            rows = rows[cursor.at[rows] < cursor.end[rows]]

    def _fields(self, tag: int, rows: Ints) -> None:
        number, wire = tag >> 3, tag & 7
        rows = rows[~self.cursor.lost[rows]]
        if not (1 <= number <= _LARGEST and self.cursor.worth(rows)):
            self.cursor.lose(rows)
            return
        part = self._parts.get(number)
        if part is None:
            self._skip(wire, rows)
            self.extra[rows] = True
            return
        expected = part.node.wire if isinstance(part.node, Leaf) else SIZED
        if part.map or (wire != expected and not (part.many and wire == SIZED)):
            self.cursor.lose(rows)
        elif part.many:
            self._more(part, wire, expected, rows)
        else:
            self._once(part, expected, rows)

    def _skip(self, wire: int, rows: Ints) -> None:
        if wire == SIZED:
            self.cursor.spans(rows, self._sizes(rows))
        elif wire in (VARINT, *_WIDTHS):
            self._words(self.cursor, wire, rows)
        else:
            self.cursor.lose(rows)

    def _sizes(self, rows: Ints) -> Ints:
        return np.minimum(self.cursor.varints(rows), np.uint64(2**31 - 1)).astype(np.int64)

    def _words(self, cursor: Cursor, wire: int, rows: Ints) -> Words:
        return cursor.varints(rows) if wire == VARINT else cursor.words(rows, _WIDTHS[wire])

    def _once(self, part: Part, wire: int, rows: Ints) -> None:
        """The last number is used. If text occurs twice, both must be valid, and messages must be
        merged: both cases take the exact path."""
        there, cursor = self._there[part.number], self.cursor
        if wire != SIZED:
            values = self._one.setdefault(part.number, np.zeros(there.size, np.uint64))
            values[rows] = self._words(cursor, wire, rows)
        else:
            cursor.lose(rows[there[rows]])
            start, end = self._spans.setdefault(part.number, (cursor.end.copy(), cursor.end.copy()))
            start[rows], end[rows] = cursor.spans(rows, self._sizes(rows))
        there[rows] = True

    def _more(self, part: Part, wire: int, expected: int, rows: Ints) -> None:
        cursor = self.cursor
        if wire == SIZED and expected != SIZED:
            self._packed(part, expected, rows)
            return
        if expected == SIZED:
            bounds = cursor.spans(rows, self._sizes(rows))
            self._keep(part, rows, bounds)
        else:
            values = self._words(cursor, expected, rows)
            self._keep(part, rows, (values, values))

    def _packed(self, part: Part, wire: int, rows: Ints) -> None:
        """The packed numbers of a span in each message, all at once."""
        spans = self.cursor.spans(rows, self._sizes(rows))
        if wire == VARINT:
            owners, start = self.cursor.numbers_in(*spans)
        else:
            count = -(-(spans[1] - spans[0]) // _WIDTHS[wire])
            owners = np.repeat(np.arange(rows.size), count)
            start = spans[0][owners] + _WIDTHS[wire] * _numbers_within(count)
        inner = self.cursor.inside(start, spans[1][owners])
        values = self._words(inner, wire, np.arange(start.size))
        self._keep(part, rows[owners], (values, values))
        self.cursor.lose(rows[owners[inner.lost]])

    def _keep(self, part: Part, rows: Ints, values: tuple[np.ndarray, np.ndarray]) -> None:
        self._owners[part.number].append(rows)
        self._many[part.number].append(values)

    def _check(self) -> None:
        """Lose messages without a required field, or with several fields of a oneof."""
        chosen: dict[int, np.ndarray] = {}
        for part in self._node.parts:
            there = self._there[part.number]
            if part.required:
                self.cursor.lose(np.flatnonzero(~there))
            if part.choice >= 0:
                count = chosen.get(part.choice, np.zeros(there.size, np.int64)) + there
                self.cursor.lose(np.flatnonzero(count > 1))
                chosen[part.choice] = count

    # -- columns ---------------------------------------------------------------

    def column(self, part: Part) -> pa.Array:
        """A field's column for all messages."""
        count = self.cursor.at.size
        if part.map:
            return pa.array([[]] * count, arrow_type(part.type))
        if part.many:
            return self._list(part)
        there = self._there[part.number]
        rows = np.flatnonzero(there) if part.presence else np.arange(count)
        if not rows.size:
            return pa.nulls(count, arrow_type(part.type))
        first: np.ndarray
        second: np.ndarray
        if part.number in self._spans:
            first, second = (bound[rows] for bound in self._spans[part.number])
        elif isinstance(part.node, Message) or part.node.wire == SIZED:
            first = second = self.cursor.end[rows]
        else:
            first = second = self._one.get(part.number, np.zeros(count, np.uint64))[rows]
        made = self._made(part.node, rows, first, second)
        if rows.size == count:
            return made
        return made.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _list(self, part: Part) -> pa.Array:
        owners = np.concatenate([np.empty(0, np.int64), *self._owners[part.number]])
        order = np.argsort(owners, kind="stable")
        bounds = np.zeros(self.cursor.at.size + 1, np.int32)
        np.cumsum(np.bincount(owners, minlength=self.cursor.at.size), out=bounds[1:])
        sized = isinstance(part.node, Message) or part.node.wire == SIZED
        none = np.empty(0, np.int64 if sized else np.uint64)
        first = np.concatenate([none, *(pair[0] for pair in self._many[part.number])])[order]
        second = np.concatenate([none, *(pair[1] for pair in self._many[part.number])])[order]
        values = self._made(part.node, owners[order], first, second)
        return pa.ListArray.from_arrays(pa.array(bounds), values).cast(arrow_type(part.type))

    def _made(
        self, node: Leaf | Message, rows: Ints, first: np.ndarray, second: np.ndarray
    ) -> pa.Array:
        """Values from words, or from the bounds of their bytes; `rows` are their messages."""
        if isinstance(node, Message):
            return self._messages(node, rows, first, second)
        if node.kind == "string":
            return self.cursor.texts_of(rows, first, second)
        if node.kind == "bytes":
            return self.cursor.bytes_of(first, second)
        if node.kind == "enum":
            return self._enum(node, rows, first)
        return _numbers(node, first)

    def _messages(self, node: Message, rows: Ints, start: Ints, end: Ints) -> pa.Array:
        inner = self.cursor.inside(start, end)
        found = _Found(inner, node)
        columns = [found.column(part) for part in node.parts]
        if node.instant:
            made = _instants(inner, *(column.to_numpy() for column in columns))
        else:
            fields = list(arrow_type(node.type))
            made = pa.StructArray.from_arrays(columns, fields=fields)
        self.cursor.lose(rows[~inner.finished()])
        self.extra[rows[found.extra]] = True
        return made

    def _enum(self, node: Leaf, rows: Ints, words: Words) -> pa.Array:
        numbers = np.array([number for number, _ in node.symbols], np.int32)
        value = words.astype(np.uint32).view(np.int32)
        place = np.minimum(np.searchsorted(numbers, value), numbers.size - 1)
        self.cursor.lose(rows[numbers[place] != value])
        return pa.array([name for _, name in node.symbols], pa.string()).take(pa.array(place))


def _numbers_within(counts: Ints) -> Ints:
    """For groups of these sizes, the index of each member within its group."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - counts, counts)


def _numbers(node: Leaf, words: Words) -> pa.Array:
    kind = node.kind
    if kind == "bool":
        return pa.array(words != 0)
    if kind == "uint64":
        pair = np.zeros((words.size, 2), np.uint64)
        pair[:, 0] = words
        return pa.Array.from_buffers(arrow_type(node.type), words.size,
                                     [None, pa.py_buffer(pair)])  # fmt: skip
    if kind == "uint32":
        return pa.array(words.astype(np.uint32).astype(np.int64))
    if kind == "int32":
        return pa.array(words.astype(np.uint32).view(np.int32))
    if kind == "sint32":
        return pa.array(zigzag(words & np.uint64(0xFFFFFFFF)).astype(np.int32))
    if kind == "float":
        return pa.array(words.astype(np.uint32).view(np.float32))
    if kind == "double":
        return pa.array(np.ascontiguousarray(words).view(np.float64))
    return pa.array(zigzag(words) if kind == "sint64" else words.view(np.int64))


def _instants(cursor: Cursor, seconds: np.ndarray, nanos: np.ndarray) -> pa.Array:
    ok = (nanos >= 0) & (nanos < 1_000_000_000) & (nanos % 1000 == 0)
    ok &= (seconds >= times.LEAST // 1_000_000) & (seconds <= times.GREATEST // 1_000_000)
    cursor.lose(np.flatnonzero(~ok))
    micros = np.where(ok, seconds, 0) * 1_000_000 + np.where(ok, nanos, 0).astype(np.int64) // 1000
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))
