"""How fast the log is read: whatever it holds, and by how many. Printed, under `make soak`."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.log.shortly import Log

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.soak

COUNT = 400_000
MEMBER = """
import sys, time
import millstream as ms
address, topic, group, wanted = sys.argv[1:5]
read = 0
with ms.Consumer(topic, kafka=address, group=group) as consumer:
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in consumer.batches(rows=20_000):
        read += batch.num_rows
        print(batch.num_rows, flush=True)
"""


def fill(log: Log, topic: str, count: int) -> None:
    log.fill(topic, [b"x" * 100] * count)


def rate_at_the_end(log: Log, topic: str) -> float:
    """Records a second over the last ones of the topic."""
    info = log.topics.describe(topic)
    start = {part.partition: part.latest - COUNT // 4 for part in info.partitions}
    began, read = time.monotonic(), 0
    with log.consumer(topic, start=start, until_end=True) as consumer:
        for batch in consumer.batches():
            read += batch.num_rows
    assert read == COUNT
    return read / (time.monotonic() - began)


def test_reading_does_not_depend_on_what_is_stored(broker: ThrowAwayBroker, topic: str) -> None:
    log = Log(broker.address)
    log.topics.create(topic, partitions=4)
    rates = []
    for more in (COUNT, 9 * COUNT):
        with_each = [b"x" * 100] * (more // 4)
        with_partitions(log, topic, with_each)
        rates.append(max(rate_at_the_end(log, topic) for _ in range(3)))
    print(f"\n1× stored: {rates[0]:,.0f} records/s; 10× stored: {rates[1]:,.0f} records/s")

    assert rates[1] > rates[0] / 2


def with_partitions(log: Log, topic: str, values: list[bytes]) -> None:
    from millstream.log.producer import Producer

    with Producer(log.address) as producer:
        for partition in range(4):
            for value in values:
                producer.send(topic, value, partition=partition)


@pytest.mark.parametrize("members", [1, 2, 4])
def test_members_share_the_work(members: int, broker: ThrowAwayBroker, topic: str) -> None:
    log = Log(broker.address)
    log.topics.create(topic, partitions=4)
    with_partitions(log, topic, [b"x" * 100] * (COUNT // 4))
    group = f"rate-{members}"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, log.address, topic, group, str(COUNT)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(members)
    ]  # fmt: skip
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        began = time.monotonic()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        deadline = began + 120
        while log.topics.group(group).lag if _exists(log, group) else True:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        seconds = time.monotonic() - began
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    print(f"\n{members} members: {COUNT / seconds:,.0f} records/s, joining included")


def _exists(log: Log, group: str) -> bool:
    return group in [found.name for found in log.topics.groups()]
