"""A job's process: launched on its own, found again by its lock, ended with all it started.

Every process of a run (Python, its Java, Spark's workers) carries the run's id in its
environment: what is left of a run is found by that, never by a process id that the system may
have given to a stranger.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from millstream.jobs.folders import JobPlace

MARK = "MILLSTREAM_RUN"
PROGRAM = "millstream.cli.job_process"
_SETTLE = 0.05
_LAST_RESORT = 15.0  # seconds the system gets to end processes after SIGKILL
TIDY = 3.0


def launch(place: JobPlace, name: str, run: str) -> bool:
    """Start the job's process; False when one is living already."""
    place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = place.life.take()
    if descriptor is None:
        return False
    home = place.path.parent.parent.parent
    place.life.launch(
        [sys.executable, "-m", PROGRAM, name, run],
        descriptor=descriptor,
        folder=place.path,
        output=place.path / "start.log",
        environment={**os.environ, MARK: run, "MILLSTREAM_HOME": str(home)},
    )
    return True


def is_frozen(process: psutil.Process) -> bool:
    """Whether somebody has stopped the process in its tracks (SIGSTOP)."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def ask_to_stop(place: JobPlace) -> bool:
    """SIGTERM to the job's own process, not to its Java: it ends after the batch in hand."""
    process = place.life.holder(wait=2)
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    return True


def kill(place: JobPlace, run: str | None) -> None:
    """SIGKILL to the job's process and to everything of its run."""
    process = place.life.holder()
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    if run is not None:
        sweep(run)
    place.life.ended(10)


def sweep(run: str, patience: float = 0.0) -> int:
    """End what is left of a run whose process is gone; how many processes had to be killed.

    A Java whose Python is gone ends by itself and tidies up: it gets so many seconds.
    """
    count, deadline = 0, time.monotonic() + patience + _LAST_RESORT
    psutil.wait_procs(leftovers(run), timeout=patience)
    while (left := leftovers(run)) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        count += len(left)
        psutil.wait_procs(left, timeout=2)
        time.sleep(_SETTLE)
    return count


def leftovers(run: str) -> list[psutil.Process]:
    """Living processes that carry the run's id."""
    return [process for process in psutil.process_iter() if _carries(process, run)]


def _carries(process: psutil.Process, run: str) -> bool:
    try:
        return bool(
            process.pid != os.getpid()
            and process.status() != psutil.STATUS_ZOMBIE
            and process.environ().get(MARK) == run
        )
    except (psutil.Error, OSError):
        return False
