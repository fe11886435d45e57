"""A checkpoint for a single run, of a pipeline whose sources and sinks are all in memory.

Such a run starts with empty `Memory` sinks and from the first row. Its folder is removed when it
ends; late and bad rows in files are kept in `<default checkpoint>/last-run`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.folders import last_run
from millstream.plan.graph import Read, ancestry
from millstream.plan.side_outputs import endpoints
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline

_KEPT = ("dead", "late")


class TemporaryCheckpoint:
    """The checkpoint of a single run."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.folder = Path(tempfile.mkdtemp(prefix=f"millstream-{pipeline.name}-"))

    def begin(self) -> None:
        """Empty the sinks of the rows of earlier runs."""
        outputs, dead = self._pipeline.outputs, self._pipeline.dead
        read = [node.source for node in ancestry(outputs) if isinstance(node, Read)]
        for place in endpoints(outputs, dead):
            if isinstance(place, Memory) and not any(place is source for source in read):
                place.rows.clear()

    def end(self) -> Path:
        """Keep the late and bad rows, replacing those of the last run, and remove the rest.

        Returns the folder of the late and bad rows.
        """
        kept = last_run(self._pipeline.name)
        shutil.rmtree(kept, ignore_errors=True)
        for name in _KEPT:
            if (self.folder / name).exists():
                kept.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(self.folder / name, kept / name)
        shutil.rmtree(self.folder, ignore_errors=True)
        return kept
