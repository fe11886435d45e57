"""Rewind: the same results again, in new outputs or the same ones, whatever is killed."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.record_files import RecordFile, names
from tests.faults.small_world import Crash, Environment, LedgerWriter, Small, install_fault_points

import millstream as ms
from millstream.engine.checkpoint import checkpoint, housekeeping
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.recovery import unfinished_rewind
from millstream.engine.recovery.lost import skip_lost
from millstream.engine.recovery.rewind import Rewinder
from millstream.engine.recovery.unfinished_rewind import POINTS, Rewind
from millstream.errors import AlreadyRunning, Damaged, DataGone, InvalidInput, NotFound
from millstream.metrics.facts import moment_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.engine.recovery.rewind import To
    from millstream.sinks.spec import Sink, Staged


class RecordingEnvironment(Environment):
    """Records the rewind marks of rows, and which outputs exist already."""

    def __init__(self) -> None:
        super().__init__()
        self.again: list[tuple[str, int | None, int]] = []
        self.existing_names: list[str] = []

    def existing(self, sinks: Sequence[Sink]) -> list[str]:
        return [sink.name for sink in sinks if sink.name in self.existing_names]

    def writer(self, name: str, job: str) -> Any:
        writer = super().writer(name, job)
        write = writer.write

        def recorded(intent: str, batch: int, outputs: Sequence[Staged]) -> None:
            self.again += [(staged.output, staged.again, staged.rows) for staged in outputs]
            write(intent, batch, outputs)

        vars(writer)["write"] = recorded
        return writer


@pytest.fixture
def job(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A job of three batches, an hour of its clock apart."""
    job = Small(tmp_path / "checkpoint", spark)
    job.environment = RecordingEnvironment()
    install_fault_points(job.environment, monkeypatch)
    monkeypatch.setattr(
        unfinished_rewind, "reached", lambda point, number: job.environment.reach(point)
    )
    for _ in range(3):
        job.feed()
        job.step()
        job.environment.now += 3_600_000_000
    return job


def rewind(job: Small, to: To, *, into: str | None = None, again: bool = False) -> Rewind:
    opened = Rewinder(job.pipeline, Checkpoint(job.folder), job.environment)
    return opened.rewind(to, into=into, again=again)


def panes(job: Small, output: str = "out") -> Counter[tuple[Any, ...]]:
    """The panes in an output, each with its count."""
    return Counter(
        (row["key"], row["window_start"], row["n"], row["total"])
        for _, name, row in job.environment.sinks.rows
        if name == output
    )


def test_new_outputs_from_the_start_equal_those_of_a_fresh_run(job: Small) -> None:
    rewind(job, "start", into="-2")
    job.feed()
    job.finish()

    assert job.green("out-2")
    assert not any(again for _, again, _ in vars(job.environment)["again"])


def test_new_outputs_from_a_batch_hold_later_results_and_the_job_keeps_them(
    job: Small,
) -> None:
    before = panes(job)
    rewind(job, 2, into="-2")
    job.step()
    first = panes(job, "out-2")
    job.feed()
    job.finish()

    assert panes(job) == before
    assert first
    assert first <= before
    whole = Small(job.folder.with_name("whole"), job._spark)
    whole.feed(48)
    whole.finish()
    assert panes(job, "out-2") < panes(whole)
    assert panes(job, "out-2") | before == panes(whole)


def test_only_rows_that_are_sent_again_are_marked(job: Small) -> None:
    before = panes(job)
    job.feed()
    number = rewind(job, 1, again=True).batch
    job.finish()

    after = panes(job)
    sent_again = after - (after & Counter(dict.fromkeys(after, 1)))
    assert set(before) >= set(sent_again)
    assert sent_again
    counted: Counter[int | None] = Counter()
    for _, again, rows in vars(job.environment)["again"]:
        counted[again] += rows
    assert counted[number] == sum(sent_again.values())
    assert set(counted) == {None, number}
    assert set(after.values()) == {1, 2}


def test_a_finished_job_that_is_rewound_finishes_with_the_same_results(job: Small) -> None:
    job.finish()
    assert job.green()
    before = panes(job)
    rewind(job, "start", again=True)
    job.finish()

    assert panes(job) == before + before


def test_a_time_selects_the_newest_commit_before_it(job: Small) -> None:
    at = moment_of(job.environment.now - 2 * 3_600_000_000)
    assert at is not None
    assert rewind(job, at, into="-2").to == 2
    with pytest.raises(NotFound, match="batches 1 to"):
        rewind(job, moment_of(0) or "start", into="-3")


