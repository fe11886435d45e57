"""With `batch` above a second rows gather; a backlog, an end and a stop do not wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.shortly import Log, eventually

import millstream as ms
from millstream.engine.job import Job
from millstream.engine.lanes import planner
from millstream.engine.lanes.planner import pause_of

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

SCHEMA = "id bigint not null, text string"
PATIENCE = 60.0
ENDLESS = 10 * PATIENCE


@pytest.fixture
def log(broker: ThrowAwayBroker) -> Log:
    return Log(broker.address)


def rows(first: int, last: int, text: str = "") -> list[bytes]:
    return [b'{"id":%d,"text":"%s"}' % (n, text.encode()) for n in range(first, last)]


class Paced:
    """A job with batches of a given length; `seen` has the rows of each batch."""

    def __init__(self, log: Log, topic: str, folder: Path, seconds: int, **options: Any) -> None:
        self.seen: list[int] = []
        stream = ms.read(ms.Topic(topic, schema=SCHEMA))
        pipeline = ms.Pipeline(topic, stream.to(ms.Topic(f"{topic}.out")), batch=f"{seconds} s")
        self.job = Job(
            pipeline, kafka=log.address, checkpoint=folder,
            on_batch=lambda facts, lag: self.seen.append(facts.rows), **options,
        )  # fmt: skip

    def read(self, count: int) -> None:
        eventually(lambda: sum(self.seen) >= count or self.job.ended(), within=PATIENCE)
        assert sum(self.seen) == count


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> int:
    """A `batch` in seconds with a pause longer than the test."""
    monkeypatch.setattr(planner, "_LONGEST", ENDLESS)
    return int(ENDLESS / 0.1) + 2


def test_the_pause_is_a_tenth_of_what_exceeds_a_second_and_at_most_two_seconds() -> None:
    given = (0.1, 1.0, 3.0, 10.0, 21.0, 3600.0)
    assert [pause_of(seconds) for seconds in given] == pytest.approx([0, 0, 0.2, 0.9, 2, 2])


def test_rows_gather_during_a_pause(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", 11)
    paced.job.start()
    began = time.monotonic()
    for number in range(25):
        log.fill(topic, rows(number, number + 1))
        time.sleep(0.03)
    paced.read(25)
    taken = time.monotonic() - began
    paced.job.stop()
    paced.job.wait(PATIENCE)

    assert len(paced.seen) <= taken / pause_of(11) + 2


def test_a_stop_ends_a_pause(log: Log, topic: str, tmp_path: Path, endless: int) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 10))
    paced = Paced(log, topic, tmp_path / "job", endless)
    paced.job.start()
    paced.read(10)
    paced.job.stop()

    assert paced.job.ended(PATIENCE)
    paced.job.wait()


def test_a_backlog_is_read_without_a_pause(
    log: Log, topic: str, tmp_path: Path, endless: int
) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 60_000, "x" * 100))
    paced = Paced(log, topic, tmp_path / "job", endless)
    paced.job.start()
    paced.read(60_000)
    paced.job.stop()
    paced.job.wait(PATIENCE)

    assert len(paced.seen) > 1


def test_a_run_to_the_end_has_no_pause(log: Log, topic: str, tmp_path: Path, endless: int) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 10))
    paced = Paced(log, topic, tmp_path / "job", endless, until="caught_up")
    paced.job.start()
    paced.job.wait(PATIENCE)

    assert paced.seen == [10]
