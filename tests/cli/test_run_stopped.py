"""Ctrl-C on a real terminal: after the current batch, or at once; no row is lost or repeated."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.cli.bids import lines, pipeline_file, windows
from tests.cli.command import COMMAND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.command import Command

SECONDS = [1, 2, 11, 12, 13, 21]
LEFT = [("2026-01-01T00:00:00.000000Z", 2), ("2026-01-01T00:00:10.000000Z", 3)]
CTRL_C = b"\x03"


class Terminal:
    """`millstream run` on a separate terminal, held in the middle of its first batch."""

    def __init__(self, words: list[str], environment: dict[str, str], hold: Path) -> None:
        self._hold = hold
        hold.mkdir()
        (hold / "in the middle of a run@*").touch()
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [COMMAND, *words], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, **environment, "MILLSTREAM_HOLD": str(hold), "TERM": "xterm"},
            preexec_fn=_take_terminal,  # noqa: PLW1509 - Ctrl-C needs a controlling terminal
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)
        self.said = ""

    def read(self) -> str:
        with suppress(OSError):  # nothing there yet, or the terminal's other end is closed
            self.said += os.read(self._master, 65536).decode(errors="replace")
        return self.said

    def until(self, seen: str | None = None, *, held: bool = False, limit: float = 150) -> None:
        deadline = time.monotonic() + limit
        while not (seen in self.read() if seen else (self._hold / "held").exists() == held):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def ctrl_c(self) -> None:
        os.write(self._master, CTRL_C)

    def release(self) -> None:
        (self._hold / "held").unlink()

    def ended(self, limit: float = 60) -> int:
        deadline = time.monotonic() + limit
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
            time.sleep(0.05)
        self.read()
        assert self.process.returncode is not None, self.said
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def running(millstream: Command, topic: str, folder: Path, *more: str) -> Iterator[Terminal]:
    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin=lines(SECONDS))
    words = ["run", pipeline_file(folder, topic), "--checkpoint", str(folder / "job"), *more]
    terminal = Terminal(words, millstream.environment, folder / "hold")
    try:
        terminal.until(held=True)
        yield terminal
    finally:
        terminal.close()


def java_of(terminal: Terminal) -> list[str]:
    """The command line of the run's Java process."""
    family = psutil.Process(terminal.process.pid).children(recursive=True)
    (java,) = [one for one in family if one.name() == "java"]
    return java.cmdline()


def results(millstream: Command, topic: str) -> list[tuple[str, int]]:
    said = millstream.ok("tail", f"{topic}.out", "--from-beginning", "--until-end", "-o", "json")
    return windows(said.records)


def test_one_ctrl_c_ends_after_the_current_batch(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    with running(millstream, topic, tmp_path, "--lane", "wide") as terminal:
        assert "-XX:TieredStopAtLevel=1" in java_of(terminal), "no row passes through Java here"
        terminal.ctrl_c()
        terminal.until("stopping after this batch; press Ctrl-C again to stop now", limit=5)
        terminal.release()

        assert terminal.ended() == 0
        assert "stopped: 6 rows read in 1 batch (1 spark), 2 written" in terminal.said
        assert "Traceback" not in terminal.said
        assert "WARN" not in terminal.said
    assert results(millstream, topic) == LEFT


@pytest.mark.usefixtures("spark")
def test_a_second_ctrl_c_ends_at_once_and_the_next_run_completes_it(
    millstream: Command, topic: str, tmp_path: Path
) -> None:
    with running(millstream, topic, tmp_path) as terminal:
        terminal.ctrl_c()
        terminal.until("press Ctrl-C again", limit=5)
        terminal.ctrl_c()

        assert terminal.ended(limit=5) == 130
        assert "stopped now" in terminal.said
    millstream.ok(
        "run", pipeline_file(tmp_path, topic), "--checkpoint", str(tmp_path / "job"),
        "--until", "caught-up",
    )  # fmt: skip
    assert results(millstream, topic) == LEFT
