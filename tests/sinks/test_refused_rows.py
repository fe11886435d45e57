"""Results that a sink can never take become dead rows, with real Kafka and PostgreSQL."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest
from tests.engine.scenes import PLACES
from tests.kafka.shortly import eventually

import millstream as ms
from millstream.engine.dead_letters.rows import Selection
from millstream.engine.dead_letters.topic import TopicDeadLetters
from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.kafka.records import Record
    from millstream.testing.local_broker import ThrowAwayBroker

SCHEMA = "id long, note string, tags array<string>, size double, ts timestamp"
Lane = Literal["narrow", "wide"]
KILLED = f"""
import sys
import millstream as ms
name, kafka, folder, database = sys.argv[1:]
rows = ms.read(ms.Topic(name + ".in", schema="{SCHEMA}"), time="ts")
pipeline = ms.Pipeline(name, rows.to(ms.Postgres("t", url=database), name="table"),
                       rows.to(ms.Topic(name + ".out")))
pipeline.run(until="caught_up", kafka=kafka, checkpoint=folder, lane="narrow")
"""
LANES = pytest.mark.parametrize("lane", PLACES)


def row(number: int, note: str | None = "fine", **more: Any) -> dict[str, Any]:
    return {"id": number, "note": note, "tags": ["a"], "size": 1.5,
            "ts": f"2026-01-01T00:00:{number % 60:02d}Z", **more}  # fmt: skip


class Environment:
    """A topic to read, and the records of others."""

    def __init__(self, broker: ThrowAwayBroker, name: str, folder: Path) -> None:
        self.address, self.name, self.folder = broker.address, name, folder
        Topics(self.address).create(self.topic, partitions=2)

    @property
    def topic(self) -> str:
        return f"{self.name}.in"

    def feed(self, rows: Sequence[dict[str, Any]]) -> None:
        with Producer(self.address) as producer:
            for one in rows:
                producer.send(self.topic, one, partition=one["id"] % 2)

    def read(self) -> ms.Stream:
        return ms.read(ms.Topic(self.topic, schema=SCHEMA), time="ts")

    def run(self, *outputs: Any, lane: Lane, on_bad: Literal["dead", "stop"] = "dead") -> None:
        pipeline = ms.Pipeline(self.name, *outputs, on_bad=on_bad)
        pipeline.run(until="caught_up", kafka=self.address, checkpoint=self.folder, lane=lane)

    def records(self, topic: str) -> list[Record]:
        with Consumer(topic, kafka=self.address, until_end=True) as consumer:
            return sorted(consumer, key=lambda record: (record.partition, record.offset))

    def dead(self) -> list[dict[str, Any]]:
        found = []
        for record in self.records(f"{self.name}.dead"):
            headers = {name.removeprefix("millstream."): (value or b"").decode()
                    for name, value in record.headers}  # fmt: skip
            found.append({**headers, "row": json.loads(record.value or b"")})
        return sorted(found, key=lambda one: one["row"]["id"])


@pytest.fixture
def environment(broker: ThrowAwayBroker, topic: str, tmp_path: Path) -> Environment:
    return Environment(broker, f"p{topic[-9:]}", tmp_path / "job")


def stored(database: str, sql: str) -> list[Any]:
    with psycopg.connect(database) as connection:
        return connection.execute(sql).fetchall()


@LANES
@pytest.mark.parametrize("key", [None, "id"])
def test_a_row_with_a_nul_is_dead_and_the_others_are_in_the_table(
    environment: Environment, database: str, lane: Lane, key: str | None
) -> None:
    environment.feed([row(0), row(1, "a\0b"), row(2), row(3, tags=["x", "\0"]), row(4, "\\u0000"),
                row(5, tags=["\\u0000"])])  # fmt: skip
    rows = environment.read()
    environment.run(rows.to(ms.Postgres("t", key=key, url=database), name="table"),
              rows.to(ms.Topic(f"{environment.name}.out")), lane=lane)  # fmt: skip

    assert stored(database, "select id, note from t order by id") == [
        (0, "fine"), (2, "fine"), (4, "\\u0000"), (5, "fine")]  # fmt: skip
    assert len(environment.records(f"{environment.name}.out")) == 6
    dead = environment.dead()
    assert [one["row"]["id"] for one in dead] == [1, 3]
    assert dead[0]["row"]["note"] == "a\0b"
    assert [(one["topic"], one["partition"], one["offset"]) for one in dead] == [
        (environment.topic, "1", "0"), (environment.topic, "1", "1")]  # fmt: skip
    assert {one["step"] for one in dead} == {"table"}
    assert "the column 'note' contains a NUL character" in dead[0]["reason"]
    assert "the column 'tags' contains a NUL character" in dead[1]["reason"]

    environment.feed([row(6), row(7, "\0")])
    environment.run(rows.to(ms.Postgres("t", key=key, url=database), name="table"),
              rows.to(ms.Topic(f"{environment.name}.out")), lane=lane)  # fmt: skip
    assert stored(database, "select count(*) from t") == [(5,)]
    assert len(environment.dead()) == 3


@LANES
def test_a_record_over_the_limit_of_its_topic_is_dead_and_the_others_are_sent(
    environment: Environment, lane: Lane
) -> None:
    """The limit applies to compressed batches: many small rows are divided to fit."""
    Topics(environment.address).create(
        f"{environment.name}.out", settings={"max.message.bytes": 20_000}
    )
    chance = random.Random(5)
    packs = "x" * 50_000
    small = [row(number, chance.randbytes(500).hex()) for number in range(3, 300)]
    environment.feed([row(0), row(1, chance.randbytes(15_000).hex()), row(2, packs), *small])
    environment.run(
        environment.read().to(ms.Topic(f"{environment.name}.out"), name="out"), lane=lane
    )

    left = sorted(json.loads(record.value or b"")["id"]
                  for record in environment.records(f"{environment.name}.out"))  # fmt: skip
    assert left == [0, *range(2, 300)]
    (dead,) = environment.dead()
    assert (dead["row"]["id"], dead["topic"], dead["offset"]) == (1, environment.topic, "0")
    assert "bytes is larger than the topic" in dead["reason"]
    assert "max.message.bytes=20,000" in dead["reason"]


@LANES
def test_a_result_of_many_rows_that_is_too_large_is_dead(
    environment: Environment, lane: Lane
) -> None:
    """It is larger than the cluster's default limit of the dead-letter topic."""
    chance = random.Random(6)
    environment.feed([row(number % 3, chance.randbytes(300_000).hex() if number % 3 == 1 else "x")
                for number in range(12)])  # fmt: skip
    made = environment.read().by("id").window(ms.tumbling("1 minute")).agg(notes=ms.collect("note"))
    pipeline = ms.Pipeline(
        environment.name, made.to(ms.Topic(f"{environment.name}.out"), name="out")
    )
    pipeline.run(
        until="finished", kafka=environment.address, checkpoint=environment.folder, lane=lane
    )

    left = [
        json.loads(record.value or b"")["id"]
        for record in environment.records(f"{environment.name}.out")
    ]
    assert sorted(left) == [0, 2]
    (dead,) = environment.dead()
    assert (dead["topic"], dead["step"], dead["row"]["id"]) == ("out", "out", 1)
    assert len(dead["row"]["notes"]) == 4


