"""Errors for sinks that another run or another job has claimed."""

from __future__ import annotations

from millstream.errors import AlreadyRunning, DataGone, Fenced

START_OVER = "start over with a new --checkpoint"


def fenced(job: str, where: str) -> Fenced:
    """The error of a run that a newer run has fenced."""
    return Fenced(
        f"the job {job[:8]} needs to be the only one writing to {where}",
        got="a newer run, which has taken over",
        do="let the newer run continue; this run stops and leaves nothing uncommitted visible",
    )


def claimed_by(job: str, pipeline: str, where: str, *, other: str) -> AlreadyRunning:
    """The error for a target of another job; `other` says what to choose instead."""
    return AlreadyRunning(
        f"one job at a time writes to {where}",
        got=f"job {job[:8]} of the pipeline {pipeline!r}, with another checkpoint",
        do=f"{other}, or pass --take-over to fence that job",
    )


def missing_entry(where: str, owners: str | None, *, restore: str) -> DataGone:
    """The error for a ledger that has lost the entry of an earlier batch.

    `owners` are the jobs that have taken over, if any.
    """
    return DataGone(
        f"the job needs its ledger entry in {where}",
        got="none, though an earlier batch wrote one"
        if owners is None
        else f"that of job {owners}, which has taken over",
        do=f"{restore}, or {START_OVER}",
    )
