"""The shape of a record: what stays the same in records of one maker.

    {"auction":  17  ,"channel":"  apple  ","ts":  1767225600000  }
    └─ literal ─┘ slot └─ literal ─┘ slot └ literal ┘ slot └ literal

Producers write names, order and blanks alike in every record. A shape is learned from
one record that the exact path has read: the bytes between its scalar values (literals)
and the values' places (slots). A record whose bytes match all literals, with the same
number of quotes, has the same structure, so names, duplicates, extra fields and nesting
were settled when the shape was learned; what is left is to read its slots strictly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from millstream.schema import Struct

if TYPE_CHECKING:
    from millstream.formats.json.block import Block, Flags, Places
    from millstream.schema import Field, Type

_TOKEN = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^ \t\r\n{}\[\],:"]+)', re.DOTALL)
_MOST_SLOTS = 512


@dataclass(frozen=True, slots=True)
class Slot:
    """A scalar value's place: `type` is None where the schema does not ask for it."""

    quoted: bool
    type: Type | None
    nullable: bool


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes that never change; `quote` is the number of quotes before them in the record."""

    text: bytes
    quote: int
    lead: int | None
    """Where the first quote stands in `text`, None if there is none."""


Source = int | None | tuple["Source", ...]
"""Where a column comes from: a slot, nowhere (missing), or the parts of a struct."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A record's literals and slots, in turn; begins and ends with a literal."""

    literals: tuple[Literal, ...]
    slots: tuple[Slot, ...]
    sources: tuple[Source, ...]
    quotes: int
    controls: int
    extra: bool


class _Unfit(Exception):
    """The record has no fixed shape: it holds arrays, maps or escaped names."""


@dataclass(slots=True)
class _Walk:
    """One pass over the tokens of a record that is known to be JSON and to fit."""

    text: bytes
    tokens: list[tuple[int, int]]
    next: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    extra: bool = False

    def take(self) -> tuple[bytes, int, int]:
        start, end = self.tokens[self.next]
        self.next += 1
        return self.text[start:end], start, end

    def object(self, fields: tuple[Field, ...], *, known: bool) -> tuple[Source, ...]:
        """The sources of an object's fields; the opening brace has been taken."""
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
    """The shape of a record that the exact path has accepted; None if it has none."""
    tokens = [found.span(1) for found in _TOKEN.finditer(text)]
    walk = _Walk(text, tokens, next=1)
    try:
        sources = walk.object(fields, known=True)
    except _Unfit:
        return None
    literals: list[Literal] = []
    at = quotes = 0
    for start, end in [*walk.spans, (len(text), len(text))]:
        literal = text[at:start]
        lead = literal.find(b'"')
        literals.append(Literal(literal, quotes, None if lead < 0 else lead))
        quotes += literal.count(b'"')
        at = end
    controls = sum(byte < 0x20 for literal in literals for byte in literal.text)
    return Shape(tuple(literals), tuple(walk.slots), sources, quotes, controls, walk.extra)


@dataclass(frozen=True, slots=True)
class Match:
    """Rows of a block that have a shape, and the bounds of each slot in them."""

    rows: Places
    bounds: tuple[tuple[Places, Places], ...]


def match(block: Block, shape: Shape, rows: Places | None) -> Match:
    """Those of the rows (all if None) whose bytes have the shape.

    Slots hold no quote that bounds a string and, if quoted, no control character; they
    are not otherwise read.
    """
    if rows is None and not block.every_row_has(shape.quotes):
        rows = block.rows_with(shape.quotes)
    elif rows is not None:
        rows = rows[block.quote_counts[1][rows] == shape.quotes]
    start = block.start if rows is None else block.start[rows]
    end = block.end if rows is None else block.end[rows]
    places, ok = _literals(block, shape, start, end, block.quotes_of(rows, shape.quotes))
    if block.controls.size or shape.controls:
        marks = block.controls
        ok &= np.searchsorted(marks, end) - np.searchsorted(marks, start) == shape.controls
    if rows is None:
        rows = np.arange(block.rows)
    bounds = [
        (before + len(literal.text), after)
        for literal, before, after in zip(shape.literals, places, places[1:], strict=False)
    ]
    if not ok.all():
        rows, bounds = rows[ok], [(low[ok], high[ok]) for low, high in bounds]
    return Match(rows, tuple(bounds))


def _literals(
    block: Block, shape: Shape, start: Places, end: Places, quotes: Places
) -> tuple[list[Places], Flags]:
    """Where each literal begins, and whether all of them stand there in turn."""
    places: list[Places] = []
    ok = np.ones(start.size, np.bool_)
    least = start
    for number, literal in enumerate(shape.literals):
        if number == 0:
            at = start
        elif literal.lead is not None:
            at = quotes[:, literal.quote] - literal.lead
        else:
            at = end - len(literal.text)
        after = at + len(literal.text)
        ok &= (at >= least) & (after <= end)
        ok &= equal(block, at, literal.text, within=ok)
        least = after
        places.append(at)
    return places, ok & (least == end)


def equal(block: Block, at: Places, text: bytes, *, within: Flags) -> Flags:
    """Whether the bytes at each place are the text; only places `within` are looked at."""
    if not within.all():
        sure = np.flatnonzero(within)
        if not sure.size:
            return within
        at = np.where(within, at, at[sure[0]])
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
