"""Frozen runs that resume, and concurrent runs: one of them works, the others stop."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.running import Run, until
from tests.faults.verdicts import verdict_on

from millstream.engine.checkpoint.fault_points import POINTS
from millstream.engine.checkpoint.ownership import STALE_SECONDS

if TYPE_CHECKING:
    from tests.faults.driver import Config
    from tests.faults.feed import Feed


@pytest.mark.timeout(900)
def test_frozen_runs_resume_after_others_have_taken_over_the_job(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    """The first is fenced with --take-over, the second because its heartbeat has stopped."""
    feed.send()
    sleeper = Run(replace(config, lane="narrow"), tmp_path, name="first",
                  hold="before a sink's commit")  # fmt: skip
    with sleeper as first:
        first.wait_held("before a sink's commit")
        with Run(config, tmp_path, name="refused") as refused:
            assert refused.wait() == 1
            assert refused.error_kind() == "AlreadyRunning"
        first.freeze()
        feed.send()
        taking = replace(config, lane="wide", take_over=True)
        with Run(taking, tmp_path, name="second", hold="before commit") as second:
            second.wait_held("before commit")
            second.freeze()
            feed.send()
            beat = Path(config.checkpoint) / "beat"
            until(lambda: time.time() - beat.stat().st_mtime > STALE_SECONDS, "silence")
            with Run(replace(config, until="finished"), tmp_path, name="third") as third:
                third.succeed()
            before = verdict_on(config)
            for zombie in (first, second):
                zombie.release()
                zombie.thaw()
                assert zombie.wait() != 0
                assert zombie.error_kind() == "Fenced", zombie.output()

    verdict = verdict_on(config)
    assert verdict["green"], verdict
    assert verdict == before


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_a_zombie_frozen_at_any_step_stops_and_changes_nothing(
    point: str, config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    with Run(replace(config, lane="narrow"), tmp_path, name="zombie", hold=point) as zombie:
        zombie.wait_held(point)
        zombie.freeze()
        feed.send()
        with Run(replace(config, take_over=True, until="caught_up"), tmp_path, name="new") as new:
            new.succeed()
        zombie.release()
        zombie.thaw()
        zombie.wait()
        assert zombie.error_kind() == "Fenced", zombie.output()
    with Run(replace(config, until="finished"), tmp_path, name="last") as last:
        last.succeed()

    verdict = verdict_on(config)
    assert verdict["green"], verdict
