"""A job in another process, for tests that stop, freeze or kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.faults.driver import Config

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 300.0
_FILE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.faults.driver import Config, pipeline_of
pipeline = pipeline_of(Config.read(Path({config!r})))
"""
_JAVA = "-XX:TieredStopAtLevel=1 -Xshare:auto"


def until(true: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait until `true()` is truthy; returns its value."""
    deadline = time.monotonic() + patience
    while not (found := true()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience:.0f} s")
        time.sleep(0.02)
    return found


def kill_when_held(process: subprocess.Popen[bytes], folder: Path, point: str) -> None:
    """Send SIGKILL to a process as soon as it is held at a point of the protocol."""
    held = folder / "held"
    until(lambda: held.exists() or process.poll() is not None, f"held {point}", 120)
    assert held.exists(), process.stderr and process.stderr.read()
    process.kill()
    process.wait()
    held.unlink()


class Run:
    """One run of the driver: Python, its JVM and its workers, in a separate session."""

    def __init__(
        self, config: Config, folder: Path, *, name: str = "run", hold: str | None = None,
        environment: dict[str, str] | None = None, by_command: bool = False,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self._hold = folder / f"{name}.hold"
        self._hold.mkdir(exist_ok=True)
        self._output = folder / f"{name}.out"
        self.config = replace(config, events=str(folder / f"{name}.events"))
        file_of_config = folder / f"{name}.json"
        self.config.write(file_of_config)
        if hold is not None:
            self.arm(hold)
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                self._command(folder, file_of_config) if by_command
                else [sys.executable, "-m", "tests.faults.driver", str(file_of_config)],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "MILLSTREAM_HOLD": str(self._hold), "JAVA_TOOL_OPTIONS": _JAVA,
                     "PYTHONPATH": search_path(),
                     **(environment or {})},
            )  # fmt: skip

    def _command(self, folder: Path, file_of_config: Path) -> list[str]:
        """`millstream run` on a file that defines the same pipeline."""
        file = folder / "pipeline_file.py"
        file.write_text(_FILE.format(root=str(ROOT), config=str(file_of_config)))
        command = [sys.executable, "-m", "millstream.cli.main", "run", str(file), "--kafka",
                   self.config.kafka, "--checkpoint", self.config.checkpoint]  # fmt: skip
        lane = self.config.lane
        return command if lane is None else [*command, "--lane", lane]

    # -- events ---------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """The events it has written so far, without a line truncated by a kill."""
        path = Path(self.config.events)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def batches(self) -> list[dict[str, Any]]:
        """The batches it reported."""
        return [line for line in self.events() if "batch" in line]

    def error(self) -> tuple[str, str] | None:
        """The kind and message of its error, if it ended with one."""
        for line in self.events():
            if "error" in line:
                return line["error"], line["message"]
        return None

    def error_kind(self) -> str | None:
        """The kind of its error, if it ended with one."""
        error = self.error()
        return None if error is None else error[0]

    def output(self) -> str:
        """Its output."""
        return self._output.read_text(errors="replace")

    # -- steps of the protocol -------------------------------------------------

    def arm(self, point: str) -> None:
        """Hold it when it next reaches this point, in any batch."""
        (self._hold / f"{point}@*").touch()

    def held(self) -> str | None:
        """The point at which it is held now."""
        path = self._hold / "held"
        return path.read_text().partition("@")[0] or None if path.exists() else None

    def wait_held(self, point: str) -> None:
        """Wait until it is held at this point; fail if it ends before."""

        def reached() -> bool:
            self._refuse_ended(f"held {point!r}")
            return self.held() == point

        until(reached, f"held {point!r}")

    def release(self) -> None:
        """Let it continue."""
        (self._hold / "held").unlink()

    def wait_started(self) -> None:
        """Wait until its Python process has started."""

        def reached() -> bool:
            self._refuse_ended("started")
            return bool(self.events())

        until(reached, "started")

    def wait_batches(self, count: int) -> None:
        """Wait until it has committed `count` batches."""

        def reached() -> bool:
            self._refuse_ended(f"{count} batches")
            return len(self.batches()) >= count

        until(reached, f"{count} batches")

    def _refuse_ended(self, instead: str) -> None:
        if self.process.poll() is not None:
            raise AssertionError(
                f"it ended with {self.process.returncode} instead of: {instead}\n{self.output()}"
            )

    # -- ending it ---------------------------------------------------------

    def tree(self) -> list[psutil.Process]:
        """All live processes of its session: Spark's daemon leaves the process group only."""
        return [p for p in psutil.process_iter() if _session(p.pid) == self.process.pid]

    def freeze(self) -> None:
        """Send SIGSTOP to all its processes."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT to all its processes."""
        self._signal(signal.SIGCONT)

    def interrupt(self) -> None:
        """Send SIGINT to the job, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def interrupt_again(self) -> None:
        """Send a second SIGINT after the first was handled."""
        time.sleep(1.0)
        self.interrupt()

    def kill(self) -> None:
        """Send SIGKILL to all its processes, stopped first so that none starts another."""
        while self.tree():
            self._signal(signal.SIGSTOP)
            self._signal(signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait until it ends; returns its exit code."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {patience:.0f} s\n{self.output()}") from None

    def succeed(self, patience: float = PATIENCE) -> None:
        """Wait until it ends with exit code 0."""
        assert self.wait(patience) == 0, self.output()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def search_path() -> str:
    """The Python path by which executors in other folders find these tests."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def _session(pid: int) -> int | None:
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return None
        return os.getsid(pid)
    except (ProcessLookupError, psutil.Error):
        return None
