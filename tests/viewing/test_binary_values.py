"""Avro and Protobuf values as JSON, with the schema that a job has stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.formats.protobuf_files import descriptor_set

from millstream.kafka.records import Record
from millstream.sources.kafka.topic import Topic
from millstream.viewing.binary_values import ValueDecoder, format_to_json
from millstream.viewing.fields import RecordRow
from millstream.viewing.record_json import record_to_json
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "auction long, bidder long, price double, channel string, url string, ts timestamp"
AT = datetime(2026, 1, 1, tzinfo=UTC)
ROW = {"auction": 7, "bidder": 1, "price": 2.5, "channel": "lamp\u202e", "url": "", "ts": AT}


def topics(folder: Path) -> dict[str, Topic]:
    """The same columns in both formats, bare and framed."""
    (folder / "shop.desc").write_bytes(descriptor_set())
    protobuf = f"{folder / 'shop.desc'}#shop.Bid"
    return {
        "avro": Topic("a", schema=COLUMNS, format="avro"),
        "framed avro": Topic("b", schema=COLUMNS, format="avro", framing="confluent:5"),
        "protobuf": Topic("c", schema=protobuf, format="protobuf"),
    }


@pytest.fixture(params=["avro", "framed avro", "protobuf"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Topic, Record]:
    """A topic, and a record in its format."""
    topic = topics(tmp_path)[request.param]
    table = pa.table({name: [value] for name, value in ROW.items()},
                     schema=topic.row_schema().arrow())  # fmt: skip
    value = topic.wire().encode(table)[0].as_py()
    return topic, Record("a", 0, 0, AT, None, value)


def known(topic: Topic) -> ValueDecoder:
    """The decoder from the stored JSON, without the schema file."""
    stored = json.loads(json.dumps(format_to_json(topic)))
    decoder = ValueDecoder.from_json(stored)
    assert decoder is not None
    return decoder


def test_a_value_is_shown_as_json_and_can_be_filtered(written: tuple[Topic, Record]) -> None:
    topic, record = written
    decoder = known(topic)
    value = record_to_json(record, decoder=decoder)["value"]
    assert value["kind"] == topic.format
    assert json.loads(value["text"]) == {**ROW, "ts": "2026-01-01T00:00:00.000000Z"}
    assert "\u202e" not in value["text"]
    assert value["size"] == len(record.value or b"")
    assert parse("price > 2 and auction = 7").answer(RecordRow(record, decoder)) is True
    assert parse("price > 2").answer(RecordRow(record)) is None
    assert record_to_json(record, "hex", decoder=decoder)["value"]["kind"] == "bytes"


@pytest.mark.parametrize("value", [b"", b"\xff" * 40, b"{}", b"\x00\x00\x00\x00\x05", None])
def test_a_value_of_another_format_is_shown_as_it_is(
    written: tuple[Topic, Record], value: bytes | None
) -> None:
    topic, record = written
    other = Record(record.topic, 0, 1, record.timestamp, None, value)
    kind = record_to_json(other, decoder=known(topic))["value"]["kind"]
    assert kind in ("json", "text", "bytes", "none", "protobuf")
    assert RecordRow(other, known(topic)).field(("price",)) in (None, 0.0)


@pytest.mark.parametrize(
    "stored", [{}, {"format": "avro", "schema": "no", "framing": None},
               {"format": "protobuf", "files": "?", "message": "x", "framing": None},
               {"format": "later", "words": 1}],
)  # fmt: skip
def test_a_format_of_another_version_is_ignored(stored: dict[str, Any]) -> None:
    assert ValueDecoder.from_json(stored) is None


def test_a_format_without_a_schema_is_not_stored() -> None:
    assert format_to_json(Topic("a", schema=COLUMNS)) is None
