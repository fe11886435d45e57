"""Encodes columns as Protobuf messages: one field of all rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats.protobuf.schema import (
    FIXED32,
    SIZED,
    VARINT,
    Leaf,
    Message,
    Part,
    parse_message,
)
from millstream.formats.varints import (
    byte_lengths,
    choose,
    encode_fixed,
    encode_varints,
    join_columns,
    join_lists,
)
from millstream.schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE_ROWS = 1 << 14


def encode(table: pa.Table, files: bytes, message: str) -> pa.Array:
    """Encode each row as one bare message (binary, never null).

    Raises:
        InvalidInput: a column is missing, or has a value that its field cannot hold: a null in
            a field without presence, a word that is not a value of its enum.
    """
    node = parse_message(files, message)
    names = [part.name for part in node.parts]
    odd = set(names) ^ set(table.column_names)
    if odd:
        raise InvalidInput(f"rows need the fields of {message}",
                           got=f"{', '.join(sorted(odd))} on one side only",
                           do="select the message's fields")  # fmt: skip
    kinds = pa.schema([(part.name, arrow_type(part.type)) for part in node.parts])
    try:
        rows = table.select(names).cast(kinds)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"rows need the types of {message}", got=str(error)) from None
    pieces = [_message(batch.columns, node) for batch in rows.to_batches(max_chunksize=_PIECE_ROWS)]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _message(columns: Sequence[pa.Array], node: Message) -> pa.Array:
    return join_columns([_field(c, part) for c, part in zip(columns, node.parts, strict=True)])


def _field(column: pa.Array, part: Part) -> pa.Array:
    """The bytes of a field in each row; empty where it is absent."""
    null = column.is_null().to_numpy(zero_copy_only=False)
    if null.any() and (part.required or not part.presence):
        raise InvalidInput(f"the field {part.name} needs a value in every row",
                           got=f"{int(null.sum())} nulls",
                           do="declare it optional, or filter them")  # fmt: skip
    if part.map or part.many:
        return _repeated(column, part)
    if null.all():
        return pa.array([b""] * len(column), pa.binary())
    there = column.drop_null() if null.any() else column
    made = _tagged(part, _value(there, part))
    if not part.presence:
        made = choose(_not_zero(there), made, b"")
    if null.any():
        made = made.take(pa.array(np.cumsum(~null) - 1, mask=null)).fill_null(b"")
    return made


def _repeated(column: pa.Array, part: Part) -> pa.Array:
    lists = column
    if part.map:
        pair = pa.struct([("k", column.type.key_type), ("v", column.type.item_type)])
        lists = column.cast(pa.list_(pair))
    elements = lists.flatten()
    if elements.null_count:
        raise InvalidInput(f"the field {part.name} needs elements that are not null",
                           got=f"{elements.null_count} nulls")  # fmt: skip
    if isinstance(part.node, Leaf) and part.node.wire != SIZED:
        body = join_lists(lists, _value(elements, part))
        made = join_columns(
            [_tag(part.number, SIZED), encode_varints(byte_lengths(body).astype(np.uint64)), body]
        )
        return choose(byte_lengths(body) > 0, made, b"")
    return join_lists(lists, _tagged(part, _value(elements, part)))


def _tag(number: int, wire: int) -> pa.Scalar:
    return pa.scalar(
        encode_varints(np.array([number << 3 | wire], np.uint64))[0].as_py(), pa.binary()
    )


def _tagged(part: Part, values: pa.Array) -> pa.Array:
    wire = part.node.wire if isinstance(part.node, Leaf) else SIZED
    if wire != SIZED:
        return join_columns([_tag(part.number, wire), values])
    sizes = encode_varints(byte_lengths(values).astype(np.uint64))
    return join_columns([_tag(part.number, wire), sizes, values])


def _not_zero(column: pa.Array) -> np.ndarray:
    """Which values are written: those that differ from the default of an absent field."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return np.asarray(byte_lengths(column.cast(pa.binary())) > 0)
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        return np.array([bool(value) for value in column.to_pylist()], np.bool_)
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray((values != 0) | np.signbit(values))


def _value(column: pa.Array, part: Part) -> pa.Array:
    """The bytes of non-null values, without tags and sizes."""
    node = part.node
    if isinstance(node, Message):
        columns = _instants(column) if node.instant else column.flatten()
        return _message(columns, node)
    if node.kind == "enum":
        return _enum(column, node, part.name)
    if node.wire == SIZED:
        return column.cast(pa.binary())
    if node.kind in ("float", "double"):
        return encode_fixed(column.to_numpy(zero_copy_only=False))
    words = _words(column, node, part.name)
    if node.wire == VARINT:
        return encode_varints(words)
    return encode_fixed(words.astype(np.uint32) if node.wire == FIXED32 else words)


def _words(column: pa.Array, node: Leaf, name: str) -> np.ndarray:
    if node.kind == "uint64":
        numbers = [int(value) for value in column.to_pylist()]
        least, greatest = 0, 2**64 - 1
        if numbers and (min(numbers) < least or max(numbers) > greatest):
            raise _beyond(name, "0 to 2^64 - 1")
        return np.array(numbers, np.uint64)
    values = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if node.kind == "uint32" and values.size and (values.min() < 0 or values.max() >= 2**32):
        raise _beyond(name, "0 to 2^32 - 1")
    if node.kind in ("sint32", "sint64"):
        values = (values << 1) ^ (values >> 63)
    words: np.ndarray = values.view(np.uint64)
    return words


def _beyond(name: str, bounds: str) -> InvalidInput:
    return InvalidInput(f"the field {name} needs numbers in {bounds}", got="one beyond")


def _enum(column: pa.Array, node: Leaf, name: str) -> pa.Array:
    numbers = np.array([number for number, _ in node.symbols], np.int64)
    words = [word for _, word in node.symbols]
    places = pc.index_in(column, pa.array(words, pa.string()))
    if places.null_count:
        other = column.filter(places.is_null())[0].as_py()
        raise InvalidInput(f"the field {name} needs one of {', '.join(words)}", got=repr(other))
    return encode_varints(numbers[places.to_numpy()].view(np.uint64))


def _instants(column: pa.Array) -> list[pa.Array]:
    micros = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    seconds, part = np.divmod(micros, 1_000_000)
    return [pa.array(seconds), pa.array((part * 1000).astype(np.int32))]
