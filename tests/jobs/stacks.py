"""A stack in a separate home: its supervisor, its page and the processes of its jobs."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from tests.cli.command import Command

from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.jobs.registry import JobRow

PATIENCE = 180.0
JAVA = "-XX:TieredStopAtLevel=1 -Xshare:auto"
SLEEPER = """import time

time.sleep(3600)
"""


def until(
    true: Callable[[], Any],
    what: str,
    patience: float = PATIENCE,
    story: Callable[[], str] = str,
) -> Any:
    """Wait until a condition holds and return its value; a failure prints `story`."""
    deadline = time.monotonic() + patience
    while not (found := true()):
        late = time.monotonic() > deadline
        assert not late, f"{what}: not within {patience:.0f} s\n{story() if late else ''}"
        time.sleep(0.05)
    return found


@dataclass
class Stack:
    """One stack, with methods to observe and kill its processes."""

    home: Path
    kafka: str

    @property
    def millstream(self) -> Command:
        """The command in this stack's home."""
        return Command(self.kafka, {"MILLSTREAM_HOME": str(self.home), "JAVA_TOOL_OPTIONS": JAVA})

    @property
    def folder(self) -> StackFolder:
        """The stack's folder."""
        return stack_folder(self.home)

    def up(self) -> str:
        """Start it; return the address of its page, without the token."""
        said = self.millstream.ok("up", "-o", "json")
        return str(said.json["page"]).partition("#")[0]

    def job(self, name: str) -> JobRow:
        """The row of a job in the registry."""
        with JobRegistry(self.folder.registry, read_only=True) as registry:
            return registry.job(name)

    def await_state(self, name: str, *states: str, patience: float = PATIENCE) -> JobRow:
        """Wait until the job is in one of these states."""

        def there() -> JobRow | None:
            job = self.job(name)
            return job if job.state in states else None

        found: JobRow = until(
            there, f"{name} {' or '.join(states)}", patience, lambda: self.story(name)
        )
        return found

    def story(self, name: str) -> str:
        """The registry, events and logs of a job as text, newest last."""
        with JobRegistry(self.folder.registry, read_only=True) as registry:
            lines = [str(registry.job(name)), *(f"{e.at:.3f} {e.event} {e.detail}"
                                           for e in registry.events(name, 30))]  # fmt: skip
        files = (self.folder.log("supervisor"), self.folder.job(name).log,
                 self.folder.job(name).output)  # fmt: skip
        for file in files:
            lines += [f"-- {file.name}", *file.read_text(errors="replace").splitlines()[-30:]]
        return "\n".join(lines)

    def supervisor(self) -> psutil.Process | None:
        """The process of the supervisor."""
        return self.folder.lock("supervisor").holder()

    def kill_supervisor(self) -> None:
        """SIGKILL; the console starts another."""
        process = self.supervisor()
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def holder(self, name: str) -> psutil.Process | None:
        """The process of a job."""
        return self.folder.job(name).lock.holder()

    def freeze(self, name: str) -> int:
        """SIGSTOP a job's process; return its id."""
        process = self.holder(name)
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        return int(process.pid)

    def processes(self, name: str | None = None) -> list[psutil.Process]:
        """Living processes of this stack's home; with a name, the main ones of that job."""
        return [p for p in psutil.process_iter() if self._mine(p, name)]

    def _mine(self, process: psutil.Process, name: str | None) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                return False
            if process.environ().get("MILLSTREAM_HOME") != str(self.home):
                return False
            words = process.cmdline()
        except psutil.Error:
            return False
        return name is None or words[1:4] == ["-m", "millstream.cli.job_process", name]


@contextmanager
def new_stack(home: Path, kafka: str) -> Iterator[Stack]:
    """A stack, not started; at the end it is brought down, and none of its processes is left."""
    stack = Stack(home, kafka)
    yield stack
    said = stack.millstream("down")
    left = stack.processes()
    for process in left:
        process.kill()
    assert left == [], said
