"""Finds and deletes files that no manifest refers to any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.state.runs.runs import batch_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def loose(folder: Path, keep: Collection[str], *, batch_below: int | None) -> list[str]:
    """The state files in a step's folder that are not in `keep`.

    Files of the batch `batch_below` and later are left out: an attempt may still be writing them.
    So are files that are not state files.
    """
    found = []
    for path in sorted(folder.iterdir()):
        batch = batch_of(path.name)
        if batch is None or path.name in keep:
            continue
        if batch_below is None or batch < batch_below:
            found.append(path.name)
    return found


def collect(folder: Path, keep: Collection[str], *, batch_below: int | None) -> list[str]:
    """Delete the state files in a step's folder that are not in `keep`; return their names."""
    deleted = loose(folder, keep, batch_below=batch_below)
    for name in deleted:
        (folder / name).unlink(missing_ok=True)
    return deleted
