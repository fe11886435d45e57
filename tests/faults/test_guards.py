"""Every guard of the protocol is needed: without it, the same fault does damage.

Each scenario runs twice: with the engine as it is, where the results are right or the run stops,
and with one guard switched off by the test, where the verifier finds rows lost, doubled or wrong.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.driver import SCHEMA
from tests.faults.small_world import TOPIC, Crash, LedgerWriter, Small, windows

import millstream as ms
from millstream.engine.checkpoint import housekeeping, ownership
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.records.segments import Part, Segments
from millstream.engine.lanes.work import Files
from millstream.engine.outputs import Outputs
from millstream.errors import AlreadyRunning, Damaged, Fenced, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

Patch = pytest.MonkeyPatch


def crashed(small: Small, point: str) -> None:
    """Crash the next batch at this point, then run to the finish."""
    small.crash_at(point)
    small.step()
    small.finish()


# -- the ledger is read before writing -------------------------------------------


def test_a_batch_that_the_sink_holds_is_not_sent_again(small: Small) -> None:
    crashed(small, "after a sink's commit")

    assert small.green(), small.verdict()


def test_without_the_ledger_it_is_sent_again(small: Small, monkeypatch: Patch) -> None:
    monkeypatch.setattr(LedgerWriter, "recover", lambda self, expected: expected)

    crashed(small, "after a sink's commit")

    assert small.verdict()["doubled"]


# -- an intent stays, even if more rows have arrived since -----------------------


def crash_then_feed(small: Small) -> None:
    """A crash after the sink has its rows; more rows arrive before the next run."""
    small.crash_at("after a sink's commit")
    small.step()
    small.feed()
    small.finish()


def test_a_redo_keeps_the_ranges_of_its_intent(small: Small) -> None:
    crash_then_feed(small)

    assert small.green(), small.verdict()


def test_without_the_intent_a_redo_is_another_batch(small: Small, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Checkpoint, "pending", lambda self, head: None)
    monkeypatch.setattr(Outputs, "_refuse_unknown", lambda self, name: None)

    crash_then_feed(small)

    assert small.verdict()["doubled"]


def test_without_the_intent_the_unknown_mark_in_the_ledger_stops_the_job(
    small: Small, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Checkpoint, "pending", lambda self, head: None)

    with pytest.raises(Damaged, match="ledger"):
        crash_then_feed(small)


# -- a prepared batch is not computed again ---------------------------------------


def crash_between_sinks(small: Small) -> tuple[list[Any], list[Any]]:
    """Crash a job between its two sinks; its function adds another value each time it is built.

    Returns the rows of each sink at the end.
    """
    runs = count()

    def stamped(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions

        return frame.withColumn("run", functions.lit(next(runs)).cast("long"))

    source = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", idle=None).transform(stamped)
    small.pipeline = ms.Pipeline("changing", source.to(ms.Topic("one")), source.to(ms.Topic("two")))
    small.folder = small.folder.with_name("changing")
    small.crash_at("after a sink's commit")
    small.step()
    small.finish()
    rows = small.environment.sinks.rows
    first, second = ([row for name, _, row in rows if name == sink] for sink in ("one", "two"))
    return first, second


def test_all_sinks_get_the_prepared_rows(small: Small) -> None:
    first, second = crash_between_sinks(small)

    assert first == second
    assert first


def test_without_the_prepared_record_two_sinks_hold_different_rows(
    small: Small, monkeypatch: Patch
) -> None:
    pending = Checkpoint.pending

    def without_prepared(self: Checkpoint, head: Any) -> Any:
        found = pending(self, head)
        if found is not None:
            self.segments.index.pop(("prepared", found[0].batch), None)
        return found and (found[0], None)

    monkeypatch.setattr(Checkpoint, "pending", without_prepared)

    first, second = crash_between_sinks(small)

    assert first != second


# -- a zombie: suspended at a point while another run takes over ----------------


def suspended_at(small: Small, point: str, meanwhile: Callable[[], None]) -> None:
    """Run a batch that is suspended at a point while `meanwhile` runs."""
    small.environment.at[point] = meanwhile
    small.step()


def taken_over(small: Small) -> None:
    """Another run takes over, runs the batch and ends."""
    with suppress(Crash), small.run(take_over=True) as successor:
        successor.step()


@pytest.mark.parametrize(
    "point",
    ["before intent", "after intent", "in the middle of a run", "before prepared",
     "after prepared", "before commit"],
)  # fmt: skip
def test_a_zombie_stops_and_changes_nothing(small: Small, point: str) -> None:
    sent: list[int] = []
    monitor = small.environment.writer

    def after_waking() -> None:
        taken_over(small)
        sent.append(len(small.environment.sinks.rows))
        small.environment.writer = _refusing  # type: ignore[method-assign]

    with pytest.raises(Fenced):
        suspended_at(small, point, after_waking)
    small.environment.writer = monitor  # type: ignore[method-assign]

    assert len(small.environment.sinks.rows) == sent[0]
    small.finish()
    assert small.green(), small.verdict()


def _refusing(name: str, job: str) -> LedgerWriter:
    raise AssertionError("a zombie opens no writer")


def test_without_the_ownership_check_a_zombie_writes_again(
    small: Small, monkeypatch: Patch
) -> None:
    def meanwhile() -> None:
        small.crash_at("before commit")
        taken_over(small)
        monkeypatch.setattr(Checkpoint, "owned", lambda self: None)

    suspended_at(small, "in the middle of a run", meanwhile)
    small.finish()

    assert small.verdict()["doubled"]


def late_records_of_a_zombie(small: Small) -> None:
    """A zombie is suspended within its intent; its successor runs that batch and crashes before the
    commit."""

    def meanwhile() -> None:
        small.feed()
        small.crash_at("before commit")
        taken_over(small)
        small.crash_at("after intent")

    with suppress(Fenced), small.run() as zombie:
        zombie.step()
        small.feed()
        small.environment.at["in the middle of writing intent"] = meanwhile
        zombie.step()
    small.environment.at.clear()
    small.finish()


def test_what_a_zombie_appends_is_never_read(small: Small) -> None:
    late_records_of_a_zombie(small)

    assert small.green(), small.verdict()


def test_if_the_lengths_of_earlier_segments_are_not_written_down_a_zombie_changes_a_batch(
    small: Small, monkeypatch: Patch
) -> None:
    def to_the_end(self: Segments) -> tuple[Part, ...]:
        return tuple(Part(part.name, 10**9) for part in parts(self))

    def as_long_as_it_is(self: Segments, name: str, length: int | None) -> Any:
        return known_of(self, name, None)

    parts, known_of = Segments.all_parts, Segments._known_of
    monkeypatch.setattr(Segments, "all_parts", to_the_end)
    monkeypatch.setattr(Segments, "_known_of", as_long_as_it_is)
    monkeypatch.setattr(Outputs, "_refuse_unknown", lambda self, name: None)

    late_records_of_a_zombie(small)

    assert not small.green()


# -- one run at a time ----------------------------------------------------------------


def test_a_second_run_is_refused_at_once_and_the_first_continues(small: Small) -> None:
    with small.run() as first:
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"), small.run():
            pass
        first.step()
    small.finish()

    assert small.green(), small.verdict()


def test_without_the_lock_a_second_run_fences_the_first(small: Small, monkeypatch: Patch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)

    with small.run() as first:
        with small.run():
            pass
        with pytest.raises(Fenced):
            first.step()


def test_a_run_without_heartbeat_is_taken_over(small: Small) -> None:
    with small.run() as first:
        beat = small.folder / "beat"
        long_ago = beat.stat().st_mtime - ownership.STALE_SECONDS - 1
        os.utime(beat, (long_ago, long_ago))
        with small.run() as second:
            second.step()
        with pytest.raises(Fenced):
            first.step()
        with small.run() as third, pytest.raises(AlreadyRunning), small.run():
            pass
        assert third.checkpoint.incarnation == 4
    small.finish()

    assert small.green(), small.verdict()


# -- names of files ---------------------------------------------------------------


def test_a_redo_writes_new_files(small: Small) -> None:
    crashed(small, "before prepared")

    assert small.green(), small.verdict()


def test_without_distinct_file_names_a_redo_cannot_write(small: Small, monkeypatch: Patch) -> None:
    def name(self: Files, what: str) -> str:
        return f"{self.stem.split('-')[0]}-{what}.arrow"

    monkeypatch.setattr(Files, "name", name)

    with pytest.raises(MillstreamError):
        crashed(small, "before prepared")


def test_two_sinks_get_the_same_windows(small: Small) -> None:
    small.pipeline = windows("both", "one.panes", "two.panes")
    small.folder = small.folder.with_name("both")
    small.crash_at("after a sink's commit")
    small.step()
    small.finish()

    assert small.green("one.panes"), small.verdict("one.panes")
    assert small.green("two.panes"), small.verdict("two.panes")


def test_rows_staged_by_tasks_that_ran_twice_are_removed_while_the_job_runs(
    small: Small, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(housekeeping, "SWEEP_EVERY", 1)
    with small.run() as engine:
        orphan = small.folder / "staged" / "000000000002-9-1-0-results-feed.arrow"
        orphan.touch()
        engine.step()
        small.feed()
        engine.step()

    assert not orphan.exists()
