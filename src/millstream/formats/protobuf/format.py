"""Protobuf as a `Format`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import InvalidSpec
from millstream.formats.framing import BARE, Framing
from millstream.formats.protobuf.schema import message_index, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class Protobuf:
    """The format of `format="protobuf"`: one message per record.

    `files` is a descriptor set from `protoc --include_imports --descriptor_set_out`.
    """

    name: ClassVar[str] = "protobuf"
    files: bytes
    message: str
    framing: Framing = BARE

    def row_schema(self) -> Schema:
        return row_schema(self.files, self.message)

    def check(self, schema: Schema) -> None:
        if self.row_schema() != schema:
            raise InvalidSpec(f"rows of {self.message} need its fields as columns",
                              got=schema.ddl(), do=self.row_schema().ddl())  # fmt: skip

    def decode(self, values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
        from millstream.formats.protobuf.decode import decode

        self.check(schema)
        return self.framing.decoded(
            values,
            lambda bodies: decode(bodies, schema, self.files, self.message),
            index=message_index(self.files, self.message),
        )

    def encode(self, table: pa.Table) -> pa.Array:
        from millstream.formats.protobuf.encode import encode

        index = message_index(self.files, self.message)
        return self.framing.encoded(encode(table, self.files, self.message), index)
