"""kill -9 of the whole process tree, at every step of the protocol: nothing lost, nothing twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.runtime.faultpoints import POINTS
from tests.faults.judging import Report, verdict_on
from tests.faults.running import Run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.driver import Config
    from tests.faults.feeding import Feed

LANES = ("short", "wide")


@pytest.mark.timeout(1200)
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
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()

    verdict = verdict_on(config)
    print(report.text(verdict))
    assert verdict["green"], report.text(verdict)
    assert verdict["windows"]["rows"] and verdict["once"]["rows"] and verdict["dead"]["rows"]
    assert all(report.kills[point] for point in POINTS)
