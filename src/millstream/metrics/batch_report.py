"""Builds the facts of batches, and their alerts about late and bad rows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidInput
from millstream.event_time.batch_time import MIN_TIME
from millstream.event_time.watermark import before
from millstream.metrics.facts import Facts, moment_of
from millstream.metrics.instances import COUNTS, MOST, with_state
from millstream.plan.graph import Aggregated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.engine.checkpoint.protocol import Head, Intent, Prepared, SourceState
    from millstream.metrics.instances import Instance
    from millstream.plan.stages import Stages

MINUTE = 60_000_000


class BatchReporter:
    """Builds the facts of batches; keeps those of a minute for shares of late and bad rows."""

    def __init__(self, stages: Stages, bad_above: float | None = None) -> None:
        self._bad_above = bad_above
        self._delays = {name: read.delay for name, read in stages.reads.items()}
        self._read: deque[tuple[int, int, int]] = deque()
        self._limits = {
            name: node.policy.alert_above
            for name, node in stages.steps.items()
            if isinstance(node, Aggregated) and node.policy and node.policy.alert_above is not None
        }
        self._minute: deque[tuple[int, dict[str, dict[str, Any]]]] = deque()

    def facts(
        self, intent: Intent, prepared: Prepared, after: Head, seconds: float,
        phases: dict[str, float],
    ) -> Facts:  # fmt: skip
        """The facts of a batch."""
        counts, runs = prepared.facts, [run for step in after.steps.values() for run in step.runs]
        steps, read = counts.get("steps", {}), counts.get("sources", {})
        return Facts(
            batch=intent.batch,
            rows=counts["rows"],
            late=counts["late"],
            dead=counts["dead"],
            lane=intent.lane,
            where=counts.get("where", "driver"),
            watermarks={name: moment_of(s.watermark) for name, s in after.sources.items()},
            outputs={o.output: o.rows for o in prepared.outputs if o.kind == "result"},
            bytes=counts["bytes"],
            extra=counts["extra"],
            seconds=seconds,
            phases=phases,
            state_rows=sum(run.rows for run in runs),
            state_bytes=sum(run.bytes for run in runs),
            read=counts.get("read", {}),
            steps={name: {**one, **_state_after(after, name, one.get("instances", ()))}
                   for name, one in steps.items()},
            held_by={name: _slowest(state, intent.sources[name].idle)
                     for name, state in after.sources.items() if name in intent.sources},
            alerts=self._alerts(intent.clock, steps),
            clock=moment_of(intent.clock),
            behind=sum(one.get("behind", 0) for one in steps.values()),
            ahead=counts.get("ahead", 0),
            sources={name: self._source(name, state, intent, read.get(name, ()))
                     for name, state in after.sources.items() if name in intent.sources},
        )  # fmt: skip

    def _source(
        self, name: str, state: SourceState, intent: Intent, read: Sequence[Instance]
    ) -> dict[str, Any]:
        """A source's partitions: rows, watermark and idleness of each."""
        idle = intent.sources[name].idle
        delay = self._delays[name]
        active = {one["instance"]: one for one in read}
        silent = {"where": "", **dict.fromkeys(COUNTS, 0)}
        instances = [
            {**silent, "instance": str(p), **active.pop(str(p), {}),
             "watermark": _iso(before(state.times[p], delay)) if p in state.times else None,
             "idle": p in idle}
            for p in _shown_partitions(state, active)
        ]  # fmt: skip
        return {"idle": list(idle[:MOST]), "idle_partitions": len(idle),
                "partitions": len(state.next),
                "instances": [*instances, *active.values()]}  # fmt: skip

    def refuse_too_many_bad(self, clock: int, facts: Facts) -> None:
        """Stop the job if too many rows of the last minute were bad; commits are kept.

        Raises:
            InvalidInput: more than `bad_above` of the rows were bad.
        """
        if self._bad_above is None:
            return
        self._read.append((clock, facts.rows, facts.dead))
        while self._read[0][0] <= clock - MINUTE:
            self._read.popleft()
        rows, dead = (sum(one[place] for one in self._read) for place in (1, 2))
        if rows and dead / rows > self._bad_above:
            raise InvalidInput(
                f"the pipeline needs at most {self._bad_above:.1%} bad rows a minute (bad_above)",
                got=f"{dead:,} of {rows:,}; they are among the dead rows",
                do="see them with `millstream dead list`, fix the producer, and run it again",
            )

    def _alerts(self, clock: int, steps: dict[str, dict[str, Any]]) -> tuple[str, ...]:
        """Alerts about steps with too many late rows in the last minute of the batch clock."""
        if not self._limits:
            return ()
        self._minute.append((clock, steps))
        while self._minute[0][0] <= clock - MINUTE:
            self._minute.popleft()
        alerts = []
        for name, limit in self._limits.items():
            rows = sum(one[name]["in"] for _, one in self._minute if name in one)
            late = sum(one[name]["late"] for _, one in self._minute if name in one)
            if rows and late / rows > limit:
                alerts.append(f"{late / rows:.1%} of the rows of {name} were late in the last "
                              f"minute (alert above {limit:.1%})")  # fmt: skip
        return tuple(alerts)


def _slowest(state: SourceState, idle: tuple[int, ...]) -> int | None:
    """The partition that holds back a source's watermark, if there is one."""
    awake = {p: state.times.get(p) for p in state.next if p not in idle}
    silent = [p for p, time in awake.items() if time is None]
    if silent:
        return min(silent)
    return min(awake, key=lambda p: (awake[p], p), default=None)


def _shown_partitions(state: SourceState, read: Mapping[str, Instance]) -> list[int]:
    """The partitions to show: all, or if there are many, the active and the slowest ones."""
    if len(state.next) <= MOST:
        return sorted(state.next)
    slow = sorted(state.next, key=lambda p: (state.times.get(p, MIN_TIME), p))
    active = [p for p in slow if str(p) in read]
    return sorted(list(dict.fromkeys([slow[0], *active, *slow]))[:MOST])


def _state_after(head: Head, name: str, instances: Sequence[Instance]) -> dict[str, Any]:
    """The state of a step after a batch; empty for a stage without a step."""
    step = head.steps.get(name)
    if step is None:
        return {}
    return {
        "state_rows": sum(run.rows for run in step.runs),
        "state_bytes": sum(run.bytes for run in step.runs),
        "watermark": _iso(step.watermark),
        "instances": with_state(instances, step),
    }


def _iso(micros: int) -> str | None:
    at = moment_of(micros)
    return None if at is None else at.isoformat()