def test_numbers_are_never_reused_and_rewound_commits_are_not_targets(job: Small) -> None:
    assert rewind(job, 1, again=True).batch == 4
    job.step()
    with pytest.raises(NotFound, match="see `millstream commits`"):
        rewind(job, 3, again=True)
    assert rewind(job, 5, again=True).to == 5
    assert rewind(job, 1, again=True).batch == 7
    job.finish()
    assert set(panes(job).values()) <= {1, 2, 3, 4}


@pytest.mark.parametrize("point", [p for p in POINTS if p != "a sink was rewound"])
def test_a_rewind_into_new_outputs_killed_at_any_step_is_atomic(job: Small, point: str) -> None:
    job.crash_at(point)
    with pytest.raises(Crash):
        rewind(job, "start", into="-2")
    job.finish()

    assert job.green("out" if point == "before rewind" else "out-2")
    assert bool(panes(job, "out-2")) == (point != "before rewind")


@pytest.mark.parametrize("point", POINTS)
def test_a_rewind_of_the_same_outputs_killed_at_any_step_is_atomic(job: Small, point: str) -> None:
    before = panes(job)
    job.crash_at(point)
    with pytest.raises(Crash):
        rewind(job, "start", again=True)
    job.finish()

    after = panes(job)
    assert {pane for pane, count in after.items() if count == 2} == (
        set() if point == "before rewind" else set(before)
    )
    assert max(after.values()) <= 2
    rows = job.environment.sinks.rows
    job.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    assert job.green()


def test_a_pending_batch_is_abandoned_and_sent_again_once(job: Small) -> None:
    job.feed()
    job.crash_at("after a sink's commit")
    job.step()
    seen = panes(job)
    number = rewind(job, 3, again=True).batch
    job.finish()

    after = panes(job)
    assert set(after) >= set(seen)
    assert {pane for pane, count in after.items() if count == 2} == {
        pane for pane in seen if after[pane] == 2
    }
    assert any(again == number for _, again, _ in vars(job.environment)["again"])
    assert max(after.values()) == 2


def test_an_impossible_rewind_is_refused_and_changes_nothing(job: Small) -> None:
    before = names(job.folder)
    with pytest.raises(InvalidInput, match="one of --into SUFFIX and --again; got neither"):
        rewind(job, 1)
    with pytest.raises(InvalidInput, match="got both"):
        rewind(job, 1, into="-2", again=True)
    with pytest.raises(InvalidInput, match="--into needs 1 to 50 letters"):
        rewind(job, 1, into="a.b")
    vars(job.environment)["existing_names"].append("out-2")
    with pytest.raises(InvalidInput, match="do not exist yet; got out-2"):
        rewind(job, 1, into="-2")
    job.environment.log.first = 5
    with pytest.raises(DataGone, match="records are gone"):
        rewind(job, "start", into="-3")
    job.environment.log.first, job.environment.log.identity = 0, "second"
    with pytest.raises(DataGone, match="another one of that name"):
        rewind(job, 1, again=True)
    job.environment.log.identity = "first"
    with job.run(), pytest.raises(AlreadyRunning):
        rewind(job, 1, again=True)
    assert names(job.folder) == before


