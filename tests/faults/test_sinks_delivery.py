"""`delivery=`: what a crash does to the last batch, and nothing worse.

The engine, its checkpoint, the SQLite table and the folder of files are real; a crash is an
exception that nothing catches, at a step of the protocol.
"""

from __future__ import annotations

import itertools
import sqlite3
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.faults import verifier
from tests.faults.driver import DELAY, SCHEMA, SIZE
from tests.faults.small_world import TOPIC, Environment, Small, install_fault_points

import millstream as ms
from millstream.engine import kafka_environment as environment_module
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.sinks.spec import Delivery, Sink, Writer

AFTER_SINK, BEFORE_COMMIT, AFTER_COMMIT = "after a sink's commit", "before commit", "after commit"
BEFORE_SINK, AFTER_PREPARED = "before a sink's commit", "after prepared"
Row = tuple[Any, Any]


class Outside(Environment):
    """Topics in memory, and real sinks."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__()
        runs = itertools.count(1)
        self._real = KafkaEnvironment("small", None, delivery=delivery, epoch=lambda: next(runs))

    def writer_of(self, sink: Sink) -> str:
        return self._real.writer_of(sink)

    def writer(self, name: str, job: str) -> Writer:  # type: ignore[override]
        return self._real.writer(name, job)


class Job:
    """One job that writes to a table and to files, and crashes in the second batch."""

    def __init__(
        self, folder: Path, spark: SparkSession, delivery: Delivery, patch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
        panes = rows.by("key").window(ms.tumbling(SIZE)).agg(n=ms.count(), total=ms.sum("amount"))
        pipeline = ms.Pipeline(
            "small",
            panes.to(ms.Sqlite(folder / "out.db", "windows")),
            panes.to(ms.Files(folder / "files")),
            delivery=delivery,
        )
        self.small = Small(folder / "checkpoint", spark, pipeline)
        environment = self.small.environment = Outside(delivery)
        install_fault_points(environment, patch)
        patch.setattr(environment_module, "reached", lambda point, number: environment.reach(point))

    def run(self, crash: str) -> None:
        """Run a batch, crash in the second one, then run to the finish."""
        self.small.feed(24)
        self.small.step()
        self.small.feed(24)
        self.small.crash_at(crash)
        self.small.step()
        assert not self.small.environment.at, f"{crash} was not reached"
        self.small.feed(24)
        self.small.finish()

    def verdicts(self) -> dict[str, Mapping[str, Any]]:
        parts = self.small.environment.log.records[TOPIC]
        records = [(p, r["offset"], r["value"]) for p, part in parts.items() for r in part]
        wanted, _, _ = verifier.expected(records)
        return {"table": verifier.compared(wanted, self._table(), set()),
                "files": verifier.compared(wanted, self._files(), set())}  # fmt: skip

    def _table(self) -> list[Row]:
        connection = sqlite3.connect(self.folder / "out.db")
        found = connection.execute("select key, window_start, n, total from windows").fetchall()
        connection.close()
        return [((k, verifier.micros(at)), (n, total)) for k, at, n, total in found]

    def _files(self) -> list[Row]:
        question = "select key, epoch_us(window_start), n, total from read_parquet(?)"
        found = duckdb.connect().execute(question, [f"{self.folder}/files/*.parquet"]).fetchall()
        return [((k, at), (n, total)) for k, at, n, total in found]


def found_in(verdict: Mapping[str, Any]) -> set[str]:
    """The kinds of differences in a verdict."""
    return {kind for kind in ("lost", "doubled", "phantom", "wrong") if verdict[kind]}


@pytest.fixture
def job(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Job:  # fmt: skip
    delivery: Delivery = request.param
    return Job(tmp_path, spark, delivery, monkeypatch)


@pytest.mark.parametrize("job", ["exactly_once"], indirect=True)
@pytest.mark.parametrize("crash", [BEFORE_SINK, AFTER_SINK, BEFORE_COMMIT, AFTER_COMMIT])
def test_exactly_once_neither_loses_nor_repeats(job: Job, crash: str) -> None:
    job.run(crash)
    assert [found_in(verdict) for verdict in job.verdicts().values()] == [set(), set()]


@pytest.mark.parametrize("job", ["at_least_once"], indirect=True)
@pytest.mark.parametrize(
    ("crash", "repeated"),
    [(AFTER_PREPARED, False), (BEFORE_SINK, False), (AFTER_SINK, True), (BEFORE_COMMIT, True),
     (AFTER_COMMIT, False)],
)  # fmt: skip
def test_at_least_once_repeats_the_uncommitted_batch_and_loses_nothing(
    job: Job, crash: str, repeated: bool
) -> None:
    job.run(crash)
    verdicts = job.verdicts()
    assert found_in(verdicts["table"]) == ({"doubled"} if repeated else set())
    # A batch's file is named by its intent, so writing it again replaces it.
    assert found_in(verdicts["files"]) == set()


@pytest.mark.parametrize("job", ["at_most_once"], indirect=True)
@pytest.mark.parametrize(
    ("crash", "table", "files"),
    [
        (AFTER_PREPARED, False, False),
        (BEFORE_COMMIT, False, False),
        (AFTER_COMMIT, True, True),
        (BEFORE_SINK, True, True),
        (AFTER_SINK, False, True),
    ],
)
def test_at_most_once_loses_the_unsent_batch_and_repeats_nothing(
    job: Job, crash: str, table: bool, files: bool
) -> None:
    job.run(crash)
    verdicts = job.verdicts()
    assert found_in(verdicts["table"]) == ({"lost"} if table else set())
    assert found_in(verdicts["files"]) == ({"lost"} if files else set())
    second = {start for _, start in _keys(verdicts["files"]["lost"])}
    assert len(second) <= 3, "more than one batch was lost"


def _keys(lost: list[str]) -> list[tuple[str, str]]:
    return [(key, start) for key, _, start in (text.strip("()").partition(", ") for text in lost)]


def test_an_unknown_delivery_is_refused_while_building() -> None:
    rows = ms.read(ms.Topic("bids", schema="auction long"))
    with pytest.raises(InvalidSpec, match="needs one of exactly_once, at_least_once, at_most_once"):
        ms.Pipeline("p", rows.to(ms.Topic("out")), delivery="twice")  # type: ignore[arg-type]
