"""Which part of a file that was put together came from which batch: `_millstream/parts-<file>`.

It is asked only when a job goes back to a batch in the middle of a file.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PARTS = "parts-"
Part = tuple[int, int, int]  # batch, rows, bytes; in the order of the file


def batches_of(name: str, facts: dict[str, Any]) -> tuple[int, int]:
    """The first and the last batch of which a file has rows."""
    words = name.split("-")
    return int(words[1]), int(facts.get("last", words[3] if words[2] == "to" else words[1]))


def parts_of(folder: Path, name: str, facts: dict[str, Any]) -> list[Part] | None:
    """A file's parts; None if nobody wrote them down."""
    if not facts["level"] and "-to-" not in name:
        return [(batches_of(name, facts)[1], facts["rows"], facts["bytes"])]
    try:
        body = json.loads((folder / (PARTS + name)).read_bytes())
        told = [(int(batch), int(rows), int(size)) for batch, rows, size in body]
    except (OSError, ValueError, TypeError):
        return None
    return told if sum(rows for _, rows, _ in told) == facts["rows"] else None


def joined(known: Iterable[tuple[list[Part], int]]) -> list[Part]:
    """The parts of files that are put together; `int` is the length of a file's head, which all
    but the first lose."""
    whole: list[Part] = []
    for parts, head in known:
        for place, (batch, rows, size) in enumerate(parts):
            whole.append((batch, rows, size - head if whole and not place else size))
    return whole


def keep(folder: Path, name: str, parts: list[Part]) -> None:
    """Write a file's parts down, durably, before the file counts."""
    with (folder / (PARTS + name)).open("wb") as file:
        file.write(json.dumps(parts, separators=(",", ":")).encode())
        file.flush()
        os.fsync(file.fileno())


def forget(folder: Path, files: Iterable[str]) -> None:
    """Remove what is told of files that are no longer there; `files` are those that are."""
    known = {PARTS + name for name in files}
    for path in folder.glob(f"{PARTS}*"):
        if path.name not in known:
            path.unlink(missing_ok=True)
