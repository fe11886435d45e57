"""CSV as a `Format`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.formats.csv.exact import check_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Csv:
    """The format of `format="csv"`: one row per record, with cells in the schema's order.

    With a `header` (the first line of a file), cells are found by name; names outside the schema
    are ignored and counted.
    """

    name: ClassVar[str] = "csv"
    header: tuple[str, ...] | None = None

    def check(self, schema: Schema) -> None:
        check_schema(schema)

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        from millstream.formats.csv.decode import decode

        self.check(schema)
        return decode(values, schema, self.header)

    def encode(self, table: pa.Table) -> pa.Array:
        from millstream.formats.csv.encode import encode

        return encode(table)
