"""The framing of binary records: none, or Confluent's zero byte and schema id.

In Protobuf a message index follows: the path of the message in the schema's file.

`framing=` is `"bare"`, `"confluent"` or `"confluent:7"` (only that id). Without it, each value is
tried both ways; a value that is valid in neither way, or in both, is a bad row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput, InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pyarrow as pa

    from millstream.formats.spec import Decoded

Path = tuple[int, ...]
_HEAD = 5
_VARINT = 10
_DEEPEST = 100
_LOOK = _HEAD + (1 + _DEEPEST) * _VARINT
_BOTH = 'may be framed or bare; set framing="confluent" or framing="bare"'
_WORDS = '"confluent", "confluent:<schema id>" or "bare"'


class NotFramed(ValueError):
    """A value has no frame, or not the expected one; the message says why."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How records are framed: `kind` is confluent, bare or either; `id` is the only schema id."""

    kind: str = "either"
    id: int | None = None

    @classmethod
    def of(cls, text: str | None) -> Framing:
        """Parse `framing=`.

        Raises:
            InvalidSpec: it is none of the three forms.
        """
        if text is None:
            return cls()
        word, _, number = text.partition(":") if isinstance(text, str) else ("", "", "")
        if word == "bare" and text == "bare":
            return cls("bare")
        if word == "confluent" and (text == word or (number.isdecimal() and int(number) < 2**31)):
            return cls("confluent", int(number) if number else None)
        raise InvalidSpec(f"framing needs {_WORDS}", got=repr(text))

    def decoded(
        self,
        values: pa.Array | pa.ChunkedArray,
        body: Callable[[pa.Array], Decoded],
        *,
        bare: Callable[[pa.Array], np.ndarray] | None = None,
        index: Path = (),
    ) -> Decoded:
        """Decode framed values with the decoder of bare records.

        `bare` returns which whole values are valid records; `index` is the path of the message,
        if the format writes one between the schema id and the record.
        """
        import pyarrow as pa

        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if self.kind == "bare":
            return body(whole)
        framed, heads, wrong = self._framed(whole, index)
        made = _moved(body(_without_heads(whole.take(pa.array(framed)), heads)), framed)
        refused = dict(zip(made.bad.tolist(), made.reasons, strict=True))
        if self.kind == "confluent":
            return _with_bad(made, wrong | refused)
        return _either(made, refused, whole, body, bare)

    def _framed(
        self, values: pa.Array, index: Path
    ) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Which values begin with a frame, its length, and why the others do not."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        after = encode_index(index)
        size = _HEAD + len(after)
        heads = pc.binary_slice(values, 0, size)
        good = pc.equal(pc.binary_length(heads), size)
        first = pc.binary_slice(heads, 0, 1 if self.id is None else _HEAD)
        wanted = b"\0" if self.id is None else b"\0" + self.id.to_bytes(4, "big")
        good = pc.and_(good, pc.equal(first, pa.scalar(wanted, values.type)))
        if after:
            last = pc.binary_slice(heads, _HEAD, size)
            good = pc.and_(good, pc.equal(last, pa.scalar(after, values.type)))
        flags = pc.fill_null(good, fill_value=False).to_numpy(zero_copy_only=False).copy()
        sizes = np.full(len(values), size)
        others = np.flatnonzero(~flags)
        starts = pc.binary_slice(values, 0, _LOOK).take(pa.array(others)).to_pylist()
        wrong: dict[int, str] = {}
        for place, head in zip(others.tolist(), starts, strict=True):
            try:
                sizes[place] = self._size(head, index)
            except NotFramed as error:
                wrong[place] = str(error)
            else:
                flags[place] = True
        return np.flatnonzero(flags), sizes[flags], wrong

    def _size(self, head: bytes | None, index: Path) -> int:
        """Return the length of a value's frame.

        Raises:
            NotFramed: it has no frame, or that of other records; the message says why.
        """
        from millstream.formats.decoding import NULL_VALUE

        if head is None:
            raise NotFramed(NULL_VALUE)
        if len(head) < _HEAD or head[0]:
            got = head[:_HEAD].hex() or "nothing"
            raise NotFramed(f"not framed: needs a zero byte and four of a schema id; got {got}")
        number = int.from_bytes(head[1:_HEAD], "big")
        if self.id not in (None, number):
            raise NotFramed(f"needs the schema id {self.id}; got {number}")
        if not index:
            return _HEAD
        found, size = _index(head[_HEAD:])
        if found != index:
            raise NotFramed(f"needs the message index {list(index)}; got {list(found)}")
        return _HEAD + size

    def encoded(self, values: pa.Array, index: Path = ()) -> pa.Array:
        """Prepend the frame to record values; this needs the schema id.

        Raises:
            InvalidInput: the framing needs an id.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind == "confluent" and self.id is None:
            raise InvalidInput('writing needs the schema id in framing="confluent:<id>"',
                               got='framing="confluent"')  # fmt: skip
        if self.id is None:
            return values
        head = pa.scalar(b"\0" + self.id.to_bytes(4, "big") + encode_index(index), pa.binary())
        return pc.binary_join_element_wise(head, values, pa.scalar(b"", pa.binary()))


def encode_index(index: Path) -> bytes:
    """Encode a message index as Confluent does: its length and its numbers as zigzag varints.
    The index of the file's first message is a single zero byte."""
    if index in ((), (0,)):
        return b"\0" * len(index)
    made = bytearray()
    for number in (len(index), *index):
        rest = number << 1
        while rest > 0x7F:
            made.append(rest & 0x7F | 0x80)
            rest >>= 7
        made.append(rest)
    return bytes(made)


