"""The shape of a record: the bytes that are the same in all records of one producer.

    {"auction":  17  ,"channel":"  apple  ","ts":  1767225600000  }
    └─ literal ─┘ slot └─ literal ─┘ slot └ literal ┘ slot └ literal

A producer writes names, order and blanks in the same way in every record. A shape is learned from a
record that the exact path has read: the bytes between its scalar values (literals) and the
positions of the values (slots). A record that matches all literals and has the same number of
quotes has the same structure: its names, duplicates, extra fields and nesting were checked when the
shape was learned, and only its slots remain to be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from millstream.schema import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.formats.block import Block, Flags, Ints
    from millstream.schema import Field, Type

_TOKEN = re.compile(
    rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^ \t\r\n{}\[\],:"]++)', re.DOTALL
)
_BLANKS = b" \t\r\n"
_MOST_SLOTS = 512
_MOST_TEXT = 1 << 14
"""The maximum size of a shape's literals: a comparison takes a step per 32 bytes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of a scalar value; `type` is None if it is not in the schema."""

    quoted: bool
    type: Type | None
    nullable: bool


@dataclass(frozen=True, slots=True)
class Anchor:
    """How a literal is found: the record's mark `number` is `lead` bytes after its start."""

    number: int
    lead: int


@dataclass(frozen=True, slots=True)
class Literal:
    """Constant bytes, found by their first quote or the end of their first name.

    A literal without an anchor is the first or the last, found by the record's bounds.
    """

    text: bytes
    quote: Anchor | None
    name: Anchor | None


Source = int | None | tuple["Source", ...]
"""Where a column comes from: a slot, None (missing), or the sources of a struct's fields."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The alternating literals and slots of a record, from the first literal to the last."""

    literals: tuple[Literal, ...]
    slots: tuple[Slot, ...]
    sources: tuple[Source, ...]
    quotes: int
    names: int | None
    """The number of names; None if there are blanks between names and colons."""
    controls: int
    extra: bool


class _Unfit(Exception):
    """The record has no fixed shape: it contains arrays, maps or escaped names."""


@dataclass(slots=True)
class _Walk:
    """One pass over the tokens of a record that is known to be valid."""

    text: bytes
    tokens: Iterator[tuple[int, int]]
    spans: list[tuple[int, int]] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    extra: bool = False

    def take(self) -> tuple[bytes, int, int]:
        start, end = next(self.tokens)
        return self.text[start:end], start, end

    def object(self, fields: tuple[Field, ...], *, known: bool) -> tuple[Source, ...]:
        """The sources of an object's fields; the opening brace is already consumed."""
        by_name = {part.name.encode(): place for place, part in enumerate(fields)}
        sources: list[Source] = [None] * len(fields)
        token, _, _ = self.take()
        while token != b"}":
            if token == b",":
                token, _, _ = self.take()
            if b"\\" in token:
                raise _Unfit
            place = by_name.get(token[1:-1]) if known else None
            self.extra |= known and place is None
            self.take()
            source = self.value(None if place is None else fields[place])
            if place is not None:
                sources[place] = source
            token, _, _ = self.take()
        return tuple(sources)

    def value(self, wanted: Field | None) -> Source:
        token, start, end = self.take()
        if token == b"{":
            if wanted is None:
                self.object((), known=False)
                return None
            if not isinstance(wanted.type, Struct):
                raise _Unfit
            return self.object(wanted.type.fields, known=True)
        if token == b"[" or len(self.slots) == _MOST_SLOTS:
            raise _Unfit
        quoted = token[:1] == b'"'
        self.spans.append((start + quoted, end - quoted))
        self.slots.append(
            Slot(quoted, wanted.type if wanted else None, wanted.nullable if wanted else True)
        )
        return len(self.slots) - 1


def learn(text: bytes, fields: tuple[Field, ...]) -> Shape | None:
    """Return the shape of a record that the exact path has accepted; None if it has none."""
    tokens = (found.span(1) for found in _TOKEN.finditer(text, 0, len(text.rstrip(_BLANKS))))
    walk = _Walk(text, tokens)
    walk.take()
    try:
        sources = walk.object(fields, known=True)
    except _Unfit:
        return None
    if len(text) - sum(end - start for start, end in walk.spans) > _MOST_TEXT:
        return None
    literals: list[Literal] = []
    at = quotes = names = 0
    for start, end in [*walk.spans, (len(text), len(text))]:
        part = text[at:start]
        literals.append(Literal(part, _anchor(part, b'"', quotes), _anchor(part, b'":', names)))
        quotes += part.count(b'"')
        names += part.count(b'":')
        at = end
    return Shape(
        literals=tuple(literals),
        slots=tuple(walk.slots),
        sources=sources,
        quotes=quotes,
        names=names if all(literal.name for literal in literals[:-1]) else None,
        controls=sum(byte < 0x20 for literal in literals for byte in literal.text),
        extra=walk.extra,
    )


