"""kill -9 with `Spark` and `ForeachBatch` as sinks: at least once, a repeat is the same batch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.faults.running import Run
from tests.faults.test_sinks_kills import AFTER, BEFORE, kill_at
from tests.faults.verifier import Log, compared, expected

from millstream.sinks.spark.writer import SENT

if TYPE_CHECKING:
    from tests.faults.driver import Config
    from tests.faults.feed import Feed

Rows = list[tuple[Any, Any]]
MOMENTS = [(BEFORE, 1), (SENT, 1), (AFTER, 1), (BEFORE, 2), (SENT, 2), (AFTER, 2), (AFTER, 3)]


@dataclass
class Calls:
    """The calls of the function: the rows of each, by the id of its batch."""

    of_batch: dict[int, list[Rows]]

    @classmethod
    def read(cls, folder: Path) -> Calls:
        found: dict[int, list[Rows]] = {}
        for file in (folder / "calls").glob("*.json"):
            call = json.loads(file.read_text())
            rows = [(id_, (key, amount, ts)) for id_, key, amount, ts in call["rows"]]
            found.setdefault(call["batch"], []).append(sorted(rows))
        return cls(found)

    def repeated(self) -> set[int]:
        """The batches that were passed more than once."""
        return {batch for batch, calls in self.of_batch.items() if len(calls) > 1}

    def once(self) -> Rows:
        """The rows of a function that skips the ids it has seen."""
        return [row for calls in self.of_batch.values() for row in calls[0]]


@pytest.fixture
def to_frames(config: Config, tmp_path: Path) -> Config:
    folder = tmp_path / "frames"
    (folder / "calls").mkdir(parents=True)
    return replace(config, frames=str(folder))


def in_parquet(folder: Path) -> dict[str, Rows]:
    base = duckdb.connect()
    once = base.execute(f"select id, key, amount, epoch_us(ts) from '{folder}/once/*.parquet'")
    rows = [(i, (key, amount, at)) for i, key, amount, at in once.fetchall()]
    panes = base.execute(
        f"select key, epoch_us(window_start), n, total from '{folder}/windows/*.parquet'"
    )
    return {"once": rows, "windows": [((k, s), (n, total)) for k, s, n, total in panes.fetchall()]}


def verdicts(config: Config) -> dict[str, dict[str, Any]]:
    """What Spark's files and the function's calls lack or have too much of, by DuckDB."""
    log, folder = Log(config.kafka), Path(str(config.frames))
    records = log.records(config.topic, log.topics()[config.topic])
    windows, once, _ = expected([(r.partition(), r.offset(), r.value()) for r in records])
    files = in_parquet(folder)
    return {
        "once": compared(once, files["once"], set()),
        "windows": compared(windows, files["windows"], set()),
        "function": compared(once, Calls.read(folder).once(), set()),
    }


def finish(config: Config, folder: Path) -> None:
    with Run(replace(config, until="finished"), folder, name="last") as job:
        job.succeed()


def assert_nothing_lost(found: dict[str, dict[str, Any]], calls: Calls) -> None:
    for name, verdict in found.items():
        assert verdict["rows"], name
        assert not any(verdict[kind] for kind in ("lost", "phantom", "wrong")), (name, verdict)
    assert found["function"]["doubled"] == []
    assert all(call == of_batch[0] for of_batch in calls.of_batch.values() for call in of_batch)


@pytest.mark.timeout(600)
def test_a_batch_that_was_sent_and_not_recorded_is_sent_again_with_the_same_rows(
    to_frames: Config, feed: Feed, tmp_path: Path
) -> None:
    """Killed once behind Spark's append and once behind the function: those rows are there twice,
    and no others."""
    folder = Path(str(to_frames.frames))
    feed.send()
    kill_at((SENT, 1), to_frames, tmp_path, "append")
    appended = in_batch(folder)
    assert not Calls.read(folder).of_batch

    with Run(to_frames, tmp_path, name="function", hold=SENT) as job:
        job.wait_held(SENT)
        while not Calls.read(folder).of_batch:
            job.arm(SENT)
            job.release()
            job.wait_held(SENT)
        job.kill()
    [(killed, _)] = Calls.read(folder).of_batch.items()
    feed.send()
    feed.send()
    finish(to_frames, tmp_path)

    found, calls = verdicts(to_frames), Calls.read(folder)
    assert_nothing_lost(found, calls)
    assert calls.repeated() == {killed}
    assert found["once"]["doubled"] == sorted(map(str, appended))
    assert found["windows"]["doubled"] == []


def in_batch(folder: Path) -> set[int]:
    """The ids in Spark's files so far."""
    rows = duckdb.execute(f"select id from '{folder}/once/*.parquet'").fetchall()
    assert rows
    return {id_ for (id_,) in rows}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_is_lost_by_kills_at_every_step_of_every_sink(
    to_frames: Config, feed: Feed, tmp_path: Path
) -> None:
    for number, (point, turn) in enumerate(MOMENTS):
        feed.send()
        kill_at((point, turn), to_frames, tmp_path, f"{number}")
    feed.send()
    finish(to_frames, tmp_path)

    found = verdicts(to_frames)
    assert_nothing_lost(found, Calls.read(Path(str(to_frames.frames))))
    assert found["once"]["doubled"], "no kill came between an append and its record"
