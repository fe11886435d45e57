"""JSON as a `Format`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.formats.json.decode import check, decode
from millstream.formats.json.encode import encode

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Json:
    """The format of `format="json"`: one object per record."""

    name: ClassVar[str] = "json"

    def check(self, schema: Schema) -> None:
        check(schema)

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        return decode(values, schema)

    def encode(self, table: pa.Table) -> pa.Array:
        return encode(table)
