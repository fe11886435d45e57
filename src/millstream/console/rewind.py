"""`rewind` from the page: the same command in a process of its own.

To rewind, the pipeline's file has to be run; the console runs nobody's code, so `millstream jobs
rewind` does. What a request says reaches it as checked words of an argument list.
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
    """Rewinds that are under way: one at a time for each job, and few in all."""

    def __init__(self, stack: StackFolder, most: int) -> None:
        self._stack, self._most = stack, most
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[str] | None] = {}

    def rewind(self, job: str, to: str, into: str | None, *, again: bool) -> list[str]:
        """Rewind a job, and start it again if it was running; what the command said.

        Raises:
            NotFound, InvalidInput, DataGone, Unavailable, AlreadyRunning: as the command does,
                and while another rewind of the job is under way.
        """
        words = _words(to, into, again=again)
        with JobRegistry(self._stack.registry) as registry:
            registry.job(job)
            with self._lock:
                if job in self._running or len(self._running) >= self._most:
                    raise AlreadyRunning(f"a rewind of {job} needs others to have ended",
                                         got=f"under way: {', '.join(self._running)}",
                                         do="wait for their end")  # fmt: skip
                self._running[job] = None
            try:
                registry.add_event("rewind asked for", " ".join(words), job)
                said = self._ran(job, words)
                registry.add_event("rewound", said[-1] if said else None, job)
            except MillstreamError as error:
                registry.add_event("rewind refused", str(error), job)
                raise
            finally:
                with self._lock:
                    del self._running[job]
        return said

    def end(self) -> None:
        """End what is under way, as Ctrl-C would: a rewind is done or it is not."""
        with self._lock:
            running = [process for process in self._running.values() if process is not None]
        for process in running:
            process.terminate()

    def _ran(self, job: str, words: list[str]) -> list[str]:
        command = [sys.executable, "-m", PROGRAM, "jobs", "rewind", "--no-wait", *words, "--", job]
        environment = {**os.environ, "MILLSTREAM_HOME": str(self._stack.path.parent),
                       "NO_COLOR": "1"}  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace", env=environment, cwd=self._stack.path,
        ) as process:  # fmt: skip
            with self._lock:
                self._running[job] = process
            try:
                _, told = process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                _ended(process)
                raise Unavailable(f"rewinding {job} needs less time", got=f"{_PATIENCE:.0f} s",
                                  do=f"see `millstream jobs show {job}`") from None  # fmt: skip
        lines = [line for line in told.splitlines() if line.strip()]
        said = [one_line(line)[:_LONGEST] for line in lines[-_LINES:]]
        if process.returncode:
            raise _refusal(process.returncode, said)
        return said


def _ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()


def _words(to: str, into: str | None, *, again: bool) -> list[str]:
    """The options, each checked: nothing else of a request reaches the command."""
    if (into is None) == (not again):
        raise InvalidInput("rewind needs one of into and again",
                           got="both" if again else "neither")  # fmt: skip
    if into is not None and not _SUFFIX.fullmatch(into):
        raise InvalidInput("into needs 1 to 50 letters, digits, dashes or underscores",
                           got=shortened(into), do='write for instance "-2"')  # fmt: skip
    how = "--again" if into is None else f"--into={into}"
    return [f"--to={_stack(to)}", how]


def _stack(to: str) -> str:
    if to == "start" or _BATCH.fullmatch(to):
        return to
    return iso(point(to, what="to"))


def _refusal(code: int, said: list[str]) -> MillstreamError:
    sentence = said[-1].removeprefix("error: ") if said else "it ended without a word"
    return _KINDS.get(code, AlreadyRunning)(sentence)
