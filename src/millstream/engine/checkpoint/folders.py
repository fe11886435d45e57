"""The folder of a pipeline's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.side_outputs import endpoints
from millstream.sources.memory import Memory
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline


def checkpoint_folder(pipeline: str) -> Path:
    """The default folder of a pipeline's checkpoint."""
    return home_folder() / "jobs" / pipeline


def last_run(pipeline: str) -> Path:
    """The folder of the late and bad rows of the last run with a temporary checkpoint."""
    return checkpoint_folder(pipeline) / "last-run"


def in_memory(pipeline: Pipeline) -> bool:
    """Whether all sources and sinks of a pipeline are in memory."""
    found = endpoints(pipeline.outputs, pipeline.dead)
    return all(isinstance(place, Memory) for place in found)


def side_output_folder(name: str, pipeline: Pipeline | None, checkpoint: Path | None) -> Path:
    """The folder with the late and bad rows of a pipeline, which may be known only by name."""
    if checkpoint is not None:
        return checkpoint
    kept, default = last_run(name), checkpoint_folder(name)
    temporary = in_memory(pipeline) if pipeline else not (default / "job").exists()
    return kept if temporary and kept.exists() else default
