"""Avro as a `Format`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidSpec
from millstream.formats.avro.schema import derive_schema, parse_schema, row_schema
from millstream.formats.framing import EITHER, Framing

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Avro:
    """The format of `format="avro"`: one datum of a record schema per record.

    `text` is the schema as JSON; without it, rows are written with a schema derived from their
    columns (each a union with null).
    """

    name: ClassVar[str] = "avro"
    text: str | None = None
    framing: Framing = EITHER

    def row_schema(self) -> Schema | None:
        """The columns of its rows; None without a schema."""
        return None if self.text is None else row_schema(self.text)

    def check(self, schema: Schema) -> None:
        if self.text is None:
            derive_schema(schema)
        elif row_schema(self.text) != schema:
            raise InvalidSpec("rows of an Avro topic need the columns of its schema",
                              got=schema.ddl(), do=row_schema(self.text).ddl())  # fmt: skip

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        from millstream.formats.avro.decode import are_data, decode

        self.check(schema)
        node = parse_schema(self.text if self.text is not None else derive_schema(schema))
        return self.framing.decoded(
            values,
            lambda bodies: decode(bodies, schema, node),
            bare=lambda whole: are_data(whole, node),
        )

    def encode(self, table: pa.Table) -> pa.Array:
        from millstream.formats.avro.encode import encode

        return self.framing.encoded(encode(table, self.text))
