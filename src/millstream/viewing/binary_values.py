"""Avro and Protobuf values as JSON, decoded with the schema of a job that uses the topic.

A job stores the formats of its topics in its run log, so showing a value needs neither the
pipeline's file nor a schema file.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.formats.spec import Format
    from millstream.schema import Schema
    from millstream.sources.kafka.topic import Topic


def format_to_json(topic: Topic) -> dict[str, Any] | None:
    """The format and schema of a topic's values as JSON; None where no schema is needed."""
    wire: Any
    if topic.format == "avro":
        wire = topic.wire()
        return {"format": "avro", "schema": str(wire.text), "framing": topic.framing}
    if topic.format == "protobuf":
        wire = topic.wire()
        return {"format": "protobuf", "files": base64.b64encode(wire.files).decode(),
                "message": wire.message, "framing": topic.framing}  # fmt: skip
    return None


@dataclass(frozen=True)
class ValueDecoder:
    """A binary format with its schema."""

    name: str
    _format: Format
    _schema: Schema

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ValueDecoder | None:
        """The decoder of a stored format; None where this version does not know the format."""
        try:
            return cls._avro(stored) if stored["format"] == "avro" else cls._protobuf(stored)
        except (MillstreamError, KeyError, ValueError):
            return None

    @classmethod
    def _avro(cls, stored: Mapping[str, Any]) -> ValueDecoder:
        from millstream.formats.avro.format import Avro
        from millstream.formats.avro.schema import row_schema
        from millstream.formats.framing import Framing

        avro = Avro(stored["schema"], Framing.of(stored["framing"]))
        return cls("avro", avro, row_schema(stored["schema"]))

    @classmethod
    def _protobuf(cls, stored: Mapping[str, Any]) -> ValueDecoder:
        from millstream.formats.framing import BARE, Framing
        from millstream.formats.protobuf.format import Protobuf

        framing = BARE if stored["framing"] is None else Framing.of(stored["framing"])
        protobuf = Protobuf(base64.b64decode(stored["files"]), stored["message"], framing)
        return cls("protobuf", protobuf, protobuf.row_schema())

    def to_json(self, value: bytes) -> bytes | None:
        """The value as JSON text; None where it is not of this format."""
        import pyarrow as pa

        from millstream.formats.json.encode import encode

        try:
            table = self._format.decode(pa.array([value], pa.binary()), self._schema).table
            text: bytes | None = encode(table)[0].as_py() if table.num_rows else None
        except MillstreamError:
            return None
        return text
