"""Ctrl-C ends a run after the current batch, a second one at once; no row is lost or repeated."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.running import Run, until
from tests.faults.verdicts import verdict_on

from millstream.engine.inspection.inspect import open_checkpoint

if TYPE_CHECKING:
    from tests.faults.driver import Config
    from tests.faults.feed import Feed


def commits(config: Config) -> int:
    return len(open_checkpoint(Path(config.checkpoint)).batches("commit"))


@pytest.mark.timeout(900)
def test_a_run_interrupted_once_or_twice_loses_and_repeats_nothing(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    point = "in the middle of a run"
    feed.send()
    with Run(config, tmp_path, name="once", hold=point, by_command=True) as job:
        job.wait_held(point)
        job.interrupt()
        job.release()
        assert job.wait() in (0, 128 + signal.SIGINT), job.output()
    assert commits(config) == 1

    feed.send()
    with Run(config, tmp_path, name="twice", hold=point, by_command=True) as job:
        job.wait_held(point)
        job.interrupt()
        job.interrupt_again()
        assert job.wait() in (-signal.SIGINT, 128 + signal.SIGINT), job.output()
        until(lambda: not job.tree(), "a second Ctrl-C leaves no process behind", 30)
    assert commits(config) == 1

    with Run(replace(config, until="finished"), tmp_path, name="last") as last:
        last.succeed()
    verdict = verdict_on(config)
    assert verdict["green"], verdict
