"""`Topic(format=)`: the schemas of each format, and what is refused while building."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.formats.protobuf_files import descriptor_set

from millstream.errors import InvalidSpec
from millstream.formats.avro.format import Avro
from millstream.formats.framing import Framing
from millstream.schema import Schema
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})


def test_an_avro_schema_is_text_or_a_file_or_columns(tmp_path: Path) -> None:
    file = tmp_path / "bid.avsc"
    file.write_text(AVRO)
    for schema in (AVRO, file, str(file)):
        topic = Topic("bids", schema=schema, format="avro")
        assert topic.row_schema() == Schema.parse("id long")
        assert topic.wire() == Avro(AVRO)
    assert Topic("bids", schema="id long", format="avro").row_schema() == Schema.parse("id long")
    assert Topic("out", format="avro").wire() == Avro()


def test_a_protobuf_schema_is_a_descriptor_set_and_a_message(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptor_set())
    topic = Topic("bids", schema=f"{file}#shop.Bid", format="protobuf")
    assert topic.row_schema() == Schema.parse(
        "auction long, bidder long, price double, channel string, url string, ts timestamp"
    )
    for schema in (None, str(file), f"{file}#"):
        with pytest.raises(InvalidSpec, match="needs a descriptor set and a message"):
            Topic("bids", schema=schema, format="protobuf")


def test_text_and_bytes_have_one_column_by_default() -> None:
    assert Topic("logs", format="text").row_schema() == Schema.parse("value string")
    assert Topic("logs", schema="line string", format="text").row_schema().names == ("line",)
    assert Topic("blobs", format="bytes").row_schema() == Schema.parse("value binary")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "xml"}, "a topic needs a format among json, avro, protobuf, csv, text, bytes"),
        ({"format": "csv", "schema": "a array<int>"}, "a CSV cell needs a type without parts"),
        ({"format": "text", "schema": "a long"}, "needs a schema of one string column"),
        ({"format": "avro", "schema": "nowhere.avsc"}, "a topic needs the Avro schema; got"),
        ({"format": "avro", "schema": AVRO, "framing": "odd"}, "framing needs \"confluent\""),
        ({"format": "avro", "schema": AVRO, "framing": "confluent:x"}, "framing needs"),
        ({"format": "json", "schema": "a long", "framing": "bare"}, "framing= needs format="),
    ],
)  # fmt: skip
def test_an_invalid_format_or_schema_is_refused_while_building(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidSpec, match=says):
        Topic("t", **options)


def test_a_topic_without_a_schema_can_only_be_a_sink() -> None:
    for format_ in ("json", "csv", "avro"):
        with pytest.raises(InvalidSpec, match="reading the topic 't' needs a schema"):
            Topic("t", format=format_).row_schema()


def test_framing_is_parsed() -> None:
    assert Framing.of("bare") == Framing("bare")
    assert Framing.of("confluent:7") == Framing("confluent", 7)
    assert Framing.of(None) == Framing("either")
