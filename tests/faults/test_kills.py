"""kill -9 of the whole process tree, at every step of the protocol: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from tests.faults.running import Run
from tests.faults.verdicts import Report, differences, verdict_on

from millstream.engine.checkpoint.fault_points import POINTS, PREFETCHED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.driver import Config
    from tests.faults.feed import Feed

LANES: tuple[Literal["narrow", "wide"], ...] = ("narrow", "wide")
KILLS = int(os.environ.get("MILLSTREAM_SOAK_KILLS", "200"))


@pytest.mark.timeout(900)
def test_a_job_killed_at_each_step_of_the_protocol_loses_and_repeats_nothing(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    report = Report(feed.seed)
    for turn, point in enumerate(POINTS):
        feed.send()
        feed.send_aborted()
        run = replace(config, lane=LANES[turn % 2])
        with Run(run, tmp_path, name=f"{turn}", hold=point) as job:
            job.wait_held(point)
            job.kill()
            report.kills[point] += 1
    kill_with_prefetched_rows(replace(config, lane="narrow"), feed, tmp_path)
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()

    verdict = verdict_on(config)
    print(report.text(verdict))
    assert verdict["green"], report.text(verdict)
    assert verdict["windows"]["rows"]
    assert verdict["once"]["rows"]
    assert verdict["dead"]["rows"]
    assert all(report.kills[point] for point in POINTS)


def kill_with_prefetched_rows(config: Config, feed: Feed, folder: Path) -> None:
    """Kill a job in its third batch, when later rows are prefetched."""
    with Run(config, folder, name="ahead") as job:
        for count in (1, 2):
            feed.send()
            job.wait_batches(count)
        job.arm("before commit")
        feed.send()
        job.wait_held("before commit")
        job.arm(PREFETCHED)
        feed.send()
        job.wait_held(PREFETCHED)
        job.kill()


def test_the_verifier_is_red_when_the_ledger_is_not_read(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    point = "after a sink's commit"
    feed.send()
    with Run(replace(config, lane="narrow"), tmp_path, name="first", hold=point) as job:
        job.wait_held(point)
        job.kill()
    careless = replace(config, until="finished", lane="narrow", sabotage=("ledger",))
    with Run(careless, tmp_path, name="careless") as job:
        job.succeed()

    verdict = verdict_on(config)
    assert not verdict["green"]
    assert verdict["once"]["doubled"]
    assert verdict["dead"]["doubled"]


@pytest.mark.soak
def test_a_job_killed_hundreds_of_times_loses_and_repeats_nothing(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    """Every second kill at a step of the protocol, the others at any moment.

    `MILLSTREAM_SOAK_SEED` replays the same input, steps, sizes and waits; only the moments
    of the random kills depend on the machine. `MILLSTREAM_SOAK_KILLS` says how many.
    """
    seed = int(os.environ.get("MILLSTREAM_SOAK_SEED", str(time.time_ns() % 10**9)))
    chance, report = random.Random(seed), Report(seed)
    feed.seed = seed
    print(f"MILLSTREAM_SOAK_SEED={seed} MILLSTREAM_SOAK_KILLS={KILLS}")
    for turn in range(KILLS):
        feed.send(chance.choice((5, 40, 400)))
        if chance.random() < 0.2:
            feed.send_aborted()
        run = replace(config, lane=chance.choice((*LANES, None)),
                      budget=chance.choice((2_000, 20_000, 1_000_000)))  # fmt: skip
        point = POINTS[turn // 2 % len(POINTS)] if turn % 2 == 0 else None
        with Run(run, tmp_path, name=f"{turn}", hold=point) as job:
            if point is None:
                job.wait_started()
                time.sleep(chance.random() * 12)
            else:
                job.wait_held(point)
            job.kill()
        report.kills[point or "at any moment"] += 1
        if turn % 20 == 19:
            verdict = verdict_on(config, finished=False)
            assert not differences(verdict, "doubled", "phantom", "wrong"), report.text(verdict)
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()

    verdict = verdict_on(config)
    print(report.text(verdict))
    assert verdict["green"], report.text(verdict)
    assert all(report.kills[point] for point in POINTS)
