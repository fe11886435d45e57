"""Which folder is the checkpoint of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.side_outputs import endpoints
from millstream.sources.memory import Memory
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline


def checkpoint_folder(pipeline: str) -> Path:
    """Where a pipeline keeps its checkpoint unless another folder is named."""
    return home_folder() / "jobs" / pipeline


def last_run(pipeline: str) -> Path:
    """Where the late and bad rows of the last run with a throw-away checkpoint are."""
    return checkpoint_folder(pipeline) / "last-run"


def in_memory(pipeline: Pipeline) -> bool:
    """Whether nothing that a pipeline reads or writes outlives its process."""
    found = endpoints(pipeline.outputs, pipeline.dead)
    return all(isinstance(place, Memory) for place in found)


def side_output_folder(name: str, pipeline: Pipeline | None, checkpoint: Path | None) -> Path:
    """The folder whose late and bad rows are meant by a pipeline, or by its name alone."""
    if checkpoint is not None:
        return checkpoint
    kept, default = last_run(name), checkpoint_folder(name)
    temporary = in_memory(pipeline) if pipeline else not (default / "job").exists()
    return kept if temporary and kept.exists() else default
