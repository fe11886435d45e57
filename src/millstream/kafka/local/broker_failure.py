"""Why a broker failed, in one line from its log or output."""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ENTRY = re.compile(r"^\d{4}-\d\d-\d\dT\S+ (?P<level>[A-Z]+)\s+(?P<text>.*)$")
_THROWN = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ )?(?P<text>[\w$.]+(?:Exception|Error)\b.*)$"
)
_TAIL = 256 << 10
_LONGEST = 300


def last_error(log: Path, output: Path, *, since: int = 0) -> str:
    """The last error that was logged after byte `since` of the log, with its root cause.

    Without one, the last line of the log; without that, the last line of Java's output.
    """
    lines = _tail(log, since)
    found = _logged_error(lines) or _last_line(lines) or _last_line(_tail(output, 0))
    return found[:_LONGEST] if found else "no output"


def cause(printed: str) -> str | None:
    """The root exception of a printed failure, else its last line."""
    lines = printed.splitlines()
    return _thrown(lines) or _last_line(lines)


def _logged_error(lines: list[str]) -> str | None:
    errors = [
        number
        for number, line in enumerate(lines)
        if (entry := _ENTRY.match(line)) and entry["level"] in ("ERROR", "FATAL")
    ]
    if not errors:
        return None
    first = errors[-1]
    entry = _ENTRY.match(lines[first])
    assert entry
    below = itertools.takewhile(lambda line: not _ENTRY.match(line), lines[first + 1 :])
    thrown = _thrown(below)
    return entry["text"] if thrown is None else f"{entry['text']}: {thrown}"


def _thrown(lines: Iterable[str]) -> str | None:
    """The last exception in these lines, which is the root cause of a stack trace."""
    found = [match["text"] for line in lines if (match := _THROWN.match(line))]
    return found[-1] if found else None


def _last_line(lines: list[str]) -> str | None:
    for line in reversed(lines):
        if line.strip() and not line.startswith("\t"):
            entry = _ENTRY.match(line)
            return entry["text"] if entry else line.strip()
    return None


def _tail(file: Path, since: int) -> list[str]:
    """The last lines after byte `since`; of a file rotated since then, from its start."""
    with contextlib.suppress(FileNotFoundError), file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(since if since <= size else 0, size - _TAIL))
        return stream.read().decode(errors="replace").splitlines()
    return []