def _index(raw: bytes) -> tuple[Path, int]:
    """The message index at the start of some bytes, and its length."""
    count, at = _number(raw, 0)
    if not count:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise NotFramed(f"not framed: needs a message index after the schema id; "
                        f"got one of {count} numbers")  # fmt: skip
    found = []
    for _ in range(count):
        number, at = _number(raw, at)
        found.append(number)
    return tuple(found), at


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """The zigzag varint at a position, and the position after it."""
    value = 0
    for place, byte in enumerate(raw[at : at + _VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    got = raw[at : at + _VARINT].hex() or "nothing"
    raise NotFramed(f"not framed: needs a message index after the schema id; got {got}")


def _without_heads(values: pa.Array, heads: np.ndarray) -> pa.Array:
    """Remove the first bytes of values; `heads` is the number of bytes for each."""
    import numpy as np
    import pyarrow as pa

    from millstream.formats.block import slice_binary

    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets, data = values.buffers()
    if not len(values):
        return values
    found = np.frombuffer(offsets, width, len(values) + 1, values.offset * width().itemsize)
    bounds = found.astype(np.int64)
    return slice_binary(data, bounds[:-1] + heads, bounds[1:], values.type)


def _moved(made: Decoded, places: np.ndarray) -> Decoded:
    """A decoded part with the indexes of its values in the whole input."""
    return replace(made, good=places[made.good], bad=places[made.bad])


def _with_bad(made: Decoded, wrong: dict[int, str]) -> Decoded:
    """The good rows, with other bad ones."""
    import numpy as np

    bad = np.array(sorted(wrong), np.int64)
    return replace(made, bad=bad, reasons=[wrong[number] for number in bad.tolist()])


def _either(
    framed: Decoded,
    refused: dict[int, str],
    whole: pa.Array,
    body: Callable[[pa.Array], Decoded],
    bare: Callable[[pa.Array], np.ndarray] | None,
) -> Decoded:
    """Decode values that are valid either framed or bare; refuse those that are both."""
    import numpy as np
    import pyarrow as pa

    rest = np.setdiff1d(np.arange(len(whole)), framed.good)
    other = _moved(body(whole.take(pa.array(rest))), rest)
    reasons = dict(zip(other.bad.tolist(), other.reasons, strict=True))
    kept = {number: refused.get(number) or reason for number, reason in reasons.items()}
    if bare is not None and framed.good.size:
        both = bare(whole.take(pa.array(framed.good)))
        kept |= dict.fromkeys(framed.good[both].tolist(), _BOTH)
        if both.any():
            table = framed.table.filter(pa.array(~both))
            framed = replace(framed, table=table, good=framed.good[~both])
    return _together(_with_bad(framed, {}), _with_bad(other, kept))


def _together(framed: Decoded, bare: Decoded) -> Decoded:
    """Combine two parts of one input, in input order."""
    import numpy as np
    import pyarrow as pa

    if not framed.good.size:
        return bare
    good = np.concatenate([framed.good, bare.good])
    table = pa.concat_tables([framed.table, bare.table])
    if bare.good.size:
        order = np.argsort(good, kind="stable")
        good, table = good[order], table.take(pa.array(order))
    return replace(bare, table=table, good=good, extra=framed.extra + bare.extra)


EITHER = Framing()
BARE = Framing("bare")