def test_an_output_in_use_by_another_job_is_found_before_the_rewind_starts(
    job: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(_writer: LedgerWriter, _expected: str | None) -> str | None:
        raise AlreadyRunning("one job at a time writes there", got="another")

    with monkeypatch.context() as patch:
        patch.setattr(LedgerWriter, "recover", taken)
        for word in ({"into": "-2"}, {"again": True}):
            with pytest.raises(AlreadyRunning):
                rewind(job, 1, **word)
    assert Checkpoint(job.folder).batches("rewind") == []
    job.finish()
    assert job.green()


def test_the_job_can_be_rewound_to_every_commit_in_its_history(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "FULL_EVERY", 4)
    monkeypatch.setattr(housekeeping, "SWEEP_EVERY", 3)
    monkeypatch.setattr(housekeeping, "COMPACT_BYTES", 0)
    monkeypatch.setattr(housekeeping, "BESIDE", False)
    job = Small(tmp_path / "checkpoint", spark)
    job.pipeline = ms.Pipeline("small", *job.pipeline.outputs, history="8 hours")
    job.environment = RecordingEnvironment()
    with job.run() as engine:
        for _ in range(18):
            job.feed(2)
            engine.step()
            job.environment.now += 3_600_000_000
    kept = Checkpoint(job.folder).lineage()
    assert 8 <= len(kept) < 16
    with pytest.raises(NotFound, match=f"batches {kept[0]} to 18"):
        rewind(job, kept[0] - 1, again=True)
    for target in reversed(kept):
        assert rewind(job, target, again=True).to == target
    job.finish()
    rows = job.environment.sinks.rows
    job.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    assert job.green()


def test_a_missing_state_file_is_named(job: Small) -> None:
    [step] = Checkpoint(job.folder).head(1).steps.values()
    name = next(file for manifest in step.manifests.values() for file in manifest.files)
    [state] = (job.folder / "state").rglob(name)
    state.unlink()
    with pytest.raises(Damaged, match=f"needs {re.escape(state.name)} to be intact"):
        rewind(job, 1, again=True)
    rewind(job, "start", into="-2")
    job.finish()
    assert job.green("out-2")


def test_a_rewind_to_before_a_damaged_commit_repairs_the_job(job: Small) -> None:
    with job.run():
        pass
    newest = RecordFile.of(job.folder, 3, "commit")
    newest.replace(lambda record: record.replace(b"batch", b"botch"))
    before = panes(job)
    rewind(job, 2, again=True)
    job.finish()

    assert set(panes(job)) >= set(before)
    rows = job.environment.sinks.rows
    job.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    assert job.green()


@pytest.mark.parametrize("kind", ["intent", "prepared"])
def test_a_rewind_to_before_a_damaged_pending_batch_repairs_the_job(job: Small, kind: str) -> None:
    job.feed()
    job.crash_at(f"after {kind}")
    job.step()
    with suppress(Crash):
        job.crash_at("in the middle of a run" if kind == "intent" else "before a sink's commit")
        with job.run():
            pass
    RecordFile.of(job.folder, 4, kind).replace(lambda record: record[:-20])
    with pytest.raises(Damaged, match="rewind to a commit before it with `millstream rewind`"):
        job.finish()
    rewind(job, 3, again=True)
    job.finish()
    assert job.green()


def test_an_old_copy_of_a_checkpoint_can_only_continue_into_new_outputs(job: Small) -> None:
    copy = job.folder.with_name("copy")
    shutil.copytree(job.folder, copy)
    job.feed()
    job.step()
    shutil.rmtree(job.folder)
    shutil.copytree(copy, job.folder)
    with pytest.raises(Damaged, match="--into SUFFIX` writes to new outputs"):
        job.finish()
    rewind(job, "start", into="-2")
    job.finish()
    assert job.green("out-2")


def skipped(job: Small) -> list[str]:
    return skip_lost(job.pipeline, Checkpoint(job.folder), job.environment)


def test_lost_rows_are_skipped_on_request_and_counted(job: Small) -> None:
    assert skipped(job) == []
    job.feed()
    job.crash_at("in the middle of a run")
    job.step()
    job.environment.log.first = 40
    with pytest.raises(DataGone, match="continue without them by `millstream run … --skip-lost`"):
        job.finish()
    assert skipped(job) == [f"rows/{p}: 4 records from offset 36 on are skipped" for p in (0, 1)]
    assert skipped(job) == []
    job.finish()

    counted = sum(n * times for (_, _, n, _), times in panes(job).items())
    assert counted == 2 * 48 - 2 * 4


def test_a_recreated_topic_is_read_from_its_beginning_on_request(job: Small) -> None:
    job.environment.log.identity = "second"
    with pytest.raises(DataGone, match="continue with the new one from its beginning"):
        job.finish()
    assert skipped(job) == ["'rows' was recreated: it is read from its beginning"]
    with job.run() as engine:
        assert {p: a for p, (a, _) in engine.waiting()["rows"].items()} == {0: 0, 1: 0}


def test_a_batch_that_may_have_reached_sinks_is_committed_before_a_skip(job: Small) -> None:
    job.feed()
    job.crash_at("before a sink's commit")
    job.step()
    job.feed()
    job.environment.log.first = 50
    with pytest.raises(InvalidInput, match="run the job once without --skip-lost"):
        skipped(job)
    with pytest.raises(DataGone):
        job.finish()
    assert len(skipped(job)) == 2
    job.finish()
    counted = sum(n * times for (_, _, n, _), times in panes(job).items())
    assert counted == 2 * 60 - 2 * 2
