"""Removes what is no longer needed: staged files, old records, files no commit refers to.

A pass of clean-up runs beside the batches and only writes new files (`cleaning.py`). What it wrote
takes effect between two batches: a new segment lists the compacted records, and if the run still
owns the job after that, what they replace is deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.cleaning import Order, clean, known_of, sizes_of, state_path
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.filling import Filling
from millstream.engine.checkpoint.records.archive import Archive
from millstream.errors import MillstreamError
from millstream.state.runs.orphans import collect
from millstream.state.runs.runs import batch_of

if TYPE_CHECKING:
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.checkpoint.cleaning import Cleaned, Known
    from millstream.engine.checkpoint.protocol import Head, Prepared
    from millstream.state.runs.merge import Merger

LOG = logging.getLogger("millstream")
SWEEP_EVERY = 50  # batches from one pass to the next
SWEEP_SECONDS = 60.0  # or this long
COMPACT_BYTES = 2**20  # of records that were not compacted yet
BESIDE = True  # passes run in a thread of their own
_KEPT_SHARE = 4
_LOOSE = 400  # files that batches leave from one pass to the next, about


class Housekeeping:
    """Clean-up by the run that owns the job.

    Commits of earlier runs are read by the first pass, so that a long history slows down neither
    the start nor any one batch. Commits that were rewound do not keep their files.
    """

    def __init__(self, checkpoint: Checkpoint, history: int, merger: Merger) -> None:
        self._checkpoint, self._history, self._merger = checkpoint, history, merger
        self._archive = Archive(checkpoint.folder, checkpoint.incarnation)
        lineage = checkpoint.lineage()
        self._unread = tuple(lineage)
        self._rewound = frozenset(checkpoint.batches("commit")) - frozenset(lineage)
        self._known: dict[int, Known] = {}
        self._fresh: dict[int, Known] = {}
        self._idle: frozenset[str] = frozenset()
        self._over, self._tables = False, 1
        self._swept, self._swept_at = 0, time.monotonic()
        self._thread: threading.Thread | None = None
        self._cleaned: Cleaned | None = None
        self._error: BaseException | None = None
        self._head: Head | None = None
        self._filling = Filling()
        self._sizes = sizes_of(checkpoint.folder)

    def facts(self) -> dict[str, Any]:
        """The size of the checkpoint and the space beside it, as of the last pass."""
        warning = self._filling.warning
        return self._sizes._asdict() | ({} if warning is None else {"warning": warning})

    def at_start(self, head: Head) -> None:
        """Remove rows staged by rejected attempts (killed runs, tasks run twice) and old drafts."""
        for path in self._checkpoint.staged.iterdir():
            batch = batch_of(path.name)
            if batch is not None and batch <= head.batch:
                path.unlink(missing_ok=True)
        for folder in ("segments", "runs"):
            durable.sweep_drafts(self._checkpoint.folder / folder)

    def after(self, prepared: Prepared, head: Head) -> None:
        """After a commit: remove its staged rows, and from time to time begin or end a pass.

        Raises:
            Damaged: a commit in the history cannot be read.
        """
        for output in prepared.outputs:
            for entry in output.files:
                name = entry.rpartition(":")[0]
                (self._checkpoint.staged / name).unlink(missing_ok=True)
        assert self._checkpoint.newest is not None
        self._fresh[head.batch] = known_of(self._checkpoint.newest)
        self._head = head
        if self._thread is not None:
            if not self._thread.is_alive():
                self._end_pass()
        elif self._due(head):
            self._begin_pass(head)

    def close(self) -> None:
        """Let the pass that is running take effect, unless another run owns the job.

        What has failed is not raised here: the next run begins a pass, too.
        """
        if self._thread is not None:
            self._thread.join()
            with suppress(MillstreamError):
                self._checkpoint.owned()
                self._end_pass()

    def _due(self, head: Head) -> bool:
        every = min(SWEEP_EVERY, max(1, _LOOSE // self._tables))
        return (
            head.batch - self._swept >= every or time.monotonic() - self._swept_at > SWEEP_SECONDS
        )

    def _begin_pass(self, head: Head) -> None:
        self._swept, self._swept_at = head.batch, time.monotonic()
        self.at_start(head)
        order = self._order(head)
        self._known = {**self._known, **self._fresh}
        self._fresh = {}

        def work() -> None:
            try:
                self._cleaned = clean(order)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work, name="housekeeping", daemon=True)
        self._thread.start()
        if not BESIDE:
            self._end_pass()

    def _order(self, head: Head) -> Order:
        places = self._places(head)
        self._tables = max(1, len(places))
        merging = [self._merger.oldest_batch(place) for place in places]
        old, target = self._checkpoint.to_compact(
            COMPACT_BYTES, _KEPT_SHARE, always=self._over
        )  # fmt: skip
        return Order(
            folder=self._checkpoint.folder,
            segments=self._checkpoint.segments,
            archive=self._archive,
            history=self._history,
            known={**self._known, **self._fresh},
            unread=self._unread,
            rewound=self._rewound,
            live=frozenset().union(*(self._live(head, step, table) for step, table in places)),
            live_bytes=sum(run.bytes for state in head.steps.values() for run in state.runs),
            idle=self._idle,
            below=min([head.batch, *(batch for batch in merging if batch is not None)]),
            target=target,
            old=old,
        )

    @staticmethod
    def _places(head: Head) -> list[tuple[str, str]]:
        return [(step, table) for step, state in head.steps.items() for table in state.manifests]

    def _live(self, head: Head, step: str, table: str) -> frozenset[str]:
        """The state files of a table that the newest commit or a merge uses."""
        names = head.steps[step].manifests[table].files | self._merger.reading((step, table))
        return frozenset(f"{state_path(step, table)}/{name}" for name in names)

    def _end_pass(self) -> None:
        """Let a pass take effect: list what it wrote, then delete what that replaces."""
        assert self._thread is not None
        assert self._head is not None
        self._thread.join()
        self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        assert self._cleaned is not None
        cleaned, self._cleaned = self._cleaned, None
        if cleaned.kept is not None:
            self._checkpoint.replace_segments(cleaned.old, cleaned.kept)
        self._checkpoint.owned()
        reached("before clean-up deletes", 0)
        self._checkpoint.remove_unlisted()
        self._known, self._unread = {**cleaned.known, **self._fresh}, ()
        self._fresh, self._idle, self._over = {}, cleaned.idle, cleaned.over
        self._delete_state(self._head)
        for path in cleaned.wasteful:
            path.unlink(missing_ok=True)
        self._sizes = cleaned.sizes
        self._filling.look(cleaned.sizes)

    def _delete_state(self, head: Head) -> None:
        """Delete the state files that neither a commit nor a merge refers to, or that are archived
        and not in use."""
        needed = frozenset[str]().union(*(commit.files for commit in self._known.values()))
        for step, table in self._places(head):
            place = state_path(step, table)
            keep = self._live(head, step, table) | {
                name for name in needed
                if name.startswith(f"{place}/") and name not in self._archive
            }  # fmt: skip
            merging = self._merger.oldest_batch((step, table))
            below = head.batch if merging is None else min(head.batch, merging)
            names = {name.rpartition("/")[2] for name in keep}
            collect(self._checkpoint.state_folder(step, table), names, batch_below=below)
