"""A changed byte in a broker's files stops a job, which continues with --skip-damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.faults.broker_files import flip

import millstream as ms
from millstream.engine.recovery.lost import skip
from millstream.errors import DamagedLog
from millstream.kafka.admin.topics import Topics
from millstream.kafka.settings import Cluster
from millstream.sources.kafka.librdkafka_fetch import ClientFetcher
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

COLUMNS = ("value", "partition", "offset", "timestamp")
BATCH = 10


def filled(broker: ThrowAwayBroker, topic: str, codec: str, *, partitions: int = 1) -> None:
    """Five batches of ten records in each partition."""
    Topics(broker.address).create(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": codec,
                         "linger.ms": 200})  # fmt: skip
    for batch in range(5):
        for partition in range(partitions):
            for place in range(BATCH):
                number = 1000 * partition + BATCH * batch + place
                value = json.dumps({"n": number, "text": "x" * 60}).encode()
                producer.produce(topic, value, partition=partition)
        producer.flush()


@pytest.mark.parametrize("kind", [WireFetcher, ClientFetcher])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_changed_byte_is_found_and_named_however_records_are_fetched(
    kind: type[WireFetcher | ClientFetcher], codec: str, broker: ThrowAwayBroker, topic: str
) -> None:
    filled(broker, topic, codec)
    flip(broker, topic, batch=2)
    fetcher = kind(Cluster(broker.address), topic)

    with pytest.raises(DamagedLog, match=rf"{topic}/0 .* at offset 20") as stopped:
        list(fetcher.read({0: (0, 50)}, COLUMNS))
    before = [row for table in fetcher.read({0: (0, 20)}, COLUMNS) for row in table.to_pylist()]
    after = [row for table in fetcher.read({0: (30, 50)}, COLUMNS) for row in table.to_pylist()]
    fetcher.close()

    assert "--skip-damaged" in str(stopped.value)
    assert stopped.value.exit_code == 6
    assert [row["offset"] for row in before + after] == [*range(20), *range(30, 50)]


def test_a_consumer_stops_at_a_changed_byte(broker: ThrowAwayBroker, topic: str) -> None:
    filled(broker, topic, "lz4")
    flip(broker, topic, batch=2)
    seen = []

    with pytest.raises(DamagedLog, match="one at offset 20 that fails its checksum"):  # noqa: PT012
        for record in ms.Consumer(topic, kafka=broker.address, until_end=True):
            seen.append(record.offset)

    assert seen == list(range(20))


def pipeline(topic: str) -> ms.Pipeline:
    rows = ms.read(ms.Topic(topic, schema="n long"))
    return ms.Pipeline(topic, rows.where("n >= 0").to(ms.Topic(f"{topic}.out")))


def numbers(broker: ThrowAwayBroker, topic: str) -> list[int]:
    if f"{topic}.out" not in [one.name for one in Topics(broker.address).list()]:
        return []
    found = ms.Consumer(f"{topic}.out", kafka=broker.address, until_end=True)
    return sorted(json.loads(record.value or b"")["n"] for record in found)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("lane", ["narrow", "wide"])
def test_a_job_stops_at_damage_and_continues_after_it_on_request(
    lane: Any, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    filled(broker, topic, "zstd", partitions=2)
    flip(broker, topic, batch=2, partition=1)
    flip(broker, topic, batch=4, partition=1)
    job, folder = pipeline(topic), tmp_path / "job"

    def run() -> None:
        job.run(until="caught_up", kafka=broker.address, checkpoint=folder, lane=lane)

    def skip_damaged() -> list[str]:
        return skip(job, broker.address, folder, what="damaged")

    for _ in range(2):
        with pytest.raises(DamagedLog, match=rf"{topic}/1 .* at offset 20; .*--skip-damaged"):
            run()
    first = list(range(50))
    assert numbers(broker, topic) == [*first, *range(1000, 1020)]
    assert skip_damaged() == [f"{topic}/1: damaged offsets 20 to 29 (up to 10 records) are skipped"]
    assert skip_damaged() == []
    with pytest.raises(DamagedLog, match=rf"{topic}/1 .* at offset 40"):
        run()
    assert len(skip_damaged()) == 1
    run()

    assert numbers(broker, topic) == [*first, *range(1000, 1020), *range(1030, 1040)]
    assert skip_damaged() == []


@pytest.mark.parametrize("batch", [0, 4])
def test_damage_at_either_end_of_a_log_is_skipped(
    batch: int, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    filled(broker, topic, "none")
    flip(broker, topic, batch=batch)
    job, folder = pipeline(topic), tmp_path / "job"

    with pytest.raises(DamagedLog, match=f"at offset {BATCH * batch}"):
        job.run(until="caught_up", kafka=broker.address, checkpoint=folder, lane="narrow")
    assert len(skip(job, broker.address, folder, what="damaged")) == 1
    job.run(until="caught_up", kafka=broker.address, checkpoint=folder, lane="narrow")

    gone = range(BATCH * batch, BATCH * batch + BATCH)
    assert numbers(broker, topic) == [number for number in range(50) if number not in gone]


# The header fields before the checksummed bytes, and the last offset, which is among those.
HEADER = {"size": (11,), "format": (16,), "last offset": (26,), "count": (60,)}


@pytest.mark.parametrize("where", HEADER)
def test_with_a_damaged_header_only_records_that_no_broker_can_return_are_skipped(
    where: str, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    """With a wrong size or last offset the broker does not find the batches that follow."""
    filled(broker, topic, "none")
    flip(broker, topic, batch=2, bytes_in=HEADER[where])
    job, folder = pipeline(topic), tmp_path / "job"

    with pytest.raises(DamagedLog, match=f"{topic}/0 .* at offset 20"):
        job.run(until="caught_up", kafka=broker.address, checkpoint=folder, lane="narrow")
    assert numbers(broker, topic) == list(range(20))
    [line] = skip(job, broker.address, folder, what="damaged")
    job.run(until="caught_up", kafka=broker.address, checkpoint=folder, lane="narrow")

    end = 50 if where in ("size", "last offset") else 30
    assert f"damaged offsets 20 to {end - 1} (up to {end - 20} records)" in line
    assert numbers(broker, topic) == [*range(20), *range(end, 50)]
