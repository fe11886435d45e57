"""Writes batches as DataFrames, at least once, with a ledger in the checkpoint.

sinks/<system>/_millstream/0000000007.json     the batch that was written last, and its run

A batch is sent, then recorded. A restart does not send a recorded batch again; one that was sent
but not recorded, because the process died in between, is sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.sinks.ownership import missing_entry
from millstream.sinks.record_log import Records
from millstream.sinks.spark.frames import frame_of
from millstream.sources.spark.frames import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Opening, Staged


SENT = "between a batch that was sent and its record"  # a step of the protocol, for tests


class Target(Protocol):
    """Takes the DataFrames of batches; `signed` says whether retractions are marked for it."""

    signed: bool

    def check(self, spark: SparkSession) -> None:
        """Refuse what can never be written, before the first batch."""

    def send(self, frame: DataFrame, staged: Staged, batch: int) -> None:
        """Write the rows of one output."""


class FrameWriter:
    """Sends the outputs of each batch to one target, one after another."""

    def __init__(self, opening: Opening, target: Target) -> None:
        assert opening.folder is not None, "a sink with a ledger needs a checkpoint"
        self._opening, self._target, self._folder = opening, target, opening.folder
        self._records = Records(opening.folder, opening)

    @property
    def _guarded(self) -> bool:
        return self._opening.delivery != "at_least_once"

    def recover(self, expected: str | None) -> str | None:
        """Take the ledger over from earlier runs, and return the intent that it names."""
        self._target.check(self._opening.spark())
        if not self._guarded:
            return expected
        last = _last(self._records.claim(), self._opening.job)
        if last is None and expected is not None:
            raise missing_entry(str(self._folder), None, restore="restore the whole checkpoint")
        return last

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send a batch, then record it."""
        spark, opening, sent = self._opening.spark(), self._opening, False
        opening.on_step("before a sink's commit")
        for staged in outputs:
            opening.check_owned()
            if self._guarded:
                self._records.check()
            frame = frame_of(staged, spark, signed=self._target.signed)
            if frame is not None:
                with described(spark, f"{opening.pipeline} · batch {batch} · {staged.output}"):
                    self._target.send(frame, staged, batch)
                sent = True
        if sent:
            opening.on_step(SENT)
        if self._guarded:
            self._records.append(kind="batch", full={"intent": intent, "batch": batch})
            self._records.remove_before(self._records.number)
        opening.on_step("after a sink's commit")

    def close(self) -> None:
        """Nothing to close: the session is the run's."""


def _last(records: Sequence[dict[str, Any]], job: str) -> str | None:
    """The intent of the newest batch of a job."""
    written = (str(body["full"]["intent"]) for body in reversed(records)
               if body["kind"] == "batch" and body["job"] == job)  # fmt: skip
    return next(written, None)
