"""A job killed with -9 while it reads the table of a `lookup`, on a real broker: the events that
were there from the beginning meet the whole table, which ends in an aborted transaction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.running import kill_when_held

import millstream as ms
from millstream.engine.inspection.inspect import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

ROWS, EVENTS = 60_000, 5_000
FILE = """
import millstream as ms

events = ms.read(ms.Topic({topic!r}, schema="id long, k long"))
prices = ms.table(ms.Topic({topic!r} + ".table", schema="k long, v long"), key="k")
found = events.lookup(prices, on="k", how="left")
pipeline = ms.Pipeline("killed", found.to(ms.Topic({topic!r} + ".out")))
"""


def fill(address: str, topic: str) -> None:
    """A compacted table of two partitions, each ending in records that were never committed."""
    admin = AdminClient({"bootstrap.servers": address})
    compacted = {"cleanup.policy": "compact"}
    made = admin.create_topics(
        [NewTopic(topic, 2, 1), NewTopic(f"{topic}.table", 2, 1, config=compacted)]
    )
    for future in made.values():
        future.result()
    writer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    writer.init_transactions(60)
    writer.begin_transaction()
    for key in range(ROWS):
        row = json.dumps({"k": key, "v": 3 * key}).encode()
        writer.produce(f"{topic}.table", row, str(key).encode(), partition=key % 2)
        if key < EVENTS:
            event = json.dumps({"id": key, "k": ROWS - 1 - key}).encode()
            writer.produce(topic, event, partition=key % 2)
        if key % 5_000 == 0:
            writer.poll(0)
    writer.commit_transaction(60)
    writer.begin_transaction()
    for partition in (0, 1):
        bad = json.dumps({"k": ROWS - 1 - partition, "v": -1}).encode()
        writer.produce(f"{topic}.table", bad, b"x", partition=partition)
    assert writer.flush(60) == 0
    writer.abort_transaction(60)


def run(file: Path, kafka: str, *, hold: str | None = None) -> None:
    """`millstream run --until caught-up` in a process of its own, killed where it is held."""
    place = file.parent / "hold"
    place.mkdir(exist_ok=True)
    if hold is not None:
        (place / f"{hold}@*").touch()
    command = [sys.executable, "-m", "millstream.cli.main", "run", str(file), "--kafka", kafka,
               "--checkpoint", str(file.parent / "job"), "--until", "caught-up"]  # fmt: skip
    with subprocess.Popen(
        command, env={**os.environ, "MILLSTREAM_HOLD": str(place)}, stderr=subprocess.PIPE
    ) as process:
        if hold is None:
            said = process.communicate(timeout=240)[1]
            assert process.returncode == 0, said
            return
        kill_when_held(process, place, hold)


@pytest.mark.timeout(480)
def test_a_job_killed_while_it_reads_the_table_leaves_no_event_without_its_row(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    fill(broker.address, topic)
    file = tmp_path / "job.py"
    file.write_text(FILE.format(topic=topic))
    ends = None
    for hold in ("after intent", "before commit", "after commit"):
        run(file, broker.address, hold=hold)
        head = open_checkpoint(tmp_path / "job").head()
        assert not sum(head.sources[topic].next.values() if topic in head.sources else ())
        ends = ends or head.table_ends
        assert head.table_ends == ends
    with ms.Producer(broker.address) as producer:
        producer.send(f"{topic}.table", json.dumps({"k": 0, "v": -5}).encode(), key=b"0")
    run(file, broker.address)

    assert open_checkpoint(tmp_path / "job").head().table_ends == ends
    found: dict[int, int | None] = {}
    with ms.Consumer(f"{topic}.out", kafka=broker.address, until_end=True) as consumer:
        for record in consumer:
            row = json.loads(record.value or b"")
            assert row["id"] not in found
            found[row["id"]] = row["v"]
    assert found == {n: 3 * (ROWS - 1 - n) for n in range(EVENTS)}
