"""Rates of reading a topic, by stored records and group members; printed, under `make soak`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.kafka.shortly import Log, eventually

from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.soak

COUNT = 400_000
BACKLOG = 10 * COUNT
_VALUE = b"x" * 100
MEMBER = """
import sys, time
import millstream as ms
address, topic, group = sys.argv[1:4]
with ms.Consumer(topic, kafka=address, group=group) as consumer:
    for batch in consumer.batches(rows=50_000):
        print(time.time(), batch.num_rows, flush=True)
"""


def rate_at_the_end(log: Log, topic: str) -> float:
    """Records per second at the end of the topic."""
    info = log.topics.describe(topic)
    start = {part.partition: (part.latest or 0) - COUNT // 4 for part in info.partitions}
    began, read = time.monotonic(), 0
    with log.consumer(topic, start=start, until_end=True) as consumer:
        for batch in consumer.batches():
            read += batch.num_rows
    assert read == COUNT
    return read / (time.monotonic() - began)


def test_the_rate_does_not_depend_on_the_number_of_stored_records(
    broker: ThrowAwayBroker, topic: str
) -> None:
    log = Log(broker.address)
    log.topics.create(topic, partitions=4)
    rates = []
    for more in (COUNT, 9 * COUNT):
        fill(log, topic, more)
        rates.append(max(rate_at_the_end(log, topic) for _ in range(3)))
    print(f"\n1× stored: {rates[0]:,.0f} records/s; 10× stored: {rates[1]:,.0f} records/s")

    assert rates[1] > rates[0] / 2


def fill(log: Log, topic: str, count: int) -> None:
    with Producer(log.address) as producer:
        for number in range(count):
            producer.send(topic, _VALUE, partition=number % 4)


@pytest.mark.parametrize("members", [1, 2, 4])
def test_members_share_the_partitions(
    members: int, broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    log = Log(broker.address)
    log.topics.create(topic, partitions=4)
    group = f"{topic}-{members}"
    with ExitStack() as stack:
        files = [tmp_path / str(number) for number in range(members)]
        workers = [stack.enter_context(working(log, topic, group, file)) for file in files]
        eventually(lambda: len(joined(log, group)) == members, within=120)
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        fill(log, topic, BACKLOG)
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
        eventually(
            lambda: sum(rows for f in files for _, rows in batches_in(f)) >= BACKLOG, within=300
        )
    batches = [batches_in(file) for file in files]
    shares = [sum(rows for _, rows in mine) for mine in batches]
    print(f"\n{members} members: {common_rate(batches):,.0f} records/s of a backlog, {shares}")

    assert sum(shares) == BACKLOG
    assert min(shares) > BACKLOG / members / 2


def common_rate(batches: list[list[tuple[float, int]]]) -> float:
    """Records per second from the last member's first batch to the first member's last one."""
    began, ended = max(mine[0][0] for mine in batches), min(mine[-1][0] for mine in batches)
    rows = sum(rows for mine in batches for at, rows in mine if began < at <= ended)
    return rows / (ended - began)


@contextmanager
def working(log: Log, topic: str, group: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", MEMBER, log.address, topic, group]
    with file.open("w") as output, subprocess.Popen(command, stdout=output) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def joined(log: Log, group: str) -> list[str]:
    """The members of the group that have partitions."""
    if group not in [found.name for found in log.topics.groups()]:
        return []
    return [member.id for member in log.topics.group(group).members if not member.idle]


def batches_in(file: Path) -> list[tuple[float, int]]:
    """The time and rows of each batch, without a line that is still being written."""
    lines = [line.split() for line in file.read_text().split("\n")[:-1]]
    return [(float(at), int(rows)) for at, rows in lines]
