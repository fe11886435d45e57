"""Metrics per instance of an operator, from a job's run log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.cli.command import Command
from tests.console.serving import facts

from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.detail import SHOWN_BATCHES, detail
from millstream.jobs.reports.instances import SHOWN, instances_of, totals_by_instance
from millstream.jobs.reports.run_log import RunLog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STEP = "tumbling(auction)"


def instance(name: str, rows: int, **more: Any) -> dict[str, Any]:
    return {"instance": name, "where": "driver", "in": rows, "out": rows // 2, "late": 1,
            "dead": 0, "seconds": 0.5, **more}  # fmt: skip


def batch_facts(batch: int, *instances: dict[str, Any]) -> dict[str, Any]:
    """The facts of a batch, with a step of these instances and a source of two partitions."""
    whole = facts(batch)
    whole["steps"][STEP] |= {"behind": 3, "watermark": "2026-01-01T00:00:05+00:00",
                             "instances": list(instances)}  # fmt: skip
    partitions = [instance(str(p), 10, watermark=None, idle=p == 1) for p in (0, 1)]
    return {**whole, "clock": "2026-01-01T00:00:09+00:00", "held_by": {"bids": 0}, "behind": 3,
            "sources": {"bids": {"idle": [1], "idle_partitions": 1, "partitions": 2,
                                 "instances": partitions}}}  # fmt: skip


def placed(folder: Path, patch: pytest.MonkeyPatch, *batches: dict[str, Any]) -> StackFolder:
    """A job that has run these batches."""
    patch.setenv("MILLSTREAM_HOME", str(folder))
    stack = stack_folder()
    stack.job("hot").path.mkdir(parents=True, exist_ok=True)
    now = time.time()
    job = JobRow(name="hot", application="shop", owner="ann", file="hot.py", pipeline="hot",
                 kafka=None, checkpoint="nowhere", lane=None, submitted=now, since=now,
                 wanted="stopped", state="stopped")  # fmt: skip
    with JobRegistry(stack.registry) as registry:
        registry.add(job)
    run_log = RunLog(stack.job("hot").run_log, "r1", 1)
    for batch in batches:
        run_log.batch(batch, at=now + 3600)  # so that they count as recent on a slow machine
    run_log.beat(now, {"bids": {0: 10}})
    run_log.close()
    return stack


def test_an_instance_has_its_totals_its_rate_and_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"state_rows": 7, "state_bytes": 700}
    stack = placed(
        tmp_path, monkeypatch,
        batch_facts(1, instance("take 0", 40), instance("buckets 0-127", 4, **state)),
        batch_facts(2, instance("take 10", 1), instance("take 2", 2), instance("take 0", 60),
             instance("buckets 0-127", 6, **state)),
    )  # fmt: skip

    step = detail(stack, "hot")["steps"][STEP]

    assert step["behind"] == 6
    names = [one["instance"] for one in step["instances"]]
    assert names == ["buckets 0-127", "take 0", "take 2", "take 10"]
    assert step["instances"][0] == {
        "instance": "buckets 0-127", "where": "driver", "in": 10, "out": 5,
        "rows_per_second": 1.0, "busy": 0.1, "watermark": "2026-01-01T00:00:05+00:00",
        "state_rows": 7, "state_bytes": 700, "late": 2, "dead": 0,
    }  # fmt: skip
    assert step["instances"][1]["rows_per_second"] == 10.0


def test_a_source_has_its_slowest_partition_and_its_idle_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = placed(tmp_path, monkeypatch, *(batch_facts(batch) for batch in range(1, 131)))

    shown = detail(stack, "hot")

    source = shown["sources"]["bids"]
    assert (source["held_by"], source["idle"], source["partitions"]) == (0, [1], 2)
    assert source["watermark"] == "2026-01-01T00:00:00+00:00"
    assert [(one["instance"], one["in"], one["idle"]) for one in source["instances"]] == [
        ("0", 1300, False), ("1", 1300, True),
    ]  # fmt: skip
    history = shown["watermark_history"]
    assert [point["batch"] for point in history] == list(range(11, 131))
    assert len(history) == SHOWN_BATCHES
    assert {name: history[0][name] for name in ("clock", "watermarks", "held_by")} == {
        "clock": "2026-01-01T00:00:09+00:00",
        "watermarks": {"bids": "2026-01-01T00:00:00+00:00"},
        "held_by": {"bids": 0},
    }


def test_facts_of_an_older_version_have_no_instances_and_can_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = detail(placed(tmp_path, monkeypatch, facts(1)), "hot")

    assert shown["steps"][STEP]["instances"] == []
    assert shown["sources"] == {}
    assert shown["watermark_history"][0]["clock"] is None


def test_the_command_prints_them_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(tmp_path, monkeypatch, batch_facts(1, instance("buckets 0-255", 40, state_rows=7)))
    millstream = Command(None, {"MILLSTREAM_HOME": str(tmp_path)})

    shown = millstream.ok("jobs", "show", "hot", "--instances").out.splitlines()

    assert shown[0].split()[:5] == ["OPERATOR", "INSTANCE", "WHERE", "IN", "OUT"]
    assert [line.split()[:2] for line in shown[1:3]] == [["bids", "0"], ["bids", "1"]]
    assert shown[3].split()[:6] == [STEP, "buckets", "0-255", "driver", "40", "20"]
    rows = millstream.ok("jobs", "show", "hot", "--instances", "-o", "json").json
    assert [(row["operator"], row["in"]) for row in rows] == [("bids", 10), ("bids", 10),
                                                               (STEP, 40)]  # fmt: skip
    assert millstream("jobs", "show", "nobody", "--instances").code == 4


def test_no_more_instances_are_shown_than_a_page_can_take() -> None:
    from millstream.jobs.reports.run_log import BatchEntry

    many = [instance(f"take {number}", 1) for number in range(3 * SHOWN)]
    batches = [BatchEntry(time.time(), batch_facts(1, *many))]

    assert len(instances_of(STEP, "steps", {}, batches, since=0.0, window=10.0)) == SHOWN


def test_totals_are_found_for_any_operator_name() -> None:
    totals = {"steps_in": {"a step\x1fbuckets 0-255": 5.0}, "steps_seconds": {}}

    found = totals_by_instance(totals, "steps")

    assert found["a step", "buckets 0-255"]["in"] == 5.0
