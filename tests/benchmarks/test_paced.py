"""The paced feed keeps its schedule and reports its delay; late feeds make cells void."""

from __future__ import annotations

import json
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest
from benchmarks.feeding import pace
from benchmarks.oracle import chunks
from benchmarks.paced import in_turns, soon, with_feed
from benchmarks.report import verdict

from benchmarks import continuous, paced, report, sweep
from millstream.kafka.admin.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.report import Round

    from millstream.testing.local_broker import ThrowAwayBroker


def fed(address: str, rate: int, start: float) -> tuple[dict[str, float], list[tuple[int, int]]]:
    """The report of a feed of one second, and the partitions and times of its records."""
    topic = f"paced-{uuid.uuid4().hex[:8]}"
    Topics(address).create(topic, partitions=4)
    report = pace(address, topic, partitions=4, rate=rate, keys=10, start=start, seconds=1)
    records = [
        (place.as_py(), json.loads(value.as_py())["ts"])
        for piece in chunks(address, topic)
        for place, value in zip(piece["partition"], piece["value"], strict=True)
    ]
    return report, records


@pytest.mark.kafka
@pytest.mark.parametrize("rate", [1_000, 50_000])
def test_a_feed_sends_every_record_with_its_scheduled_time(
    broker: ThrowAwayBroker, rate: int
) -> None:
    start = soon()

    report, records = fed(broker.address, rate, start)

    assert report["sent"] == rate == len(records)
    assert sorted(records) == sorted(
        (number % 4, round((start + number / rate) * 1000)) for number in range(rate)
    )


@pytest.mark.kafka
def test_a_feed_that_starts_late_keeps_the_schedule_and_reports_the_delay(
    broker: ThrowAwayBroker,
) -> None:
    start = time.time() - 5

    report, records = fed(broker.address, 1_000, start)

    assert report["behind"] >= 5
    assert report["untaken"] >= 5
    assert min(at for _, at in records) == round(start * 1000)


def test_a_cell_is_void_when_its_feed_was_more_than_a_second_behind() -> None:
    check = {"checked": 5, "faults": {"wrong": 0}}

    assert verdict([{"check": with_feed(check, {"behind": 1.0})}]) == "right (5 checked)"
    assert verdict([{"check": with_feed(check, {"behind": 1.25})}]) == (
        "VOID: ms the feed was behind: 1,250"
    )


def test_rounds_cover_all_cells_and_continue_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(paced, "ROUNDS", 2)
    order: list[str] = []

    def cell(name: str, *, fails: bool = False) -> Round:
        order.append(name)
        if fails and len(order) == 3:
            raise KeyboardInterrupt
        return {"check": {"checked": 1, "faults": {}}}

    with pytest.raises(KeyboardInterrupt):
        in_turns("row", {}, {name: partial(cell, name, fails=True) for name in "ab"}, verdict)
    assert in_turns("row", {}, {name: partial(cell, name) for name in "ab"}, verdict)

    assert order == ["a", "b", "a", "a", "b"]
    kept = json.loads((tmp_path / "row.json").read_text())
    assert {name: len(rounds) for name, rounds in kept["cells"].items()} == {"a": 2, "b": 2}


def test_rows_of_a_loop_are_judged_by_key_and_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "FEED_SECONDS", 1)
    due = continuous._due(20, 1, 100.0)
    seen = [(at / 1000 + 0.004, json.dumps({"auction": key, "euros": 1.35, "sent": at}).encode())
            for key, at in due]  # fmt: skip

    after, check, repeated = continuous._judged(seen, due, 100_500)
    assert sum(due.values()) == 18
    assert check == {"checked": 18, "faults": {"missing": 0, "wrong": 0}}
    assert repeated == 0
    assert after == pytest.approx([4.0] * 8, abs=0.01)

    _, check, repeated = continuous._judged([*seen[1:], seen[1]], due, 0)
    assert check["faults"] == {"missing": 1, "wrong": 0}
    assert repeated == 1


@pytest.mark.parametrize(("length", "warm", "seconds"), [(100, 20, 60), (10_000, 60, 120)])
def test_a_sweep_feeds_long_enough_for_six_batches_to_warm_up_and_six_to_measure(
    length: int, warm: int, seconds: int
) -> None:
    cell = sweep.paced("millstream", length)

    assert (cell.warm, cell.seconds) == (warm, seconds)
    assert cell.batch_ms == length
