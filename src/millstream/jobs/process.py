"""A job's process: launched detached, found again by its lock, ended with all its children.

Every process of a run (Python, its JVM, Spark's workers) has the run's id in its environment.
Leftovers of a run are found by this id, because the system may have reused a process id.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from millstream.engine.spark.shared import VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.jobs.folders import JobFolder

RUN_VARIABLE = "MILLSTREAM_RUN"
PROGRAM = "millstream.cli.job_process"
_SETTLE = 0.05
_LAST_RESORT = 15.0  # seconds the system gets to end processes after SIGKILL
TIDY = 3.0


def launch(folder: JobFolder, name: str, run: str, *, shared_spark: Path | None = None) -> bool:
    """Start the job's process; return False if one is running already.

    With `shared_spark` its session is one of the Spark application that jobs share.
    """
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = folder.lock.take()
    if descriptor is None:
        return False
    home = folder.path.parent.parent.parent
    shared = {} if shared_spark is None else {VARIABLE: str(shared_spark)}
    folder.lock.launch(
        [sys.executable, "-m", PROGRAM, name, run],
        descriptor=descriptor,
        folder=folder.path,
        output=folder.path / "start.log",
        environment={**os.environ, RUN_VARIABLE: run, "MILLSTREAM_HOME": str(home), **shared},
    )
    return True


def is_frozen(process: psutil.Process) -> bool:
    """Whether the process has been suspended (SIGSTOP)."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def ask_to_stop(folder: JobFolder) -> bool:
    """Send SIGTERM to the job's Python process, not its JVM: it ends after the current batch."""
    process = folder.lock.holder(wait=2)
    if process is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    return True


def kill(folder: JobFolder, run: str | None) -> None:
    """Send SIGKILL to the job's process and to every process of its run."""
    process = folder.lock.holder()
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    if run is not None:
        sweep(run)
    folder.lock.ended(10)


def sweep(run: str, patience: float = 0.0) -> int:
    """End the leftovers of a run whose process is gone; return how many had to be killed.

    A JVM whose Python process is gone cleans up and exits by itself; it gets `patience` seconds.
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
    """Return the running processes that have the run's id in their environment."""
    return [process for process in psutil.process_iter() if _belongs_to(process, run)]


def _belongs_to(process: psutil.Process, run: str) -> bool:
    try:
        return bool(
            process.pid != os.getpid()
            and process.status() != psutil.STATUS_ZOMBIE
            and process.environ().get(RUN_VARIABLE) == run
        )
    except (psutil.Error, OSError):
        return False