def _anchor(text: bytes, mark: bytes, before: int) -> Anchor | None:
    lead = text.find(mark)
    return None if lead < 0 else Anchor(before, lead)


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of a block that match a shape, and the bounds of each slot in them."""

    rows: Ints
    bounds: tuple[tuple[Ints, Ints], ...]


def match(block: Block, shape: Shape, rows: Ints | None) -> Match:
    """Return those of the rows (all if None) that match the shape.

    Slots contain no unescaped quote and, if quoted, no control character; they are not checked
    otherwise.
    """
    if rows is None:
        whole = _match_all(block, shape)
        if whole is not None:
            return whole
        rows = block.rows_with(shape.quotes)
    else:
        rows = rows[block.quote_counts[1][rows] == shape.quotes]
    start, end = block.start[rows], block.end[rows]
    anchors = [literal.quote for literal in shape.literals]
    quotes = block.quotes_of(rows, shape.quotes)
    places, ok = _literals(block, shape, (start, end), anchors, quotes)
    bounds = _bounds(shape, places)
    if not ok.all():
        rows, bounds = rows[ok], [(low[ok], high[ok]) for low, high in bounds]
    return Match(rows, tuple(bounds))


def _match_all(block: Block, shape: Shape) -> Match | None:
    """The match if every row of the block has the shape, found by a third of the marks.

    It searches for names instead of all quotes. If every row contains the literals, and the
    block has no more quotes than the literals, then no slot contains a quote.
    """
    if shape.names is None or block.escapes.size:
        return None
    names = block.by_row(block.names, shape.names)
    if names is None or np.count_nonzero(block.quoting) != block.rows * shape.quotes:
        return None
    anchors = [literal.name for literal in shape.literals]
    places, ok = _literals(block, shape, (block.start, block.end), anchors, names)
    return Match(np.arange(block.rows), tuple(_bounds(shape, places))) if ok.all() else None


def _bounds(shape: Shape, places: list[Ints]) -> list[tuple[Ints, Ints]]:
    return [
        (before + len(literal.text), after)
        for literal, before, after in zip(shape.literals, places, places[1:], strict=False)
    ]


def _literals(
    block: Block,
    shape: Shape,
    rows: tuple[Ints, Ints],
    anchors: list[Anchor | None],
    marks: Ints,
) -> tuple[list[Ints], Flags]:
    """The start of each literal, and whether all of them match, in order, up to the end."""
    start, end = rows
    places: list[Ints] = []
    ok = np.ones(start.size, np.bool_)
    least = start
    for literal, anchor in zip(shape.literals, anchors, strict=True):
        if not places:
            at = start
        elif anchor is not None:
            at = marks[:, anchor.number] - anchor.lead
        else:
            at = end - len(literal.text)
        ok &= at >= least
        least = at + len(literal.text)
        places.append(at)
    ok &= least == end
    for literal, at in zip(shape.literals, places, strict=True):
        ok &= equal(block, at, literal.text, within=ok)
    if block.controls.size or shape.controls:
        controls = block.controls
        ok &= np.searchsorted(controls, end) - np.searchsorted(controls, start) == shape.controls
    return places, ok


def equal(block: Block, at: Ints, text: bytes, *, within: Flags) -> Flags:
    """Whether the text is at each position; only positions `within` are compared."""
    if not within.all():
        sure = np.flatnonzero(within)
        if not sure.size:
            return within
        at = np.where(within, at, at[sure[0]])
    if len(text) == 1:
        return np.asarray(block.bytes[at] == text[0])
    same = np.ones(at.size, np.bool_)
    for step in range(0, len(text), 32):
        part = text[step : step + 32]
        words = block.wide(at + step) if len(part) > 8 else (block.word(at + step),)
        for here, word in zip(range(0, len(part), 8), words, strict=False):
            eight = part[here : here + 8]
            wanted = np.uint64(int.from_bytes(eight, "little"))
            mask = np.uint64((1 << 8 * len(eight)) - 1)
            same &= (word == wanted) if len(eight) == 8 else ((word & mask) == wanted)
    return same
