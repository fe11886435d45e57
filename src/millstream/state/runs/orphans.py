"""Deletes files that no manifest refers to any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.state.runs.runs import batch_of

if TYPE_CHECKING:
    from pathlib import Path


def collect(folder: Path, keep: set[str], *, batch_below: int | None) -> list[str]:
    """Delete the state files in a step's folder that are not in `keep`; return their names.

    Files of the batch `batch_below` and later stay in any case: an attempt may still be writing
    them. Files that are not state files are ignored.
    """
    deleted = []
    for path in sorted(folder.iterdir()):
        batch = batch_of(path.name)
        if batch is None or path.name in keep:
            continue
        if batch_below is None or batch < batch_below:
            path.unlink(missing_ok=True)
            deleted.append(path.name)
    return deleted
