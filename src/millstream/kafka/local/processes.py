"""A background process that outlives its starter, one per lock file.

The process inherits an open, locked file and never closes it, so the lock is held exactly as
long as the process exists: no heartbeat, no clock. The file holds the process id, which is used
only while the lock is held: after a crash, the system may have given the id to another process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_POLL = 0.02
_CHECK_SECONDS = 0.3  # `held` takes the lock for microseconds; `take` waits for that
_TRUNCATED = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CRASHES = ("hs_err_pid*.log", "replay_pid*.log", "core.[0-9]*")
_CRASHES_KEPT = 3
_DETACH = 'lock=$1; shift; "$@" & echo $! >"$lock"'


@dataclass(frozen=True)
class ProcessLock:
    """A lock file, held by a background process."""

    path: Path

    def take(self) -> int | None:
        """Lock the file and return its descriptor, or None if a process holds it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _CHECK_SECONDS
            while not _locked(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    os.close(descriptor)
                    return None
                time.sleep(_POLL)
            os.ftruncate(descriptor, 0)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def held(self) -> bool:
        """Whether a process holds the lock; False if the file does not exist."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            return not _locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def holder(self, *, wait: float = 0) -> psutil.Process | None:
        """The process that holds the lock, or None.

        It is also None while a process is being launched; that is awaited for `wait` seconds.
        """
        until = time.monotonic() + wait
        while True:
            process = self._named()
            # Checked after the process was found, so it was the holder then.
            if not self.held():
                return None
            if process is not None or time.monotonic() > until:
                return process
            time.sleep(_POLL)

    def launch(
        self,
        command: Sequence[str],
        *,
        descriptor: int,
        folder: Path,
        output: Path,
        environment: Mapping[str, str],
    ) -> None:
        """Run `command` in `folder`, in a new session, as the holder of the lock.

        Its output is appended to `output`, which is truncated first and may be truncated at any
        time. Crash reports of Java in the folder are deleted except the newest ones.
        It is started by a shell that exits, so it is not a child of the caller: it survives it,
        and leaves no zombie. The descriptor from `take` is closed: only the process holds the lock.
        """
        try:
            _delete_crash_reports(folder)
            with os.fdopen(os.open(output, _TRUNCATED, 0o600), "wb") as sink:
                shell = subprocess.Popen(
                    ["/bin/sh", "-c", _DETACH, "sh", str(self.path), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=dict(environment),
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
        finally:
            os.close(descriptor)
        if shell.wait() != 0:
            _signal_group(shell.pid, signal.SIGKILL)
            raise OSError(errno.EIO, f"the process id could not be written into {self.path}")

    def send(self, number: signal.Signals, *, wait: float = 2) -> bool:
        """Signal the holder and its child processes; False if there is none."""
        process = self.holder(wait=wait)
        if process is None or not process.is_running():
            return False
        try:
            group = os.getpgid(process.pid)
        except ProcessLookupError:
            return False
        return _signal_group(group, number)

    def ended(self, timeout: float) -> bool:
        """Wait until no process holds the lock; False if one still does after `timeout`."""
        until = time.monotonic() + timeout
        while self.held():
            if time.monotonic() > until:
                return False
            time.sleep(_POLL)
        return True

    def _named(self) -> psutil.Process | None:
        try:
            return psutil.Process(int(self.path.read_text()))
        except (OSError, ValueError, psutil.Error):
            return None


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _delete_crash_reports(folder: Path) -> None:
    """Keep the newest: a job that crashes Java at every start would fill the disk."""
    for pattern in _CRASHES:
        with suppress(FileNotFoundError):
            reports = sorted(folder.glob(pattern), key=lambda one: one.stat().st_mtime)
            for report in reports[:-_CRASHES_KEPT]:
                report.unlink(missing_ok=True)


def _signal_group(group: int, number: signal.Signals) -> bool:
    assert group != os.getpgrp(), "a detached process is in another group"
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
