"""Opens checkpoints of earlier versions, which wrote each record to a file of its own.

    batches/<n>.intent  .prepared  .commit  .rewind

Their records are read, copied to one file, and listed by the first segment; only then are the old
files deleted. A run that is killed before the list is written has changed nothing, and afterwards
the next run deletes what is left.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.records.compaction import Stays, write_kept
from millstream.engine.checkpoint.records.segments import EARLIER

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.engine.checkpoint.records.appending import Appender
    from millstream.engine.checkpoint.records.segments import Segments

_INSTEAD = "The records of this job are in segments/, which earlier versions cannot read.\n"
_ORDER = {"intent": 0, "prepared": 1, "commit": 2, "rewind": 3}


def migrate(segments: Segments, appender: Appender, *, despite_damage: bool) -> None:
    """Take over the records of an earlier version.

    Raises:
        Damaged: one of them is damaged; with `despite_damage`, that is noted instead.
    """
    commits = segments.numbers("commit")
    newest = commits[-1] if commits else 0
    stays = [
        Stays(kind, number)
        for kind, number in sorted(segments.index, key=lambda key: (key[1], _ORDER[key[0]]))
        if kind in ("commit", "rewind") or number > newest or number == 1
    ]
    kept = write_kept(segments, appender.kept_path(), stays, despite_damage=despite_damage)
    appender.start([kept.part])
    segments.replaced({path.path.name for path in segments.index.values()}, kept.part.name,
                      kept.entries)  # fmt: skip
    reached("records migrated", 0)


def remove_earlier(folder: Path) -> None:
    """Delete the files of an earlier version, whose records are in segments.

    A file takes the place of their folder: an earlier version would find no records here and begin
    from the start, but now it cannot make that folder, and stops.
    """
    place = folder / EARLIER
    if place.is_dir():
        shutil.rmtree(place)
    if not place.exists():
        place.write_text(_INSTEAD)
