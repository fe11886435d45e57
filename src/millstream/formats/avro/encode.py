"""Encodes columns as Avro data: one field of all rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats.avro.schema import (
    Enum,
    Fixed,
    Items,
    Maybe,
    Node,
    Pairs,
    Plain,
    Record,
    derive_schema,
    parse_schema,
)
from millstream.formats.varints import (
    byte_lengths,
    choose,
    encode_fixed,
    encode_zigzags,
    join_columns,
    join_lists,
)
from millstream.schema import Decimal, Schema, arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE_ROWS = 1 << 14


def encode(table: pa.Table, text: str | None) -> pa.Array:
    """Encode each row as one bare datum (binary, never null).

    Raises:
        InvalidInput: a column is missing, or has a value that the schema does not allow: a
            null, a word that is not a symbol, a number out of range.
    """
    node = parse_schema(derive_schema(Schema.from_arrow(table.schema)) if text is None else text)
    lack = [name for name, _ in node.parts if name not in table.column_names]
    more = [name for name in table.column_names if name not in dict(node.parts)]
    if lack or more:
        raise InvalidInput(
            "rows need the fields of the Avro schema",
            got=f"{', '.join(lack + more)} on one side only",
            do="select the schema's columns",
        )
    kinds = pa.schema([(name, arrow_type(part.type)) for name, part in node.parts])
    try:
        rows = table.select(kinds.names).cast(kinds)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput("rows need the types of the Avro schema", got=str(error)) from None
    pieces = [_record(batch.columns, node) for batch in rows.to_batches(max_chunksize=_PIECE_ROWS)]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def _record(columns: Sequence[pa.Array], node: Record) -> pa.Array:
    parts = [_bytes(column, part, name)
             for column, (name, part) in zip(columns, node.parts, strict=True)]  # fmt: skip
    return join_columns(parts)


def _bytes(column: pa.Array, node: Node, path: str) -> pa.Array:
    """The bytes of each value."""
    if isinstance(node, Maybe):
        return _maybe(column, node, path)
    if column.null_count:
        raise InvalidInput(f"the Avro field {path} needs a value in every row",
                           got=f"{column.null_count} nulls",
                           do="make it a union with null, or filter them")  # fmt: skip
    if isinstance(node, Record):
        return _record(column.flatten(), node)
    if isinstance(node, Items):
        return _blocks(column, _bytes(column.flatten(), node.element, f"{path}[]"))
    if isinstance(node, Pairs):
        entries = column.cast(pa.list_(pa.struct([("k", column.type.key_type),
                                                  ("v", column.type.item_type)])))  # fmt: skip
        keys, values = entries.flatten().flatten()
        return _blocks(
            entries, join_columns([_sized(keys), _bytes(values, node.value, f"{path}[]")])
        )
    if isinstance(node, Enum):
        return _enum(column, node, path)
    if isinstance(node, Fixed):
        return _fixed(column, node, path)
    return _plain(column, node)


def _maybe(column: pa.Array, node: Maybe, path: str) -> pa.Array:
    null = column.is_null().to_numpy(zero_copy_only=False)
    if null.any() and node.null < 0:
        raise InvalidInput(f"the Avro field {path} needs a value in every row",
                           got=f"{int(null.sum())} nulls")  # fmt: skip
    places = np.where(null, node.null, 0 if node.null else 1).astype(np.int64)
    heads = encode_zigzags(places)
    if null.all():
        return heads
    inner = _bytes(column.drop_null() if null.any() else column, node.inner, path)
    if null.any():
        inner = inner.take(pa.array(np.cumsum(~null) - 1, mask=null)).fill_null(b"")
    return join_columns([heads, inner])


def _plain(column: pa.Array, node: Plain) -> pa.Array:
    kind = node.kind
    if kind in ("int", "long"):
        wide = column.view(pa.int32()) if kind == "int" else column.view(pa.int64())
        values = wide.to_numpy(zero_copy_only=False).astype(np.int64)
        if node.unit > 1:
            values = _ticks(values, node.unit)
        return encode_zigzags(values)
    if kind == "string":
        return _sized(column)
    if kind == "bytes":
        return _sized(_unscaled(column) if isinstance(node.type, Decimal) else column)
    if kind == "boolean":
        return encode_fixed(column.to_numpy(zero_copy_only=False).astype(np.uint8))
    return encode_fixed(column.to_numpy(zero_copy_only=False))


def _ticks(micros: np.ndarray, unit: int) -> np.ndarray:
    ticks = micros // unit
    if (ticks * unit != micros).any():
        raise InvalidInput("timestamp-millis needs times of whole milliseconds",
                           got="a finer one", do="round it, or use timestamp-micros")  # fmt: skip
    return ticks


def _sized(column: pa.Array) -> pa.Array:
    raw = column.cast(pa.binary())
    return join_columns([encode_zigzags(byte_lengths(raw)), raw])


def _unscaled(column: pa.Array) -> pa.Array:
    """Decimals as big-endian integers of 8 bytes, or of 16 for more than 18 digits."""
    data = np.frombuffer(column.buffers()[1], np.uint8, 16 * len(column), 16 * column.offset)
    size = 8 if column.type.precision <= 18 else 16
    return encode_fixed(data.reshape(-1, 16)[:, :size][:, ::-1].copy().view(f"V{size}").ravel())


def _fixed(column: pa.Array, node: Fixed, path: str) -> pa.Array:
    if not isinstance(node.type, Decimal):
        if (byte_lengths(column) != node.size).any():
            raise InvalidInput(f"the Avro field {path} needs {node.size} bytes in every value",
                               got="values of another size")  # fmt: skip
        return column.cast(pa.binary())
    whole = [int(value.scaleb(node.type.scale)) for value in column.to_pylist()]
    try:
        made = [value.to_bytes(node.size, "big", signed=True) for value in whole]
    except OverflowError:
        raise InvalidInput(f"the Avro field {path} needs decimals of {node.size} bytes",
                           got="a larger one") from None  # fmt: skip
    return pa.array(made, pa.binary())


def _enum(column: pa.Array, node: Enum, path: str) -> pa.Array:
    places = pc.index_in(column, pa.array(node.symbols, pa.string()))
    if places.null_count:
        other = column.filter(places.is_null())[0].as_py()
        raise InvalidInput(f"the Avro field {path} needs one of {', '.join(node.symbols)}",
                           got=repr(other))  # fmt: skip
    return encode_zigzags(places.to_numpy().astype(np.int64))


def _blocks(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Each list as one block and the final zero; an empty list is only the zero."""
    count = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    body = join_columns(
        [encode_zigzags(count), join_lists(lists, elements), pa.scalar(b"\0", pa.binary())]
    )
    return choose(count > 0, body, b"\0")