@LANES
def test_with_on_bad_stop_a_refused_row_stops_the_job_and_nothing_is_written(
    environment: Environment, database: str, lane: Lane
) -> None:
    environment.feed([row(0), row(1, "a\0b")])
    table = environment.read().to(ms.Postgres("t", url=database), name="table")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"the output 'table'.*'note' contains a NUL"):
            environment.run(table, lane=lane, on_bad="stop")
    assert stored(database, "select to_regclass('t')") == [(None,)]


def test_rows_that_the_columns_of_a_table_cannot_hold_are_dead(
    environment: Environment, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id smallint, note varchar(5) not null, tags json, "
                           "size numeric(4,1), ts timestamptz)")  # fmt: skip
    rows = [row(0), row(40_000), row(2, "longer"), row(3, None), row(4, "ok   "), row(5, "abcde  "),
            row(6, size=999.94), row(7, size=999.95), row(8, size=-1e9), row(9, tags=["\0"]),
            row(10, "äöüßé")]  # fmt: skip
    environment.feed(rows)
    environment.run(
        environment.read().to(ms.Postgres("t", url=database), name="table"), lane="narrow"
    )

    assert [found[0] for found in stored(database, "select id from t order by id")] == [
        0, 4, 5, 6, 9, 10]  # fmt: skip
    reasons = {one["row"]["id"]: one["reason"] for one in environment.dead()}
    assert reasons == {
        2: "the column 'note' is longer than character varying(5)",
        3: "the column 'note' is null, which the table does not accept",
        7: "the column 'size' is too large for numeric(4,1)",
        8: "the column 'size' is too large for numeric(4,1)",
        40_000: "the column 'id' is too large for smallint",
    }


