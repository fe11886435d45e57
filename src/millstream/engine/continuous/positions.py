"""The positions of a continuous job, stored in its checkpoint.

    continuous/places/<n>       per source: topic, its identity, and the offsets below which every
                                row is processed and every bad row is in the dead topic
    continuous/outputs/<name>/  Spark's checkpoint of that output's query, if Spark runs it

Each record is written once under the next number; the last two are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.errors import MillstreamError
from millstream.sources.extent import check_extent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.sources.spec import Extent, Offsets

FOLDER = "continuous"
_KEPT = 2


@dataclass
class Position:
    """The position of one source: its topic, the topic's id, and the next offsets."""

    topic: str
    identity: str | None
    offsets: Offsets


class Positions:
    """The positions of a job's sources, stored durably."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.folder / FOLDER / "places"
        self._number = 0
        self.of: dict[str, Position] = {}

    @property
    def number(self) -> int:
        """How often positions were stored, over all runs."""
        return self._number

    def open(self, topics: Mapping[str, str], extents: Mapping[str, Extent]) -> None:
        """Continue from the stored positions; a new source starts at its first record.

        Raises:
            MillstreamError: a source reads another topic than it did.
            DataGone: a topic was recreated, or no longer holds unread records.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.sweep_drafts(self._folder)
        known = self._read()
        for name, topic in topics.items():
            extent, position = extents[name], known.get(name)
            if position is None:
                self.of[name] = Position(topic, extent.identity, dict(extent.first))
                continue
            if position.topic != topic:
                raise MillstreamError(
                    f"the checkpoint {self._checkpoint.folder} needs {name!r} to read the topic "
                    f"{position.topic!r}",
                    got=repr(topic),
                    do="choose another folder with --checkpoint",
                )
            check_extent(topic, extent, position.offsets, position.identity)
            new = {p: at for p, at in extent.first.items() if p not in position.offsets}
            self.of[name] = Position(topic, position.identity, {**position.offsets, **new})
        self.store()

    def _read(self) -> dict[str, Position]:
        numbers = self._numbers()
        if not numbers:
            return {}
        self._number = numbers[-1]
        body = durable.read(self._path(self._number), "places")
        return {name: Position(one["topic"], one["identity"],
                            {int(p): at for p, at in one["parted"].items()})
                for name, one in body["sources"].items()}  # fmt: skip

    def store(self) -> None:
        """Store the positions durably.

        Raises:
            Fenced: this run no longer owns the job.
        """
        self._checkpoint.owned()
        body: dict[str, Any] = {
            "sources": {
                name: {"topic": position.topic, "identity": position.identity,
                       "parted": {str(p): at for p, at in sorted(position.offsets.items())}}
                for name, position in self.of.items()
            }
        }  # fmt: skip
        self._number += 1
        if not durable.write_new(self._path(self._number), "places", body):
            self._checkpoint.owned()
            raise durable.damaged(self._path(self._number), "a record of another run")
        for old in self._numbers()[:-_KEPT]:
            self._path(old).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.glob("[0-9]*"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}"


def refuse_other_mode(checkpoint: Checkpoint, *, continuous: bool) -> None:
    """Refuse a checkpoint that belongs to the other mode.

    Raises:
        MillstreamError: it has records of the other mode.
    """
    was_continuous = (checkpoint.folder / FOLDER).exists()
    other = checkpoint.batches("intent") if continuous else was_continuous
    if other:
        was = "micro_batch" if continuous else "continuous"
        raise MillstreamError(
            f"the checkpoint {checkpoint.folder} needs the mode it was created in",
            got=f'mode="{"continuous" if continuous else "micro_batch"}"; it was "{was}"',
            do="choose another folder with --checkpoint",
        )
