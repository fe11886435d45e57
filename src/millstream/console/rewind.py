"""`rewind` from the page runs `millstream jobs rewind` in a subprocess.

A rewind executes the pipeline's file, and the console itself runs no user code. The request's
values are validated and passed as an argument list.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from millstream.errors import (
    AlreadyRunning,
    DataGone,
    InvalidInput,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.jobs.registry import JobRegistry
from millstream.viewing.escape import one_line, shortened
from millstream.viewing.points_in_time import iso, point

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder

PROGRAM = "millstream.cli.main"
_PATIENCE = 300.0
_ENDING = 10.0
_LINES, _LONGEST = 20, 1_000
_BATCH = re.compile(r"[0-9]{1,8}")
_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,50}")
_KINDS: dict[int, type[MillstreamError]] = {
    2: InvalidInput, 3: InvalidInput, 4: NotFound, 5: Unavailable, 6: DataGone,
}  # fmt: skip


class Rewinds:
    """Running rewinds: at most one for each job, and few in total."""

    def __init__(self, stack: StackFolder, most: int) -> None:
        self._stack, self._most = stack, most
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[str] | None] = {}

    def rewind(self, job: str, to: str, into: str | None, *, again: bool) -> list[str]:
        """Rewind a job, and restart it if it was running; returns the command's messages.

        Raises:
            NotFound, InvalidInput, DataGone, Unavailable, AlreadyRunning: as the command does;
                AlreadyRunning also while another rewind of the job is running.
        """
        options = _options(to, into, again=again)
        with JobRegistry(self._stack.registry) as registry:
            registry.job(job)
            with self._lock:
                if job in self._running or len(self._running) >= self._most:
                    raise AlreadyRunning(f"{job} cannot be rewound while other rewinds run",
                                         got=f"rewinds of {', '.join(self._running)}",
                                         do="wait until they have ended")  # fmt: skip
                self._running[job] = None
            try:
                registry.add_event("rewind requested", " ".join(options), job)
                messages = self._run(job, options)
                registry.add_event("rewound", messages[-1] if messages else None, job)
            except MillstreamError as error:
                registry.add_event("rewind failed", str(error), job)
                raise
            finally:
                with self._lock:
                    del self._running[job]
        return messages

    def end(self) -> None:
        """Terminate running rewinds; a rewind is atomic."""
        with self._lock:
            running = [process for process in self._running.values() if process is not None]
        for process in running:
            process.terminate()

    def _run(self, job: str, options: list[str]) -> list[str]:
        rewind = ["jobs", "rewind", "--no-wait", *options, "--", job]
        command = [sys.executable, "-m", PROGRAM, *rewind]
        environment = {**os.environ, "MILLSTREAM_HOME": str(self._stack.path.parent),
                       "NO_COLOR": "1"}  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace", env=environment, cwd=self._stack.path,
        ) as process:  # fmt: skip
            with self._lock:
                self._running[job] = process
            try:
                _, stderr = process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                _terminate(process)
                raise Unavailable(f"{job} is not rewound yet", got=f"no end in {_PATIENCE:.0f} s",
                                  do=f"see `millstream jobs show {job}`") from None  # fmt: skip
        lines = [line for line in stderr.splitlines() if line.strip()]
        messages = [one_line(line)[:_LONGEST] for line in lines[-_LINES:]]
        if process.returncode:
            raise _error(process.returncode, messages)
        return messages


def _terminate(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()


def _options(to: str, into: str | None, *, again: bool) -> list[str]:
    """The validated options: nothing else of a request reaches the command."""
    if (into is None) == (not again):
        raise InvalidInput("rewind needs either `into` or `again`",
                           got="both" if again else "neither")  # fmt: skip
    if into is not None and not _SUFFIX.fullmatch(into):
        raise InvalidInput("into needs 1 to 50 letters, digits, dashes or underscores",
                           got=shortened(into), do='write "-2", for example')  # fmt: skip
    how = "--again" if into is None else f"--into={into}"
    return [f"--to={_checked_target(to)}", how]


def _checked_target(to: str) -> str:
    if to == "start" or _BATCH.fullmatch(to):
        return to
    return iso(point(to, what="to"))


def _error(code: int, messages: list[str]) -> MillstreamError:
    sentence = messages[-1].removeprefix("error: ") if messages else f"rewind exited with {code}"
    return _KINDS.get(code, AlreadyRunning)(sentence)
