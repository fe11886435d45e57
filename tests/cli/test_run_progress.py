"""The progress messages of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from millstream.metrics.facts import Facts
from millstream.metrics.progress import PlainLines, Progress

AT = datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def facts(batch: int, rows: int = 100, **more: int) -> Facts:
    return Facts(batch, rows, more.get("late", 0), more.get("dead", 0), "narrow", {"bids": AT},
                 {"hot": 5}, seconds=0.5, state_rows=1024, state_bytes=80_512)  # fmt: skip


def test_a_line_shows_the_batch_and_the_totals() -> None:
    clock = Clock()
    progress = Progress(clock)
    clock.now = 10.0
    progress.add(facts(12, late=2, dead=1), {"bids": 7})

    assert progress.line() == (
        "batch 12 · narrow · driver · 200 rows/s · lag 7 · watermark 2026-01-01 00:00:20"
        " · late 2 · dead 1 · state 1,024 rows, 80.5 kB"
    )


def test_late_and_dead_rows_are_added_up() -> None:
    progress = Progress(Clock())
    for batch in (1, 2, 3):
        progress.add(facts(batch, late=2, dead=1), {})

    assert "late 6 · dead 3" in progress.line()
    assert progress.total() == "300 rows read in 3 batches (3 driver), 15 written, 6 late, 3 dead"


def test_the_total_says_where_the_batches_ran() -> None:
    progress = Progress(Clock())
    assert progress.total() == "0 rows read in 0 batches, 0 written, 0 late, 0 dead"
    for batch, where in enumerate(("bridge", "spark", "spark"), start=1):
        progress.add(replace(facts(batch), where=where), {})

    assert "batch 3 · narrow · spark · " in progress.line()
    assert "read in 3 batches (1 bridge, 2 spark), " in progress.total()


def test_a_pause_does_not_lower_the_rate() -> None:
    clock = Clock()
    progress = Progress(clock)
    for clock.now in (1.0, 61.0):
        progress.add(facts(1), {})

    assert progress.rate == 200.0


def test_without_a_watermark_of_each_source_there_is_none() -> None:
    progress = Progress(Clock())
    progress.add(Facts(1, 1, 0, 0, "narrow", {"a": AT, "b": None}), {})

    assert "watermark not yet" in progress.line()


def test_quick_batches_share_a_line_and_the_last_is_always_reported() -> None:
    clock, said = Clock(), list[str]()
    with PlainLines(said.append, clock) as lines:
        for batch in range(1, 31):
            clock.now += 0.1
            lines.batch(facts(batch), {})

    assert [line.split(" · ")[0] for line in said] == ["batch 1", "batch 21", "batch 30"]


def test_a_phase_that_is_reported_again_is_printed_once() -> None:
    said = list[str]()
    lines = PlainLines(said.append, Clock())
    for phase in ("starting Spark", "batch 1 waits", "batch 1 waits", "running", "batch 1 waits"):
        lines.phase(phase)

    assert said == ["starting Spark …", "batch 1 waits …", "running …", "batch 1 waits …"]


def test_a_long_phase_is_reported_again_ever_more_rarely() -> None:
    clock, said = Clock(), list[str]()
    lines = PlainLines(said.append, clock)
    lines.phase("starting Spark")
    for clock.now in range(1, 20):
        lines._refresh()

    assert said == [
        "starting Spark …", "starting Spark … (4 s)", "starting Spark … (8 s)",
        "starting Spark … (16 s)",
    ]  # fmt: skip
