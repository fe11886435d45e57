"""Which run owns a job: a record per run, a lock while it is alive, and its heartbeat."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import IO, TYPE_CHECKING

from millstream.engine.checkpoint import durable
from millstream.errors import AlreadyRunning, Fenced

if TYPE_CHECKING:
    from pathlib import Path

STALE_SECONDS = 10.0
KEPT_RUNS = 8


class OwnedFolder:
    """A folder that one run owns at a time: the one with the highest number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.incarnation = 0
        self._lock: IO[str] | None = None

    def become_owner(self, *, take_over: bool) -> None:
        """Write the next run's record, under a lock held while this process is alive.

        The lock is taken before the record is visible, so a process that finds the record can
        check whether its run is alive.
        """
        record = {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time()}
        while not self.incarnation:
            newest = self._newest_run()
            if newest and not take_over and not self._owner_is_frozen():
                self._take_lock(newest).close()
            self._lock = self._take_lock(newest + 1)
            self.beat()
            if durable.write_new(self.run_record(newest + 1), "run", record):
                self.incarnation = newest + 1
            else:
                self.release()

    def run_record(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:08d}"

    def _take_lock(self, number: int) -> IO[str]:
        """Take the lock of a run; it fails while that run is alive or starting."""
        lock = self.run_record(number).with_suffix(".lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise AlreadyRunning(
                f"a job can run once at a time: {self.folder} needs to be free",
                got=self._owner(),
                do="stop that run, or pass --take-over to fence it",
            ) from None
        return lock

    def _owner_is_frozen(self) -> bool:
        try:
            return time.time() - (self.folder / "beat").stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            return False

    def _owner(self) -> str:
        number = self._newest_run()
        if not number:
            return "another run that is starting"
        run = durable.read(self.run_record(number), "run")
        return f"process {run['pid']} on {run['host']}"

    def beat(self) -> None:
        """Write a heartbeat; a run without one for ten seconds may be taken over."""
        (self.folder / "beat").touch()

    def _newest_run(self) -> int:
        names = (path.name for path in (self.folder / "runs").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def owned(self) -> None:
        """Raise Fenced if another run has taken the job over.

        The records of old runs are removed, oldest first: a run whose own is gone is fenced, too.
        """
        if (
            self.run_record(self.incarnation + 1).exists()
            or not self.run_record(self.incarnation).exists()
        ):
            raise Fenced(
                f"the job in {self.folder} needs one run at a time",
                got="a newer run has taken it over",
                do="leave it to the newer run; this one stops and changes nothing",
            )

    def forget_old_runs(self) -> None:
        """Delete the records and locks of old runs, oldest first."""
        for path in sorted((self.folder / "runs").glob("[0-9]*")):
            if int(path.stem) < self.incarnation - KEPT_RUNS:
                path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock, so that the next run can start."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
