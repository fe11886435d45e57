"""Removes what is no longer needed: staged files, old records, files no commit refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.state.runs.orphans import collect
from millstream.state.runs.runs import batch_of

if TYPE_CHECKING:
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.checkpoint.protocol import Head, Prepared
    from millstream.state.runs.merge import Merger

Place = tuple[str, str]  # a step and one of its tables
SWEEP_EVERY = 50
_READ_PER_BATCH = 20


@dataclass(frozen=True, slots=True)
class _Commit:
    """The facts of a commit that decide what may be deleted."""

    clock: int
    full: bool
    files: dict[Place, set[str]]


class Housekeeping:
    """Clean-up by the run that owns the job; only what is older than the last commit is deleted.

    Commits of earlier runs are read a few per batch, so that a long history slows down neither
    the start nor any one batch. Commits that were rewound do not keep their files.
    """

    def __init__(self, checkpoint: Checkpoint, history: int, merger: Merger) -> None:
        self._checkpoint, self._history, self._merger = checkpoint, history, merger
        self._unread = checkpoint.lineage()
        self._rewound = set(checkpoint.batches("commit")) - set(self._unread)
        self._known: dict[int, _Commit] = {}
        self._swept = 0

    def at_start(self, head: Head) -> None:
        """Remove rows staged by rejected attempts (killed runs, tasks run twice) and old drafts."""
        for path in self._checkpoint.staged.iterdir():
            batch = batch_of(path.name)
            if batch is not None and batch <= head.batch:
                path.unlink(missing_ok=True)
        for folder in ("batches", "runs"):
            durable.sweep_drafts(self._checkpoint.folder / folder)

    def after(self, prepared: Prepared, head: Head) -> None:
        """After a commit: remove its staged rows, and sweep every fiftieth batch."""
        for output in prepared.outputs:
            for entry in output.files:
                name = entry.rpartition(":")[0]
                (self._checkpoint.staged / name).unlink(missing_ok=True)
        self._unread.append(head.batch)
        for _ in range(min(_READ_PER_BATCH, len(self._unread))):
            batch = self._unread.pop()
            self._known[batch] = _parse_commit(self._checkpoint.read_commit(batch))
        if not self._unread and head.batch - self._swept >= SWEEP_EVERY:
            self._swept = head.batch
            self.sweep(head)

    def sweep(self, head: Head) -> None:
        """Delete records older than the history, then files that no record refers to."""
        self.at_start(head)
        self._delete_records(head)
        for step, state in head.steps.items():
            for table, manifest in state.manifests.items():
                place = (step, table)
                merging = self._merger.oldest_batch(place)
                below = head.batch if merging is None else min(head.batch, merging)
                named = set(manifest.files) | set(self._merger.reading(place))
                for commit in self._known.values():
                    named |= commit.files.get(place, set())
                collect(self._checkpoint.state_folder(step, table), named, batch_below=below)

    def _delete_records(self, head: Head) -> None:
        """Delete the commits before the newest full one that is older than the history."""
        old = head.clock - self._history
        base = max((b for b, c in self._known.items() if c.full and c.clock <= old), default=0)
        for batch in [batch for batch in {*self._known, *self._rewound} if batch < base]:
            self._known.pop(batch, None)
            self._rewound.discard(batch)
            for kind in ("intent", "prepared", "commit", "rewind"):
                self._checkpoint.path(batch, kind).unlink(missing_ok=True)


def _parse_commit(body: dict[str, Any]) -> _Commit:
    files: dict[Place, set[str]] = {}
    for step, part in body["steps"].items():
        for table, change in part["changes"].items():
            runs = [*change["add"], *(run for _, run in change["replace"])]
            _add(files, (step, table), runs)
    for step, part in (body["full"] or {"steps": {}})["steps"].items():
        for table, manifest in part["manifests"].items():
            _add(files, (step, table), manifest["runs"])
    return _Commit(body["clock"], body["full"] is not None, files)


def _add(named: dict[Place, set[str]], place: Place, runs: list[dict[str, Any]]) -> None:
    files = named.setdefault(place, set())
    files.update(segment["file"] for run in runs for segment in run["segments"])
