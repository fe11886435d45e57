"""What is no longer needed goes: staged files, old records, files no commit names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.state.orphans import collect
from millstream.state.runs import batch_of

if TYPE_CHECKING:
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.protocol import Head, Prepared
    from millstream.state.merge import Merger

EVERY = 50


class Housekeeping:
    """The owner's broom. Only what lies behind the last commit is ever touched."""

    def __init__(self, checkpoint: Checkpoint, history: int, merger: Merger) -> None:
        self._checkpoint, self._history, self._merger = checkpoint, history, merger
        self._swept = 0

    def at_start(self, head: Head) -> None:
        """Rows staged by attempts that did not count."""
        for path in self._checkpoint.staged.iterdir():
            batch = batch_of(path.name)
            if batch is not None and batch <= head.batch:
                path.unlink(missing_ok=True)

    def after(self, prepared: Prepared, head: Head) -> None:
        """After a commit: its staged rows have arrived; now and then, a sweep."""
        for output in prepared.outputs:
            for entry in output.files:
                name = entry.rpartition(":")[0]
                (self._checkpoint.staged / name).unlink(missing_ok=True)
        if head.batch - self._swept >= EVERY:
            self._swept = head.batch
            self.sweep(head)

    def sweep(self, head: Head) -> None:
        """Forget records older than the history, then files that no record names."""
        named = self._forget_records(head)
        for step in head.steps:
            under_way = self._merger.oldest_batch(step)
            below = head.batch if under_way is None else min(head.batch, under_way)
            folder = self._checkpoint.state_folder(step)
            collect(folder, named.get(step, set()) | set(head.steps[step].manifest.files),
                    batch_below=below)  # fmt: skip

    def _forget_records(self, head: Head) -> dict[str, set[str]]:
        """Delete commits behind the newest full one that is older than the history."""
        commits = self._checkpoint.batches("commit")
        bodies = {batch: self._checkpoint.read_commit(batch) for batch in commits}
        old = [b for b, body in bodies.items()
               if body["full"] is not None and body["clock"] <= head.clock - self._history]  # fmt: skip
        base = max(old, default=0)
        for batch in commits:
            if batch < base:
                bodies.pop(batch)
                for kind in ("intent", "prepared", "commit"):
                    self._checkpoint.path(batch, kind).unlink(missing_ok=True)
        return _files_named(bodies)


def _files_named(bodies: dict[int, dict[str, Any]]) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    for body in bodies.values():
        for step, part in body["steps"].items():
            runs = [*part["change"]["add"], *(run for _, run in part["change"]["replace"])]
            _add(named, step, runs)
        for step, part in (body["full"] or {"steps": {}})["steps"].items():
            _add(named, step, part["manifest"]["runs"])
    return named


def _add(named: dict[str, set[str]], step: str, runs: list[dict[str, Any]]) -> None:
    files = named.setdefault(step, set())
    files.update(segment["file"] for run in runs for segment in run["segments"])
