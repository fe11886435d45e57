"""Where the local stack keeps things: one folder in the home, one below it for each job.

stack/
  jobs.db            the book: every job and what is wanted of it
  supervisor.lock    held while the supervisor lives; console.lock likewise
  supervisor.log     JSON lines, rotated; console.log likewise
  supervisor.out     what it prints beside it, at most a few megabytes; console.out likewise
  token              what a reader of the page has to show
  jobs/<name>/
    process.lock     held while the job's process lives
    facts.db         the diary: beats, batches, totals, how runs ended
    job.log          JSON lines, rotated
    output.log       what Python, Java and the user's code print beside it, a few megabytes of it
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.kafka.local.processes import LifeLock
from millstream.toolchain.folders import home_folder, written_in

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class JobPlace:
    """The folder of one job."""

    path: Path

    @property
    def life(self) -> LifeLock:
        """Held while the job's process lives."""
        return LifeLock(self.path / "process.lock")

    @property
    def facts(self) -> Path:
        """The diary."""
        return self.path / "facts.db"

    @property
    def log(self) -> Path:
        """What the run says, as JSON lines."""
        return self.path / "job.log"

    @property
    def output(self) -> Path:
        """What anything else in the process prints."""
        return self.path / "output.log"


@dataclass(frozen=True)
class StackPlace:
    """The folder of the whole stack."""

    path: Path

    @property
    def book(self) -> Path:
        """Every job and what is wanted of it."""
        return self.path / "jobs.db"

    def life(self, part: str) -> LifeLock:
        """Held while that part (`supervisor`, `console`) lives."""
        return LifeLock(self.path / f"{part}.lock")

    def log(self, part: str) -> Path:
        """What a part says, as JSON lines."""
        return self.path / f"{part}.log"

    def output(self, part: str) -> Path:
        """What a part prints beside it; emptied where it grows."""
        return self.path / f"{part}.out"

    def job(self, name: str) -> JobPlace:
        """Where a job keeps what is not in its checkpoint."""
        return JobPlace(self.path / "jobs" / name)

    def make(self) -> None:
        """Make the folders, for their owner alone."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            for folder in (self.path, self.path / "jobs"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def token(self) -> str:
        """The secret a reader of the page shows, made at the first call, for the owner alone."""
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

    def take_token(self, token: str) -> None:
        """From now on this is the secret; a console that runs still wants the one before."""
        self.make()
        self._token_draft(token).replace(self.path / "token")

    def _token_draft(self, token: str) -> Path:
        draft = self.path / f".token.{secrets.token_hex(4)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
            new.write(token)
        return draft


def stack_place(home: Path | None = None) -> StackPlace:
    """The stack of this user's home, or of another."""
    return StackPlace((home or home_folder()) / "stack")
