"""Runs `millstream` in this process or in a separate one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = str(Path(sys.executable).with_name("millstream"))


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """`millstream …`, on one Kafka."""

    def __init__(self, kafka: str | None, environment: Mapping[str, str] | None = None) -> None:
        self.environment: dict[str, str] = {"NO_COLOR": "1", **(environment or {})}
        if kafka is not None:
            self.environment["MILLSTREAM_KAFKA"] = kafka

    def __call__(self, *words: str, stdin: str | bytes = b"") -> Result:
        """Run in this process."""
        from millstream.cli.main import app

        result = CliRunner(env=self.environment).invoke(app, words, input=stdin)
        return Result(result.exit_code, result.stdout, result.stderr)

    def ok(self, *words: str, stdin: str | bytes = b"") -> Result:
        """Run in this process; the command must succeed."""
        said = self(*words, stdin=stdin)
        assert said.code == 0, said
        return said

    def process(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the installed command as a process."""
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, **self.environment},
        }
        return subprocess.Popen([COMMAND, *words], **(settings | options))

    def at_a_terminal(self, *words: str, typing: tuple[tuple[str, str], ...] = ()) -> Result:
        """Runs with all three streams at one terminal; `out` is what was seen there.

        Each pair in `typing` is what to wait for and what to type then. Ctrl-C is pressed
        again if nothing comes of it: Python does not hear one that falls between its last
        look for signals and its read of a line.
        """
        controller, terminal = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", **self.environment}
        options: dict[str, Any] = {
            "stdin": terminal,
            "stdout": terminal,
            "stderr": terminal,
            "env": environment,
            "start_new_session": True,
            "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is heard
        }
        waiting, seen, typed = list(typing), "", ""
        with self.process(*words, **options) as process:
            os.close(terminal)
            while part := _read(controller, again=typed == "\x03"):
                seen += part
                while waiting and waiting[0][0] in seen:
                    typed = waiting.pop(0)[1]
                    os.write(controller, typed.encode())
            code = _ended(process)
        os.close(controller)
        assert not waiting, (seen, waiting)
        return Result(code, seen, "")


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def _read(controller: int, *, again: bool) -> str:
    try:
        while again and not select.select([controller], [], [], 3)[0]:
            os.write(controller, b"\x03")
        return os.read(controller, 65536).decode()
    except OSError:  # the other end is closed
        return ""