def test_a_refused_row_of_a_table_removes_the_previous_row_of_its_key(
    environment: Environment, database: str
) -> None:
    """The previous row of the key is no longer true, and the new one cannot be stored."""
    latest = environment.read().latest(by="id").select("id", "note")
    output = latest.to(ms.Postgres("t", key="id", url=database), name="table")
    environment.feed([row(1, "one"), row(2, "two")])
    environment.run(output, lane="narrow")
    environment.feed([row(1, "bad\0"), row(2, "2")])
    environment.run(output, lane="narrow")
    assert stored(database, "select id, note from t order by id") == [(2, "2")]
    assert [one["row"]["id"] for one in environment.dead()] == [1]
    environment.feed([row(1, "good")])
    environment.run(output, lane="narrow")
    assert stored(database, "select id, note from t order by id") == [(1, "good"), (2, "2")]
    assert len(environment.dead()) == 1


@pytest.mark.parametrize("point", ["after intent", "after prepared", "before a sink's commit"])
def test_after_a_kill_every_row_is_in_its_output_once(
    environment: Environment, database: str, tmp_path: Path, point: str
) -> None:
    environment.feed([row(0), row(1, "a\0b"), row(2), row(3, "\0")])
    (hold := tmp_path / "hold").mkdir()
    (hold / f"{point}@*").touch()
    command = [
        sys.executable,
        "-c",
        KILLED,
        environment.name,
        environment.address,
        str(environment.folder),
        database,
    ]
    with subprocess.Popen(command, env={**os.environ, "MILLSTREAM_HOLD": str(hold)}) as process:
        assert eventually((hold / "held").exists, within=60)
        process.kill()
    (hold / "held").unlink()
    rows = environment.read()
    environment.run(rows.to(ms.Postgres("t", url=database), name="table"),
              rows.to(ms.Topic(f"{environment.name}.out")), lane="narrow")  # fmt: skip
    assert stored(database, "select id from t order by id") == [(0,), (2,)]
    assert len(environment.records(f"{environment.name}.out")) == 4
    assert [one["row"]["id"] for one in environment.dead()] == [1, 3]


def test_a_bad_record_of_three_megabytes_is_stored_completely(environment: Environment) -> None:
    Topics(environment.address).alter(environment.topic, settings={"max.message.bytes": 4_000_000})
    bad = random.Random(1).randbytes(3_000_000)
    with Producer(environment.address) as producer:
        producer.send(environment.topic, bad, partition=0, headers={"h": "v"})
    environment.feed([row(1)])
    environment.run(environment.read().to(ms.Topic(f"{environment.name}.out")), lane="narrow")
    (dead,) = environment.records(f"{environment.name}.dead")
    assert dead.value == bad
    assert dead.headers[0] == ("h", b"v")
    assert len(environment.records(f"{environment.name}.out")) == 1


def test_a_dead_letter_topic_with_a_smaller_limit_is_named_until_it_is_raised(
    environment: Environment,
) -> None:
    Topics(environment.address).create(dead := f"{environment.name}.dead")
    Topics(environment.address).alter(environment.topic, settings={"max.message.bytes": 4_000_000})
    with Producer(environment.address) as producer:
        producer.send(environment.topic, random.Random(1).randbytes(3_000_000), partition=0)
    output = environment.read().to(ms.Topic(f"{environment.name}.out"))
    with pytest.raises(MillstreamError, match=rf"{dead} takes 1,048,588.*topics alter"):
        environment.run(output, lane="narrow")
    Topics(environment.address).alter(dead, settings={"max.message.bytes": 4_000_000})
    environment.run(output, lane="narrow")
    assert len(environment.records(dead)) == 1


def test_dead_retry_skips_results_and_reports_it(environment: Environment, database: str) -> None:
    """A result is not a record of the topic from which it was computed."""
    environment.feed([row(1, "\0")])
    environment.run(
        environment.read().to(ms.Postgres("t", url=database), name="table"), lane="narrow"
    )
    rows = TopicDeadLetters(environment.name, Cluster(environment.address))
    [(found, state)] = rows.rows(Selection())
    assert (found.result_of, state) == ("table", "waiting")
    with pytest.raises(InvalidInput, match="results that the output 'table' rejected"):
        rows.retry(Selection(), [environment.topic])
    assert len(environment.records(environment.topic)) == 1
    assert rows.drop(Selection()).waiting.total() == 1
