"""The folder of the local stack in MILLSTREAM_HOME, with one subfolder per job.

stack/
  jobs.db            the job registry: every job and its desired state
  supervisor.lock    held while the supervisor runs; console.lock likewise
  supervisor.log     its log: JSON lines, rotated; console.log likewise
  supervisor.out     its stdout and stderr, at most a few megabytes; console.out likewise
  token              the access token of the page
  spark.json         how the Spark application that jobs share is reached, while it runs
  jobs/<name>/
    process.lock     held while the job's process runs
    facts.db         the run log: heartbeats, batches, totals, how runs ended
    job.log          the job's log: JSON lines, rotated
    output.log       what Python, Java and user code print, at most a few megabytes
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.kafka.local.processes import ProcessLock
from millstream.toolchain.folders import home_folder, written_in

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job."""

    path: Path

    @property
    def lock(self) -> ProcessLock:
        """The lock held while the job's process runs."""
        return ProcessLock(self.path / "process.lock")

    @property
    def run_log(self) -> Path:
        """The database of the job's runs and batches."""
        return self.path / "facts.db"

    @property
    def log(self) -> Path:
        """The job's log: JSON lines."""
        return self.path / "job.log"

    @property
    def output(self) -> Path:
        """Stdout and stderr of the job's process."""
        return self.path / "output.log"


@dataclass(frozen=True)
class StackFolder:
    """The folder of the whole stack."""

    path: Path

    @property
    def registry(self) -> Path:
        """The database of all jobs and their desired state."""
        return self.path / "jobs.db"

    def lock(self, part: str) -> ProcessLock:
        """The lock held while that part (`supervisor`, `console`) runs."""
        return ProcessLock(self.path / f"{part}.lock")

    def log(self, part: str) -> Path:
        """A part's log: JSON lines."""
        return self.path / f"{part}.log"

    def output(self, part: str) -> Path:
        """Stdout and stderr of a part; truncated when it grows."""
        return self.path / f"{part}.out"

    def job(self, name: str) -> JobFolder:
        """The folder for what a job keeps outside its checkpoint."""
        return JobFolder(self.path / "jobs" / name)

    def make(self) -> None:
        """Create the folders, accessible to their owner only."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            for folder in (self.path, self.path / "jobs"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def shared_spark(self) -> Path:
        """How the Spark application that jobs share is reached; its owner alone can read it."""
        return self.path / "spark.json"

    def token(self) -> str:
        """Return the access token of the page; the first call creates it."""
        file = self.path / "token"
        try:
            return file.read_text().strip()
        except FileNotFoundError:
            draft = self._token_draft(secrets.token_urlsafe(32))
            try:
                os.link(draft, file)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
            return file.read_text().strip()

    def set_token(self, token: str) -> None:
        """Replace the access token; a running console keeps the previous one."""
        self.make()
        self._token_draft(token).replace(self.path / "token")

    def _token_draft(self, token: str) -> Path:
        draft = self.path / f".token.{secrets.token_hex(4)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(token)
        return draft


def stack_folder(home: Path | None = None) -> StackFolder:
    """Return the stack folder of MILLSTREAM_HOME, or of another home."""
    return StackFolder((home or home_folder()) / "stack")
