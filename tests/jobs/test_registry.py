"""The job registry, and the run log of a job."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import AlreadyRunning, Damaged, NotFound, Unavailable
from millstream.jobs import database
from millstream.jobs.policy import Ending
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.run_log import BATCHES_KEPT, RunLog, RunLogReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def job(name: str = "hot") -> JobRow:
    return JobRow(name=name, application="shop", owner="ann", file="hot.py", pipeline=name,
                  kafka=None, checkpoint="jobs/hot", lane=None, submitted=1.0)  # fmt: skip


def facts(batch: int, rows: int = 10, seconds: float = 0.2) -> dict[str, Any]:
    return {"batch": batch, "rows": rows, "late": 1, "dead": 2, "extra": 0, "bytes": 100,
            "seconds": seconds, "outputs": {"hot": 3}, "phases": {"run": 0.1}}  # fmt: skip


def test_a_job_is_found_again_by_another_reader(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        with JobRegistry(tmp_path / "jobs.db", read_only=True) as other:
            assert other.job("hot") == job()


def test_a_second_job_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        with pytest.raises(AlreadyRunning, match="jobs restart hot"):
            registry.add(job())


def test_an_unknown_job_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        with pytest.raises(NotFound, match="'cold'; the jobs are hot"):
            registry.job("cold")


def test_a_registry_of_an_earlier_version_gets_the_new_column(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with JobRegistry(path) as registry:
        registry.add(job())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE jobs DROP COLUMN share")
    with JobRegistry(path, read_only=True) as early:
        assert early.job("hot") == job()
    with JobRegistry(path) as registry:
        registry.add(replace(job("cold"), share=True))
        assert [found.share for found in registry.all()] == [True, False]


def test_a_registry_can_be_read_before_the_first_job(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db", read_only=True) as early:
        assert early.all() == []
        with JobRegistry(tmp_path / "jobs.db") as registry:
            registry.add(job())
        assert [found.name for found in early.all()] == ["hot"]


def test_a_request_for_a_new_run_resets_earlier_failures(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        registry.update("hot", failures=9, retry_at=5.0)
        wished = registry.want("hot", "running", restart=True)
        assert (wished.asked, wished.failures, wished.retry_at) == (2, 0, 0.0)


def test_a_later_request_does_not_restore_a_removed_job(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        registry.want("hot", "removed")
        assert registry.want("hot", "running").wanted == "removed"


def test_events_are_listed_oldest_first_and_per_job(tmp_path: Path) -> None:
    with JobRegistry(tmp_path / "jobs.db") as registry:
        registry.add(job())
        registry.add(job("cold"))
        registry.update("hot", "launched", "r1")
        assert [event.event for event in registry.events("hot")] == ["submitted", "launched"]
        assert len(registry.events()) == 3


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("no database, but long enough to look like one" * 100)
    with pytest.raises(Damaged, match=r"jobs\.db must be a database"):
        JobRegistry(tmp_path / "jobs.db")


def test_a_locked_registry_is_reported_and_the_next_request_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_PATIENCE", 0.05)
    with JobRegistry(tmp_path / "jobs.db") as registry, JobRegistry(tmp_path / "jobs.db") as other:
        registry.add(job())
        with (
            database.transaction(other._writing),
            pytest.raises(Unavailable, match=r"jobs\.db must be readable.* got database is locked"),
        ):
            registry.want("hot", "stopped")
        assert registry.job("hot").wanted == "running"
        assert registry.want("hot", "stopped").wanted == "stopped"


def test_a_folder_with_the_name_of_the_registry_is_reported(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    with pytest.raises(Unavailable, match=r"jobs\.db must be readable.* unable to open"):
        JobRegistry(tmp_path / "jobs.db")


def _come_and_go(path: str) -> None:
    with JobRegistry(_path(path)) as registry:
        registry.add_event("passed by")


def test_a_second_opening_does_not_release_the_locks_of_the_first(tmp_path: Path) -> None:
    """Closing a descriptor of the file beside SQLite would: the log is then removed in use."""
    path = tmp_path / "jobs.db"
    with JobRegistry(path) as registry:
        registry.add(job())
        JobRegistry(path).close()
        _in_a_process(_come_and_go, path)
        registry.want("hot", "stopped")
        with JobRegistry(path, read_only=True) as reader:
            assert [event.event for event in reader.events()] == [
                "submitted", "passed by", "requested",
            ]  # fmt: skip
        _in_a_process(_come_and_go, path)
        assert [event.event for event in registry.events()][3:] == ["passed by"]


def _write_and_die(path: str) -> None:
    with JobRegistry(_path(path)) as registry:
        registry.add(job())
        registry.want("hot", "stopped")
        os.kill(os.getpid(), signal.SIGKILL)


def _path(text: str) -> Path:
    from pathlib import Path

    return Path(text)


def _in_a_process(target: Callable[[str], None], path: Path) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(str(path),))
    process.start()
    process.join(60)
    return process.exitcode


def test_written_rows_survive_a_killed_writer(tmp_path: Path) -> None:
    assert _in_a_process(_write_and_die, tmp_path / "jobs.db") == -signal.SIGKILL
    with JobRegistry(tmp_path / "jobs.db") as registry:
        assert registry.job("hot").wanted == "stopped"


def test_a_run_log_adds_up_batches_over_runs(tmp_path: Path) -> None:
    for run, batches in (("r1", (1, 2)), ("r2", (3,))):
        run_log = RunLog(tmp_path / "facts.db", run, 1)
        for batch in batches:
            run_log.batch(facts(batch))
        run_log.beat(0.0, {"bids": {0: 7}})
        run_log.close()
    reader = RunLogReader(tmp_path / "facts.db")
    totals = reader.totals()
    assert totals["rows"] == {"": 30}
    assert totals["out"] == {"hot": 9}
    assert totals["duration"] == {"0.25": 3}
    assert [entry.facts["batch"] for entry in reader.batches()] == [1, 2, 3]
    assert reader.positions() == {"bids": {0: 7}}
    reader.close()


def test_a_run_log_keeps_only_the_last_batches(tmp_path: Path) -> None:
    run_log = RunLog(tmp_path / "facts.db", "r1", 1)
    for batch in range(1, BATCHES_KEPT + 11):
        run_log.batch(facts(batch))
    run_log.beat(0.0, None)
    assert run_log.last_batch() == BATCHES_KEPT + 10
    run_log.close()
    reader = RunLogReader(tmp_path / "facts.db")
    assert len(reader.batches()) == BATCHES_KEPT
    assert reader.totals()["batches"] == {"driver": BATCHES_KEPT + 10}
    reader.close()


def test_a_run_log_has_how_a_run_ended_and_nothing_for_a_killed_run(tmp_path: Path) -> None:
    ending = Ending(code=3, kind="InvalidSpec", sentence="a column is needed")
    for run in ("r1", "r2"):
        run_log = RunLog(tmp_path / "facts.db", run, 1)
        if run == "r1":
            run_log.end(ending)
        run_log.close()
    reader = RunLogReader(tmp_path / "facts.db")
    first, second = reader.run("r1"), reader.run("r2")
    assert first is not None
    assert second is not None
    assert (first.ending, second.ending) == (ending, None)
    reader.close()


def test_a_run_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    reader = RunLogReader(tmp_path / "facts.db")
    assert (reader.run(), reader.batches(), reader.totals()) == (None, [], {})
