"""Alerts on jobs themselves, evaluated by the supervisor, because a dead job cannot report itself.

Each run writes its rules into its run log; they apply until the next run writes others.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.jobs.alerts.alerts import job_alerts_file
from millstream.jobs.registry import WITHOUT_PROGRESS, JobRegistry
from millstream.jobs.reports.run_log import RunLogReader
from millstream.sinks.alerts.alert import STATES_WATCHED, JobAlert, from_json
from millstream.sinks.alerts.outbox import Outbox, Recipient, digest_seconds
from millstream.sinks.alerts.rule import Observation, Rule, observe
from millstream.sinks.alerts.store import NotificationStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.api.pipeline import Pipeline
    from millstream.jobs.folders import StackFolder
    from millstream.jobs.logs import Log
    from millstream.jobs.registry import JobRow
    from millstream.sinks.alerts.rule import KeyState

_EVERY = 1.0
_MINUTE = 60.0
_SENDING = 5.0
_LEAVING = 10.0
_KEY = "{}"


def rules_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return a pipeline's alert rules for its run log: its own, and one for each step with
    `late(alert_above=…)`."""
    from millstream.plan.graph import Aggregated
    from millstream.plan.stages import cut

    rules = [{**alert.to_json(), "step": None} for alert in pipeline.alerts]
    for name, node in cut(pipeline.outputs).steps.items():
        limit = node.policy.alert_above if isinstance(node, Aggregated) and node.policy else None
        if limit is not None:
            alert = JobAlert("late", above=limit, name=f"late rows of {name}"[:100])
            rules.append({**alert.to_json(), "step": name})
    return rules


@dataclass(frozen=True)
class Shares:
    """A minute's rows of a job or of one of its steps, and how many were late or dead."""

    rows: int
    late: int
    dead: int

    def share(self, fact: str) -> float | None:
        """The share of late or dead rows; None without rows."""
        return getattr(self, fact) / self.rows if self.rows else None


class AlertWatch:
    """Evaluates the rules of all jobs once a second, in a background thread."""

    def __init__(self, stack: StackFolder, lag: Callable[[str], int | None], log: Log) -> None:
        self._stack, self._lag, self._log = stack, lag, log
        self._end = threading.Event()
        self.recipients: dict[str, Recipient] = {}
        self._registered: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._watch, name="alerts", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._end.set()
        self._thread.join(_LEAVING)

    def _watch(self) -> None:
        while not self._end.wait(_EVERY):
            try:
                self._watch_on()
            except Exception as error:
                self._log.rarely(
                    "alerts failed", "error", kind=type(error).__name__, error=str(error)
                )

    def _watch_on(self) -> None:
        with (
            closing(NotificationStore(job_alerts_file(self._stack))) as store,
            JobRegistry(self._stack.registry, read_only=True) as registry,
        ):
            outbox = Outbox(store, self.recipients, is_closing=self._end.is_set)
            while not self._end.wait(_EVERY):
                self.look(registry, store)
                outbox.send_due(deadline=time.monotonic() + _SENDING)

    def look(self, registry: JobRegistry, store: NotificationStore) -> None:
        """Evaluate the rules of every job once."""
        known = set()
        for job in registry.all():
            run_log = RunLogReader(self._stack.job(job.name).run_log)
            try:
                for body in (run_log.about() or {}).get("alerts", []):
                    known.add(f"{job.name}:{body['name']}")
                    self._check(job, body, run_log, store)
            finally:
                run_log.close()
        gone = [row["alert"] for row in store.rows("SELECT alert FROM alerts")
                if row["alert"] not in known]  # fmt: skip
        for name in gone:
            self._registered.pop(name, None)
            with store.transaction():
                store.remove_alert(name)

    def _check(
        self, job: JobRow, body: dict[str, Any], run_log: RunLogReader, store: NotificationStore
    ) -> None:
        try:
            alert = from_json(body)
        except (MillstreamError, KeyError, TypeError) as error:
            self._log.rarely("alert unreadable", "warning", pipeline=job.name, error=str(error))
            return
        evaluated = self._evaluate(alert, job, body.get("step"), run_log)
        if evaluated is None:
            return
        raises, row = evaluated
        name, rule = f"{job.name}:{alert.name}", Rule(alert.for_, alert.hold, level=True)
        now = time.time_ns() // 1000
        before = store.tracked(name).get(_KEY)
        after, transitions = observe(before, Observation(now, raises, not raises), rule)
        recipients = self._recipients_of(name, alert, job.name, store)
        if _same(before, after):
            return
        with store.transaction():
            kept = json.dumps(row) if raises else store.row_of(name, _KEY)
            store.save_state(name, _KEY, after, rule, json.dumps(row) if raises else None)
            for one in transitions:
                store.enqueue(name, _KEY, one, recipients, 0, kept, shown_name=alert.name)
        for one in transitions:
            self._log(f"alert {one.kind}", "warning" if one.kind == "firing" else "info",
                      pipeline=job.name, alert=alert.name, **row)  # fmt: skip

    def _recipients_of(
        self, name: str, alert: JobAlert, job: str, store: NotificationStore
    ) -> dict[str, float]:
        """Register an alert; return the digest length of each of its recipients."""
        if self._registered.get(name) != alert.describe():
            with store.transaction():
                store.register(name, alert.describe())
            self._registered[name] = alert.describe()
        recipients = digest_seconds(name, alert.to)
        for one, key in zip(alert.to, recipients, strict=True):
            self.recipients[key] = Recipient(one, job)
        return recipients

    def _evaluate(
        self, alert: JobAlert, job: JobRow, step: str | None, run_log: RunLogReader
    ) -> tuple[bool, dict[str, Any]] | None:
        """Return whether the rule fires, and the observed values; None if they are unknown."""
        if alert.fact in STATES_WATCHED:
            wrong = WITHOUT_PROGRESS if alert.fact == "down" else {alert.fact}
            return job.state in wrong, {"state": job.state, "reason": job.reason}
        assert alert.above is not None
        if alert.fact == "lag":
            lag = self._lag(job.name)
            return None if lag is None else (lag > alert.above, {"lag": lag})
        shares = _shares(run_log, step)
        share = shares.share(alert.fact)
        if share is None:
            return False, {alert.fact: 0.0}
        counted = {"rows": shares.rows, alert.fact: getattr(shares, alert.fact)}
        return share > alert.above, {**counted, "share": round(share, 4)}


def _same(before: KeyState | None, after: KeyState | None) -> bool:
    """Whether nothing has changed but the time of the last observation."""
    if before is None or after is None:
        return before is after
    return replace(before, time=after.time) == after


def _shares(run_log: RunLogReader, step: str | None) -> Shares:
    """Return the last minute's rows of one step, or of all."""
    facts = [entry.facts for entry in run_log.batches(since=time.time() - _MINUTE)]
    if step is None:
        return Shares(*(sum(int(one[name]) for one in facts) for name in ("rows", "late", "dead")))
    steps = [one.get("steps", {}).get(step, {}) for one in facts]
    return Shares(*(sum(int(one.get(name, 0)) for one in steps) for name in ("in", "late", "dead")))
