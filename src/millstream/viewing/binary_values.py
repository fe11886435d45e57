"""Values in Avro and Protobuf, read as JSON with the schema of a job that reads the topic.

A job writes into its diary how its topics are to be read; whoever shows them needs neither the
pipeline's file nor a path on the disk.
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


def told(topic: Topic) -> dict[str, Any] | None:
    """How the values of a topic are to be read, as JSON; None where anybody can read them."""
    if topic.format == "avro":
        return {"format": "avro", "schema": _text(topic), "framing": topic.framing}
    if topic.format == "protobuf":
        wire: Any = topic.wire()
        return {"format": "protobuf", "files": base64.b64encode(wire.files).decode(),
                "message": wire.message, "framing": topic.framing}  # fmt: skip
    return None


def _text(topic: Topic) -> str:
    wire: Any = topic.wire()
    return str(wire.text)


@dataclass(frozen=True)
class Wire:
    """One format with its schema."""

    name: str
    _format: Format
    _schema: Schema

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Wire | None:
        """The format that was told; None where this version does not know it."""
        try:
            return cls._avro(told) if told["format"] == "avro" else cls._protobuf(told)
        except (MillstreamError, KeyError, ValueError):
            return None

    @classmethod
    def _avro(cls, told: Mapping[str, Any]) -> Wire:
        from millstream.formats.avro.format import Avro
        from millstream.formats.avro.schema import row_schema
        from millstream.formats.framing import Framing

        made = Avro(told["schema"], Framing.of(told["framing"]))
        return cls("avro", made, row_schema(told["schema"]))

    @classmethod
    def _protobuf(cls, told: Mapping[str, Any]) -> Wire:
        from millstream.formats.framing import BARE, Framing
        from millstream.formats.protobuf.format import Protobuf

        framing = BARE if told["framing"] is None else Framing.of(told["framing"])
        made = Protobuf(base64.b64decode(told["files"]), told["message"], framing)
        return cls("protobuf", made, made.row_schema())

    def json(self, value: bytes) -> bytes | None:
        """The value as JSON text; None where it is not of this format."""
        import pyarrow as pa

        from millstream.formats.json.encode import encode

        try:
            table = self._format.decode(pa.array([value], pa.binary()), self._schema).table
            found: bytes | None = encode(table)[0].as_py() if table.num_rows else None
        except MillstreamError:
            return None
        return found
