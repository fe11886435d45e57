"""Rows wait for each other up to `latency`; a backlog, an end and a stop do not wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

import pytest
from tests.kafka.shortly import Log, eventually

import millstream as ms
from millstream.engine.job import Job
from millstream.engine.pace import pace
from millstream.errors import InvalidSpec
from millstream.sources.kafka.reader import TopicReader
from millstream.sources.kafka.watch import TopicWatch

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.metrics.facts import Facts
    from millstream.sources.spec import Extent
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
    """A job with a given latency; `seen` has the rows of each batch."""

    def __init__(
        self, log: Log, topic: str, folder: Path, latency: str,
        until: Literal["caught_up"] | None = None, engine: Literal["spark", "driver"] = "driver",
    ) -> None:  # fmt: skip
        self.seen: list[int] = []
        self.when: list[float] = []
        stream = ms.read(ms.Topic(topic, schema=SCHEMA))
        pipeline = ms.Pipeline(topic, stream.to(ms.Topic(f"{topic}.out")), latency=latency,
                               engine=engine)  # fmt: skip
        self.job = Job(
            pipeline, kafka=log.address, checkpoint=folder, on_batch=self._on, until=until
        )

    def _on(self, facts: Facts, lag: dict[str, int]) -> None:
        self.seen.append(facts.rows)
        self.when.append(time.monotonic())

    def read(self, count: int) -> None:
        eventually(lambda: sum(self.seen) >= count or self.job.ended(), within=PATIENCE)
        assert sum(self.seen) == count

    def end(self) -> None:
        self.job.stop()
        self.job.wait(PATIENCE)


def test_rows_that_come_steadily_share_batches(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", "1 second")
    paced.job.start()
    began = time.monotonic()
    for number in range(30):
        log.fill(topic, rows(number, number + 1))
    paced.read(30)
    taken = time.monotonic() - began
    paced.end()

    assert len(paced.seen) <= taken + 2


def test_with_a_latency_of_zero_a_batch_follows_at_once(
    log: Log, topic: str, tmp_path: Path
) -> None:
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", "0 seconds")
    paced.job.start()
    for number in range(20):
        log.fill(topic, rows(number, number + 1))
        paced.read(number + 1)
    paced.end()

    assert len(paced.seen) == 20


@pytest.mark.usefixtures("without_looks")
def test_the_first_row_after_a_quiet_time_does_not_wait(
    log: Log, topic: str, tmp_path: Path
) -> None:
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds")
    paced.job.start()
    eventually(lambda: watchers(topic) == 1, within=PATIENCE)
    log.fill(topic, rows(0, 1))
    paced.read(1)
    paced.end()

    assert paced.seen == [1]
    eventually(lambda: watchers(topic) == 0, within=PATIENCE)


@pytest.fixture
def without_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle run only does something when it is woken."""
    monkeypatch.setattr(pace, "_FASTEST", ENDLESS)
    monkeypatch.setattr(pace, "_SLOWEST", ENDLESS)


def watchers(topic: str) -> int:
    return sum(thread.name == f"watch {topic}" for thread in threading.enumerate())


def test_an_idle_run_does_not_ask_again_and_again(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    extent = TopicReader.extent

    def counted(reader: TopicReader) -> Extent:
        asked.append(time.monotonic())
        return extent(reader)

    monkeypatch.setattr(TopicReader, "extent", counted)
    log.topics.create(topic)
    log.fill(topic, rows(0, 10))
    paced = Paced(log, topic, tmp_path / "job", "250 milliseconds")
    paced.job.start()
    paced.read(10)
    asked.clear()
    time.sleep(2)
    looks = len(asked)
    paced.end()

    assert 1 <= looks <= 10


@pytest.mark.usefixtures("without_looks")
def test_a_watch_survives_an_error_and_finds_the_rows_written_meanwhile(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, failures = TopicWatch.wait, list[int]()

    def failing(watch: TopicWatch, ends: dict[int, int]) -> bool:
        if len(failures) < 2:
            failures.append(1)
            log.fill(topic, rows(0, 1))
            raise OSError("connection reset")
        return wait(watch, ends)

    monkeypatch.setattr(TopicWatch, "wait", failing)
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", "0 seconds")
    paced.job.start()
    eventually(lambda: len(failures) == 2, within=PATIENCE)
    paced.read(2)
    log.fill(topic, rows(2, 3))
    paced.read(3)
    paced.end()

    assert sum(paced.seen) == 3


def test_a_stop_ends_a_wait(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 10))
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds")
    paced.job.start()
    paced.read(10)
    paced.job.stop()

    assert paced.job.ended(PATIENCE)
    paced.job.wait()


@pytest.mark.usefixtures("without_looks")
def test_a_stop_ends_an_idle_run(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds")
    paced.job.start()
    eventually(lambda: watchers(topic) == 1, within=PATIENCE)
    paced.job.stop()

    assert paced.job.ended(PATIENCE)


def test_a_backlog_is_read_without_a_wait(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 60_000, "x" * 100))
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds")
    paced.job.start()
    paced.read(60_000)
    paced.end()

    assert len(paced.seen) > 1


def test_rows_that_fill_a_batch_end_the_wait(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 10, "x" * 100))
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds")
    paced.job.start()
    paced.read(10)
    log.fill(topic, rows(10, 60_010, "x" * 100))
    eventually(lambda: sum(paced.seen) > 10, within=PATIENCE)
    paced.end()

    assert len(paced.seen) > 1


def test_a_run_to_the_end_has_no_wait(log: Log, topic: str, tmp_path: Path) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(0, 10))
    paced = Paced(log, topic, tmp_path / "job", f"{ENDLESS:.0f} seconds", until="caught_up")
    paced.job.start()
    paced.job.wait(PATIENCE)

    assert paced.seen == [10]


def test_a_negative_latency_is_refused() -> None:
    stream = ms.read(ms.Memory([{"n": 1}], name="ones"))
    with pytest.raises(InvalidSpec, match="latency needs a duration of zero or more"):
        ms.Pipeline("p", stream.to(ms.Memory("out")), latency="-1 second")
