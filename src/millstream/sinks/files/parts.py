"""Records which part of a compacted file came from which batch: `_millstream/parts-<file>`.

This is read only when a job is rewound to a batch in the middle of a file.
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
    """The first and the last batch that a file contains."""
    words = name.split("-")
    return int(words[1]), int(facts.get("last", words[3] if words[2] == "to" else words[1]))


def parts_of(folder: Path, name: str, facts: dict[str, Any]) -> list[Part] | None:
    """The parts of a file; None if they were not recorded."""
    if not facts["level"] and "-to-" not in name:
        return [(batches_of(name, facts)[1], facts["rows"], facts["bytes"])]
    try:
        body = json.loads((folder / (PARTS + name)).read_bytes())
        parts = [(int(batch), int(rows), int(size)) for batch, rows, size in body]
    except (OSError, ValueError, TypeError):
        return None
    return parts if sum(rows for _, rows, _ in parts) == facts["rows"] else None


def concatenated(known: Iterable[tuple[list[Part], int]]) -> list[Part]:
    """The parts of files that are merged; `int` is the length of a file's header, which only the
    first file keeps."""
    whole: list[Part] = []
    for parts, header in known:
        for index, (batch, rows, size) in enumerate(parts):
            whole.append((batch, rows, size - header if whole and not index else size))
    return whole


def record(folder: Path, name: str, parts: list[Part]) -> None:
    """Write the parts of a file durably, before the file is committed."""
    with (folder / (PARTS + name)).open("wb") as file:
        file.write(json.dumps(parts, separators=(",", ":")).encode())
        file.flush()
        os.fsync(file.fileno())


def remove_others(folder: Path, files: Iterable[str]) -> None:
    """Remove the records of all files except these."""
    known = {PARTS + name for name in files}
    for path in folder.glob(f"{PARTS}*"):
        if path.name not in known:
            path.unlink(missing_ok=True)
