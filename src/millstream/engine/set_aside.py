"""Late and bad rows of one run: how many, and where they are if they are kept in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.checkpoint.folders import checkpoint_folder, last_run
from millstream.engine.dead_letters.kept_rows import KeptRows
from millstream.engine.dead_letters.rows import opened
from millstream.engine.dead_letters.side_outputs import kept_in
from millstream.engine.recovery.rewind import suffix_of
from millstream.plan.side_outputs import uses_kafka

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.metrics.facts import Facts

_SHOWN = 200


class SetAside:
    """The late and bad rows that one run of a pipeline has set aside."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._name = pipeline.name
        self._in_files = not uses_kafka(pipeline.outputs, pipeline.dead)
        self.late = self.dead = 0

    def count(self, facts: Facts) -> None:
        """Add a batch."""
        self.late += facts.late
        self.dead += facts.dead

    def summary(self, folder: Path) -> str | None:
        """How many rows are kept in files of a checkpoint, and where; None if there are none."""
        if not self._in_files or not (self.late or self.dead):
            return None
        suffix = suffix_of(folder)
        bad = KeptRows(kept_in(folder, "dead", suffix), "dead") if self.dead else None
        late = KeptRows(kept_in(folder, "late", suffix), "late") if self.late else None
        found = []
        if bad is not None and bad.folder.exists():
            found.append(f"{_counted(self.dead, 'bad row')} (the last: {_reason(bad)}) in "
                         f"{bad.where}; `millstream dead list {self._target(folder)}`")  # fmt: skip
        if late is not None and late.folder.exists():
            found.append(f"{_counted(self.late, 'late row')} in {late.where}")
        return f"{self._name} has set aside {'; '.join(found)}" if found else None

    def _target(self, folder: Path) -> str:
        default = folder in (checkpoint_folder(self._name), last_run(self._name))
        return self._name if default else f"{self._name} --checkpoint {folder}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _reason(kept: KeptRows) -> str:
    """The reason of the newest kept row."""
    record = kept.newest()
    row = None if record is None else opened(record)
    return "unknown" if row is None else row.reason[:_SHOWN]
