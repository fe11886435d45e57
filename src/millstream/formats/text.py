"""Text and bytes: the record's value is the row's only column, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidInput, InvalidSpec
from millstream.schema import Scalar

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Text:
    """The format of `format="text"`: the whole value is UTF-8; other values are bad rows."""

    name: ClassVar[str] = "text"

    def check(self, schema: Schema) -> None:
        _need_one(schema, "text", "string")

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        import numpy as np
        import pyarrow as pa

        self.check(schema)
        column = _whole(values)
        wrong: dict[int, str] = {}
        good = np.arange(len(column))
        try:
            texts = column.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = {number: reason for number, value in enumerate(column.to_pylist())
                     if (reason := _utf8_error(value))}  # fmt: skip
            good = np.delete(good, list(wrong))
            texts = column.take(pa.array(good)).cast(pa.string())
        return _decoded(texts, good, wrong, schema)

    def encode(self, table: pa.Table) -> pa.Array:
        return _only_column(table, "text", "string")


@dataclass(frozen=True, slots=True)
class Bytes:
    """The format of `format="bytes"`: any value."""

    name: ClassVar[str] = "bytes"

    def check(self, schema: Schema) -> None:
        _need_one(schema, "bytes", "binary")

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        import numpy as np

        self.check(schema)
        column = _whole(values)
        return _decoded(column, np.arange(len(column)), {}, schema)

    def encode(self, table: pa.Table) -> pa.Array:
        return _only_column(table, "bytes", "binary")


def _need_one(schema: Schema, name: str, type_: str) -> None:
    if len(schema) != 1 or schema.fields[0].type != Scalar(type_):
        raise InvalidSpec(
            f'format="{name}" needs a schema of one {type_} column',
            got=schema.ddl(),
            do=f'write schema="value {type_}", or leave it out',
        )


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _utf8_error(value: bytes | None) -> str | None:
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return f"not text: invalid UTF-8 at byte {error.start + 1}"
    return None


def _decoded(made: pa.Array, good: np.ndarray, wrong: dict[int, str], schema: Schema) -> Decoded:
    """The rows of `good`; null values are bad rows as well."""
    import numpy as np
    import pyarrow as pa

    from millstream.formats.decoding import NULL_VALUE
    from millstream.formats.spec import Decoded

    if made.null_count:
        valid = made.is_valid().to_numpy(zero_copy_only=False)
        wrong = wrong | dict.fromkeys(good[~valid].tolist(), NULL_VALUE)
        made, good = made.drop_null(), good[valid]
    bad = np.array(sorted(wrong), np.int64)
    table = pa.Table.from_arrays([made], schema=schema.arrow())
    return Decoded(table, good, bad, [wrong[number] for number in bad.tolist()], 0)


def _only_column(table: pa.Table, name: str, type_: str) -> pa.Array:
    """The only column as record values; nulls cannot be written in this format."""
    import pyarrow as pa

    from millstream.schema import Schema

    _need_one(Schema.from_arrow(table.schema), name, type_)
    column = table.column(0).combine_chunks()
    if column.null_count:
        raise InvalidInput(
            f'format="{name}" needs a value in every row',
            got=f"{column.null_count} nulls in the column {table.column_names[0]!r}",
            do=f'filter them: where("{table.column_names[0]} is not null")',
        )
    return column.cast(pa.binary())
