"""Topics, records and groups over the API, compared with what was written to a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from tests.console.streams import Stream
from tests.sinks.alerting import until

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer
from millstream.sources.kafka.topic import Topic
from millstream.viewing.binary_values import format_to_json

if TYPE_CHECKING:
    from tests.console.serving import Served

    from millstream.testing.local_broker import ThrowAwayBroker

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def filled(broker: ThrowAwayBroker, topic: str) -> str:
    """A topic of two partitions with ten records in each, a second apart."""
    Topics(broker.address).create(topic, partitions=2, settings={"retention.ms": -1})
    with Producer(broker.address) as producer:
        for number in range(20):
            producer.send(topic, {"n": number, "price": number * 1.5}, key=f"user-{number}",
                          partition=number % 2, headers={"trace": f"t{number}"},
                          timestamp=START + timedelta(seconds=number))  # fmt: skip
    return topic


def records(console: Served, topic: str, **asked: Any) -> Any:
    answer = console(f"/api/topics/{quote(topic)}/records?{urlencode(asked, doseq=True)}")
    assert answer.status == 200, answer.body
    return answer.json


def numbers(page: Any) -> list[int]:
    return [json.loads(record["value"]["text"])["n"] for record in page["records"]]


def test_topics_are_listed_with_who_reads_and_writes_them(
    kafka_console: Served, filled: str
) -> None:
    kafka_console.add_job(about={"topics": {"bids": filled}, "writes": [filled, "hot.dead"]})
    rows = {row["topic"]: row for row in kafka_console("/api/topics").json}
    assert rows[filled] == {
        "topic": filled, "partitions": 2, "replicas": 1, "offsets_held": 20, "internal": False,
        "compacted": False, "read_by": ["hot"], "written_by": ["hot"],
    }  # fmt: skip
    assert not [name for name in rows if name.startswith("__")]


def test_one_topic_is_described_in_full(
    kafka_console: Served, broker: ThrowAwayBroker, filled: str
) -> None:
    whole = kafka_console(f"/api/topics/{filled}").json
    assert whole["settings"] == {"retention.ms": "-1"}
    assert whole["id"] == Topics(broker.address).describe(filled).id
    unknown = {"leader": 0, "replicas": [], "isr": [], "bytes": 0}
    assert [part | unknown for part in whole["parts"]] == [
        {"partition": number, "earliest": 0, "latest": 10, "stable": 10, **unknown}
        for number in (0, 1)
    ]
    assert {part["leader"] for part in whole["parts"]} == {whole["parts"][0]["replicas"][0]}
    on_disk = [sum(file.stat().st_size for file in folder.glob("*.log"))
               for folder in sorted(broker.folder.rglob(f"{filled}-[01]"))]  # fmt: skip
    assert [part["bytes"] for part in whole["parts"]] == on_disk
    assert min(on_disk) > 0


def test_an_open_transaction_is_seen_in_the_stable_end(
    kafka_console: Served, broker: ThrowAwayBroker, filled: str
) -> None:
    with (
        Producer(broker.address, transactional_id=filled) as producer,
        producer.transaction(),
    ):
        producer.send(filled, {"n": -1}, partition=0)
        producer.flush()
        [first, _] = kafka_console(f"/api/topics/{filled}").json["parts"]
        assert (first["stable"], first["latest"]) == (10, 11)
        assert -1 not in numbers(records(kafka_console, filled))
    until(lambda: -1 in numbers(records(kafka_console, filled, limit=200)))


def test_the_last_records_are_returned_first_and_paging_back_returns_all(
    kafka_console: Served, filled: str
) -> None:
    page = records(kafka_console, filled, limit=8)
    assert numbers(page) == list(range(12, 20))
    assert (page["complete"], page["later"], page["gone"]) == (True, None, 0)
    before = records(kafka_console, filled, limit=8, before=page["earlier"])
    assert numbers(before) == list(range(4, 12))
    assert numbers(records(kafka_console, filled, limit=8, before=before["earlier"])) == [
        0,
        1,
        2,
        3,
    ]
    again = records(kafka_console, filled, limit=8, **{"from": before["later"]})
    assert numbers(again) == list(range(12, 20))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"at": "beginning", "limit": 3}, [0, 1, 2]),
        ({"at": "2026-01-01T00:00:17"}, [17, 18, 19]),
        ({"at": "@9"}, [18, 19]),
        ({"partition": 1, "limit": 2}, [17, 19]),
        ({"partition": [0, 1], "limit": 2}, [18, 19]),
        ({"where": "price > 20 and n < 16"}, [14, 15]),
        ({"where": "_key = 'user-3' or _headers.trace = 't4'"}, [3, 4]),
        ({"where": "_offset = 9 and _partition = 1", "at": "beginning"}, [19]),
        ({"where": "nothing = 1"}, []),
    ],
    ids=str,
)
def test_records_are_found_by_position_partition_and_condition(
    kafka_console: Served, filled: str, asked: dict[str, Any], expected: list[int]
) -> None:
    page = records(kafka_console, filled, **asked)
    assert numbers(page) == expected
    if "nothing" in str(asked):
        assert (page["scanned"], page["unknown"]) == (20, 20)


def test_a_record_has_its_key_headers_time_and_offset(kafka_console: Served, filled: str) -> None:
    [record] = records(kafka_console, filled, at="@4", partition=1, limit=1)["records"]
    text = '{"n":9,"price":13.5}'
    assert record == {
        "topic": filled, "partition": 1, "offset": 4, "timestamp": "2026-01-01T00:00:09.000000Z",
        "key": {"kind": "text", "text": "user-9", "size": 6, "cut": False},
        "value": {"kind": "json", "text": text, "size": len(text), "cut": False},
        "headers": [{"name": "trace",
                     "value": {"kind": "text", "text": "t9", "size": 2, "cut": False}}],
        "headers_total": 1,
    }  # fmt: skip
    assert kafka_console(f"/api/topics/{filled}/records/1/4").json == record
    hexadecimal = kafka_console(f"/api/topics/{filled}/records/1/4?format=hex").json
    assert bytes.fromhex(hexadecimal["value"]["text"]) == text.encode()


def test_avro_is_read_with_the_schema_of_a_job_that_reads_the_topic(
    kafka_console: Served, broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic)
    source = Topic(topic, schema="n long, name string", format="avro")
    values = source.wire().encode(pa.table({"n": [1, 2], "name": ["a", "b"]}))
    with Producer(broker.address) as producer:
        for value in values.to_pylist():
            producer.send(topic, value)
    kinds = {one["value"]["kind"] for one in records(kafka_console, topic)["records"]}
    assert "avro" not in kinds
    kafka_console.add_job("reads-avro", about={"formats": {topic: format_to_json(source)}})
    page = records(kafka_console, topic, where="name = 'b'")
    assert [one["value"]["kind"] for one in page["records"]] == ["avro"]
    assert numbers(page) == [2]
    with Stream(kafka_console, f"/api/topics/{topic}/follow?where=n%20%3D%202") as stream:
        stream.next()
        with Producer(broker.address) as producer:
            for value in values.to_pylist():
                producer.send(topic, value)
        assert numbers(stream.until(1)) == [2]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/topics/nowhere", 404, "the topic nowhere does not exist"),
        ("/api/topics/nowhere/records", 404, "nowhere"),
        ("/api/topics/nowhere/follow", 404, "nowhere"),
        ("/api/topics/{topic}/records?partition=7", 400, "has, 0 to 1; got 7"),
        ("/api/topics/{topic}/records?partition=x", 400, "partition needs a whole number; got 'x'"),
        ("/api/topics/{topic}/records?limit=201", 400, "limit needs a whole number from 1 to 200"),
        ("/api/topics/{topic}/records?at=soon", 400, "at needs a point in time; got 'soon'"),
        ("/api/topics/{topic}/records?at=end&from=0@1", 400, "one position; got at and from"),
        ("/api/topics/{topic}/records?from=0-1", 400, "from needs a cursor such as 0@120,1@98"),
        ("/api/topics/{topic}/records?where=price+%3E", 400, "where needs a name or a value"),
        (f"/api/topics/{{topic}}/records?where={'(' * 150}", 400, "at most 100 levels"),
        (f"/api/topics/{{topic}}/records?where={'n' * 3000}", 400, "at most 2000 characters"),
        (f"/api/topics/{{topic}}/follow?where={'not+' * 150}n", 400, "at most 100 levels"),
        ("/api/topics/{topic}/records?where=__import__('os')", 400, "at character 11"),
        ("/api/topics/{topic}/records?format=xml", 400, "format needs auto, json, text or hex"),
        ("/api/topics/{topic}/records?form=json", 400, "has the parameters at, from"),
        ("/api/topics/{topic}/records?limit=1&limit=2", 400, "limit can be given once"),
        ("/api/topics/{topic}/records/0/10", 404, "at offset 10 of"),
        ("/api/topics/{topic}/records/0/x", 400, "offset needs a whole number"),
        ("/api/topics/{topic}/follow?where=(", 400, "where needs"),
        ("/api/topics?internal=maybe", 400, "internal needs true or false"),
        ("/api/topics/a%20b", 400, "a topic name needs letters"),
        ("/api/groups/nobody-reads", 404, "the group nobody-reads does not exist"),
    ],
)
def test_an_invalid_request_gets_one_sentence(
    kafka_console: Served, filled: str, path: str, status: int, sentence: str
) -> None:
    answer = kafka_console(path.format(topic=filled))
    assert (answer.status, sentence in answer.json["error"]) == (status, True), answer.body


def test_groups_are_listed_and_described_with_their_lag(
    kafka_console: Served, broker: ThrowAwayBroker, filled: str
) -> None:
    with Consumer(filled, kafka=broker.address, group=filled, commit="manual") as consumer:
        for record in consumer:
            if (record.partition, record.offset) == (0, 3):
                break
        consumer.commit()
        committed = {slot[1]: at for slot, at in consumer.position().items()}
        reading = kafka_console(f"/api/groups/{filled}").json
        assert [member["idle"] for member in reading["members"]] == [False]
    [row] = [row for row in kafka_console("/api/groups").json if row["group"] == filled]
    assert (row["members"], row["topics"]) == (0, [filled])
    whole = kafka_console(f"/api/groups/{filled}").json
    assert whole["lag"] == row["lag"] == 20 - sum(committed.values())
    assert {part["partition"]: part["lag"] for part in whole["partitions"]} == {
        number: 10 - committed.get(number, 0) for number in (0, 1)
    }


def test_without_kafka_the_error_says_so(console: Served) -> None:
    for path in ("/api/topics", "/api/topics/x", "/api/topics/x/records", "/api/groups"):
        answer = console(path)
        assert answer.status == 503
        assert "millstream up" in answer.json["error"]
