"""Shared by tests of sources: notes in a folder, and readers opened with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.checkpoint.source_notes import SourceNotes
from millstream.sources.spec import SourceOpening

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def notes(folder: Path, source: str = "bids") -> SourceNotes:
    return SourceNotes(folder / "checkpoint", source, lambda: None)


def opening(folder: Path, clock: Callable[[], int] = lambda: 0) -> SourceOpening:
    return SourceOpening(notes(folder), clock, eager=True)
