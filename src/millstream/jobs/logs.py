"""Structured logs: JSON lines with the same keys everywhere, rotated by size and every day.

{"ts": "2026-01-01T00:00:00.000000Z", "level": "info", "event": "summary", "pipeline": "hot", …}
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGEST, KEPT = 5_000_000, 7
OLDEST = 86_400.0
RARELY = 60.0
LONGEST_FACT = 16_384  # characters
_PART = 64 * 1024
_LOOK = 0.2


class Log:
    """A log file written by one process."""

    def __init__(self, path: Path, **always: Any) -> None:
        self._always = always
        self._handler = _Rotating(path)
        self._rare: dict[tuple[str, Any], tuple[float, int]] = {}
        path.chmod(0o600)

    def __call__(self, event: str, level: str = "info", **facts: Any) -> None:
        """Write one line. Values that are not JSON are written as text; long ones are cut."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        line = json.dumps(
            {"ts": now, "level": level, "event": event, **self._always,
             **{name: _shorten(fact) for name, fact in facts.items()}},
            ensure_ascii=False, default=str,
        )  # fmt: skip
        self._handler.emit(logging.LogRecord("millstream", logging.INFO, "", 0, line, (), None))

    def rarely(self, event: str, level: str = "info", **facts: Any) -> None:
        """Write one line, at most once a minute for each pipeline; `repeated` is how many lines
        were left out since the last one."""
        about, now = (event, facts.get("pipeline")), time.monotonic()
        wrote, repeated = self._rare.get(about, (-RARELY, 0))
        if now - wrote < RARELY:
            self._rare[about] = wrote, repeated + 1
            return
        self._rare[about] = now, 0
        self(event, level, **facts, **({"repeated": repeated} if repeated else {}))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _Rotating(RotatingFileHandler):
    """Begins a new file when the old one is large, or its first line a day old."""

    def __init__(self, path: Path) -> None:
        self._began = _first_time(path)
        super().__init__(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802
        return time.time() - self._began > OLDEST or bool(super().shouldRollover(record))

    def doRollover(self) -> None:  # noqa: N802
        self._began = time.time()
        super().doRollover()


def _first_time(path: Path) -> float:
    """When the first line of a log was written; now if there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
        return datetime.fromisoformat(json.loads(file.readline())["ts"]).timestamp()
    return time.time()


_began: dict[str, float] = {}


def rotate_open_file(path: Path) -> None:
    """Rotate a file that other processes hold open, when it is large or a day old: copy its end to
    `<name>.1`, truncate it. It is as old as that copy, or as this process knows it."""
    with suppress(FileNotFoundError):
        size, now = path.stat().st_size, time.time()
        aside = path.with_name(path.name + ".1")
        began = _began.setdefault(str(path), aside.stat().st_mtime if aside.exists() else now)
        if size <= LARGEST and (not size or now - began <= OLDEST):
            return
        _began[str(path)] = now
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with path.open("rb") as source, os.fdopen(descriptor, "wb") as copy:
            source.seek(max(0, size - LARGEST))
            copy.write(source.read(LARGEST))
        os.truncate(path, 0)


@contextmanager
def limit_size(path: Path) -> Iterator[None]:
    """Rotate a file whenever it grows too large, for the length of the block."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK):
            rotate_open_file(path)

    rotate_open_file(path)
    thread = threading.Thread(target=look, name=f"rotate {path.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        rotate_open_file(path)


def _shorten(fact: Any) -> Any:
    text = fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False, default=str)
    if len(text) <= LONGEST_FACT:
        return fact
    return f"{text[:LONGEST_FACT]}… ({len(text)} characters)"


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log, including its rotated files."""
    lines: list[str] = []
    for file in (path, *(path.with_name(f"{path.name}.{age}") for age in range(1, KEPT + 1))):
        lines = _tail_of(file, count - len(lines)) + lines
        if len(lines) >= count:
            break
    return lines


def _tail_of(file: Path, count: int) -> list[str]:
    if count <= 0 or not file.exists():
        return []
    with file.open("rb") as stream:
        at = stream.seek(0, os.SEEK_END)
        text = b""
        while at > 0 and text.count(b"\n") <= count:
            step = min(_PART, at)
            at -= step
            stream.seek(at)
            text = stream.read(step) + text
    return text.decode("utf-8", errors="replace").splitlines()[-count:]


def follow(path: Path, ended: Callable[[], bool]) -> Iterator[str]:
    """Yield new lines as they are written, across rotations, until `ended` returns true."""
    stream = path.open("rb") if path.exists() else None
    if stream is not None:
        stream.seek(0, os.SEEK_END)
    rest = b""
    while True:
        over = ended()
        if stream is None and path.exists():
            stream = path.open("rb")
        if stream is not None:
            *lines, rest = (rest + stream.read()).split(b"\n")
            yield from (line.decode("utf-8", errors="replace") for line in lines)
            if not _is_current(path, stream):
                stream.close()
                stream = None
                continue
        if over:
            break
        time.sleep(_LOOK)
    if stream is not None:
        stream.close()


def _is_current(path: Path, stream: BinaryIO) -> bool:
    """Whether the open file is still the one at that path."""
    try:
        return os.fstat(stream.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
