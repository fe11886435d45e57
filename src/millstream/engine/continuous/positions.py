"""How far a continuous job has come: what its checkpoint says beside Spark's own.

    continuous/places/<n>       per source: topic, its identity, and the offsets below which every
                                bad row is in the dead topic
    continuous/outputs/<name>/  Spark's checkpoint of that output's query, if Spark runs it

Each record is made once under the next number; the last two are kept.
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
class Place:
    """One source: its topic, that topic's id, and up to where its bad rows have been parted."""

    topic: str
    identity: str | None
    parted: Offsets


class Places:
    """The places of a job's sources, durable."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.folder / FOLDER / "places"
        self._number = 0
        self.of: dict[str, Place] = {}

    @property
    def number(self) -> int:
        """How often places have been kept, over all runs."""
        return self._number

    def open(self, topics: Mapping[str, str], extents: Mapping[str, Extent]) -> None:
        """Go on where the last run stood; a source that is new begins at the first record kept.

        Raises:
            MillstreamError: a source reads another topic than it did.
            DataGone: a topic was recreated, or no longer has what was not read yet.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.sweep_drafts(self._folder)
        known = self._read()
        for name, topic in topics.items():
            extent, place = extents[name], known.get(name)
            if place is None:
                self.of[name] = Place(topic, extent.identity, dict(extent.first))
                continue
            if place.topic != topic:
                raise MillstreamError(
                    f"the checkpoint {self._checkpoint.folder} needs {name!r} to read the topic "
                    f"{place.topic!r}",
                    got=repr(topic),
                    do="name another folder with --checkpoint",
                )
            check_extent(topic, extent, place.parted, place.identity)
            new = {p: at for p, at in extent.first.items() if p not in place.parted}
            self.of[name] = Place(topic, place.identity, {**place.parted, **new})
        self.keep()

    def _read(self) -> dict[str, Place]:
        numbers = self._numbers()
        if not numbers:
            return {}
        self._number = numbers[-1]
        body = durable.read(self._path(self._number), "places")
        return {name: Place(one["topic"], one["identity"],
                            {int(p): at for p, at in one["parted"].items()})
                for name, one in body["sources"].items()}  # fmt: skip

    def keep(self) -> None:
        """Make the places durable.

        Raises:
            Fenced: this run no longer owns the job.
        """
        self._checkpoint.owned()
        body: dict[str, Any] = {
            "sources": {
                name: {"topic": place.topic, "identity": place.identity,
                       "parted": {str(p): at for p, at in sorted(place.parted.items())}}
                for name, place in self.of.items()
            }
        }  # fmt: skip
        self._number += 1
        if not durable.write_new(self._path(self._number), "places", body):
            self._checkpoint.owned()
            raise durable.damaged(self._path(self._number), "a record of an unknown writer")
        for old in self._numbers()[:-_KEPT]:
            self._path(old).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.glob("[0-9]*"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}"


def refuse_other_mode(checkpoint: Checkpoint, *, continuous: bool) -> None:
    """Refuse a checkpoint that was begun in the other mode.

    Raises:
        MillstreamError: it has the other's records.
    """
    was_continuous = (checkpoint.folder / FOLDER).exists()
    other = checkpoint.batches("intent") if continuous else was_continuous
    if other:
        was = "micro_batch" if continuous else "continuous"
        raise MillstreamError(
            f"the checkpoint {checkpoint.folder} needs the mode it was begun in",
            got=f'mode="{"continuous" if continuous else "micro_batch"}", where it was "{was}"',
            do="name another folder with --checkpoint",
        )
