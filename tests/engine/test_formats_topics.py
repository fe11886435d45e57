"""Topics of every format through the engine, in both lanes: rows, dead rows, extra fields."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import message_factory
from tests.engine.scenes import PLACES, at, drive_in, out
from tests.formats.protobuf_files import descriptor_set

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.formats.protobuf.schema import message_descriptor
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

AVRO = {
    "type": "record", "name": "bid", "fields": [
        {"name": "auction", "type": "long"}, {"name": "channel", "type": ["null", "string"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip


def avro(auction: int, channel: str | None, seconds: float) -> bytes:
    made = io.BytesIO()
    row = {"auction": auction, "channel": channel, "ts": at(seconds)}
    fastavro.schemaless_writer(made, fastavro.parse_schema(AVRO), row)
    return made.getvalue()


def protobuf(auction: int, channel: str, seconds: float, more: bytes = b"") -> bytes:
    kind = message_factory.GetMessageClass(message_descriptor(descriptor_set(), "shop.Bid"))
    message: Any = kind()
    message.auction, message.channel = auction, channel
    message.ts.FromDatetime(at(seconds))
    return bytes(message.SerializeToString()) + more


@pytest.mark.parametrize("lane", PLACES)
def test_every_format_gives_rows_dead_rows_and_counts(tmp_path: Path, lane: Any) -> None:
    (tmp_path / "shop.desc").write_bytes(descriptor_set())
    framed = b"\0\0\0\0\x07" + avro(2, None, 2)
    ddl = "auction long, channel string, ts timestamp"
    fed: dict[str, tuple[ms.Topic, list[bytes]]] = {
        "csv": (ms.Topic("csv", ddl, "csv"), [b"1,x,2026-01-01", b'2,"a,b",1767225602000', b"3,x"]),
        "avro": (ms.Topic("avro", json.dumps(AVRO), "avro"), [avro(1, "x", 1), framed, b"\xff"]),
        "text": (ms.Topic("text", format="text"), [b"one", b"two", b"\xff"]),
        "bytes": (ms.Topic("bytes", format="bytes"), [b"one", b"\xff\0"]),
        "protobuf": (
            ms.Topic("protobuf", f"{tmp_path}/shop.desc#shop.Bid", "protobuf"),
            [protobuf(1, "x", 1), protobuf(2, "é", 2, b"\xf8\x07\x01"), b"\xff"],
        ),
    }
    reads = [ms.read(topic) for topic, _ in fed.values()]
    with drive_in(out(*reads, names=list(fed)), lane) as drive:
        for name, (_, values) in fed.items():
            drive.feed(name, values)
        facts = drive.step()
        assert (facts.dead, facts.extra) == (4, 1)
        found = {name: drive.rows(name) for name in fed}
        assert [row["channel"] for row in found["csv"]] == ["x", "a,b"]
        assert [(row["auction"], row["channel"]) for row in found["avro"]] == [(1, "x"), (2, None)]
        assert [row["value"] for row in found["text"]] == ["one", "two"]
        assert [row["value"] for row in found["bytes"]] == [b"one", b"\xff\0"]
        assert [(row["channel"], row["ts"]) for row in found["protobuf"]] == [
            ("x", at(1)), ("é", at(2)),
        ]  # fmt: skip
        dead = {row["topic"]: (row["value"], row["reason"]) for row in drive.dead()}
        assert dead["csv"] == (b"3,x", "needs 3 cells; got 2")
        assert dead["text"] == (b"\xff", "not text: invalid UTF-8 at byte 1")
        assert dead["protobuf"] == (b"\xff", "not Protobuf: no shop.Bid")
        assert dead["avro"][0] == b"\xff"


def test_an_event_time_from_avro_closes_windows() -> None:
    bids = ms.read(ms.Topic("bids", json.dumps(AVRO), "avro"), time="ts")
    counts = bids.by("auction").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    with Drive(out(counts), lane="narrow") as drive:
        drive.feed("bids", [avro(1, "x", 1), avro(1, "x", 9), avro(1, "x", 11)])
        drive.step()
        assert [row["n"] for row in drive.rows("out")] == [2]


def test_rows_written_to_real_topics_are_read_back_from_them(
    tmp_path: Path, broker: ThrowAwayBroker, topic: str
) -> None:
    rows = [{"auction": n, "channel": text, "ts": at(n)}
            for n, text in enumerate(["x", "", None, 'a,"b"'])]  # fmt: skip
    schema = "auction long, channel string, ts timestamp"
    topics = [
        ms.Topic(f"{topic}.csv", schema, "csv"),
        ms.Topic(f"{topic}.avro", schema, "avro", framing="confluent:7"),
        ms.Topic(f"{topic}.bare", schema, "avro", framing="bare"),
    ]
    stream = ms.read(ms.Memory(rows), ahead=None)
    write = ms.Pipeline(f"write-{topic[-8:]}", *(stream.to(there) for there in topics))
    write.run(until="finished", kafka=broker.address, checkpoint=tmp_path / "write")
    kept = [ms.Memory(there.name) for there in topics]
    reads = (ms.read(there).to(memory) for there, memory in zip(topics, kept, strict=True))
    again = ms.Pipeline(f"again-{topic[-8:]}", *reads)
    again.run(until="finished", kafka=broker.address, checkpoint=tmp_path / "again")

    for memory in kept:
        assert sorted(memory.rows, key=lambda row: int(row["auction"])) == rows


def test_rows_that_a_format_cannot_carry_are_refused_before_the_first_batch() -> None:
    bids = ms.read(ms.Topic("bids", schema="a long, tags array<string>"))
    for format_, says in (("csv", "a CSV cell needs a type"), ("text", "one string column")):
        pipeline = ms.Pipeline("any", bids.to(ms.Topic("out", format=format_)))  # type: ignore[arg-type]
        with pytest.raises(InvalidSpec, match=says):
            Drive(pipeline)
