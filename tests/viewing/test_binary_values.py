"""Avro and Protobuf values are shown as JSON, by what a job has written down about its topics."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.formats.protobuf_files import descriptor_set

from millstream.kafka.records import Record
from millstream.sources.kafka.topic import Topic
from millstream.viewing.binary_values import Wire, told
from millstream.viewing.fields import RecordRow
from millstream.viewing.record_json import shown
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


def known(topic: Topic) -> Wire:
    """As it is known to whoever reads the diary: from JSON, without the file."""
    stored = json.loads(json.dumps(told(topic)))
    wire = Wire.of(stored)
    assert wire is not None
    return wire


def test_a_value_is_shown_as_json_and_can_be_filtered(written: tuple[Topic, Record]) -> None:
    topic, record = written
    wire = known(topic)
    value = shown(record, wire=wire)["value"]
    assert value["kind"] == topic.format
    assert json.loads(value["text"]) == {**ROW, "ts": "2026-01-01T00:00:00.000000Z"}
    assert "\u202e" not in value["text"]
    assert value["size"] == len(record.value or b"")
    assert parse("price > 2 and auction = 7").answer(RecordRow(record, wire)) is True
    assert parse("price > 2").answer(RecordRow(record)) is None
    assert shown(record, "hex", wire=wire)["value"]["kind"] == "bytes"


@pytest.mark.parametrize("value", [b"", b"\xff" * 40, b"{}", b"\x00\x00\x00\x00\x05", None])
def test_a_value_of_another_format_is_shown_as_it_is(
    written: tuple[Topic, Record], value: bytes | None
) -> None:
    topic, record = written
    other = Record(record.topic, 0, 1, record.timestamp, None, value)
    kind = shown(other, wire=known(topic))["value"]["kind"]
    assert kind in ("json", "text", "bytes", "none", "protobuf")
    assert RecordRow(other, known(topic)).field(("price",)) in (None, 0.0)


@pytest.mark.parametrize(
    "stored", [{}, {"format": "avro", "schema": "no", "framing": None},
               {"format": "protobuf", "files": "?", "message": "x", "framing": None},
               {"format": "later", "words": 1}],
)  # fmt: skip
def test_what_another_version_wrote_down_is_left_alone(stored: dict[str, Any]) -> None:
    assert Wire.of(stored) is None


def test_what_anybody_can_read_needs_no_word() -> None:
    assert told(Topic("a", schema=COLUMNS)) is None
