"""The current runs: an immutable list, and the changes to it that commits hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput
from millstream.state.runs.runs import Run
from millstream.state.spec import MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to a step's manifest.

    `replace` substitutes merged runs for the runs they were made of, then `add`
    appends the batch's own runs, then `floor` drops all rows of a smaller order.
    """

    add: tuple[Run, ...] = ()
    replace: tuple[tuple[tuple[str, ...], Run], ...] = ()
    floor: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The change as it is stored in a commit."""
        return {
            "add": [run.to_json() for run in self.add],
            "replace": [[list(ids), run.to_json()] for ids, run in self.replace],
            "floor": self.floor,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Change:
        """The change read back."""
        return cls(
            add=tuple(Run.from_json(run) for run in entry["add"]),
            replace=tuple((tuple(ids), Run.from_json(run)) for ids, run in entry["replace"]),
            floor=entry["floor"],
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current runs, oldest first, and the order below which rows are dropped."""

    runs: tuple[Run, ...] = ()
    floor: int = MIN_TIME

    @property
    def files(self) -> frozenset[str]:
        """The names of all files of the current runs."""
        return frozenset(segment.file for run in self.runs for segment in run.segments)

    def apply(self, change: Change) -> Manifest:
        """The manifest after a change; segments entirely below the floor are removed."""
        runs = self.runs
        for ids, merged in change.replace:
            runs = _replaced(runs, ids, merged)
        runs = _appended(runs, change.add)
        floor = self.floor if change.floor is None else max(self.floor, change.floor)
        return Manifest(tuple(filter(None, (_above(run, floor) for run in runs))), floor)

    def to_json(self) -> dict[str, Any]:
        """The whole manifest, as every hundredth commit stores it."""
        return {"runs": [run.to_json() for run in self.runs], "floor": self.floor}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Manifest:
        """The manifest read back."""
        return cls(tuple(Run.from_json(run) for run in entry["runs"]), entry["floor"])


def _replaced(runs: tuple[Run, ...], ids: tuple[str, ...], merged: Run) -> tuple[Run, ...]:
    have = [run.id for run in runs]
    first = have.index(ids[0]) if ids and ids[0] in have else None
    if first is None or tuple(have[first : first + len(ids)]) != ids:
        raise InvalidInput(
            f"a merge needs the runs it replaces to be adjacent: {', '.join(ids)}",
            got=", ".join(have) or "no runs",
            do="drop the merge: its files are orphans",
        )
    return _appended(runs[:first], (merged,)) + runs[first + len(ids) :]


def _appended(runs: tuple[Run, ...], new: tuple[Run, ...]) -> tuple[Run, ...]:
    twice = {run.id for run in runs} & {run.id for run in new}
    if twice:
        raise InvalidInput(
            "a run needs a unique id",
            got=f"{', '.join(sorted(twice))} again",
            do="apply each change once",
        )
    return runs + new


def _above(run: Run, floor: int) -> Run | None:
    segments = tuple(segment for segment in run.segments if segment.greatest >= floor)
    if len(segments) == len(run.segments):
        return run if segments else None
    return replace(run, segments=segments) if segments else None
