"""Pipeline: a name and its outputs, a plain value that can be run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from millstream.duration import Duration, not_negative_micros, positive_micros
from millstream.engine.continuous.rules import check_continuous, headline
from millstream.errors import InvalidSpec
from millstream.plan.graph import Output
from millstream.plan.names import check_pipeline_name, distinct_names, step_names, unique
from millstream.plan.side_outputs import check_side_output, on_spark
from millstream.sinks.alerts.alert import JobAlert
from millstream.sinks.spec import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from millstream.engine.job import Job
    from millstream.sinks.spec import Sink

OnBad = Literal["dead", "stop"]
Mode = Literal["micro_batch", "continuous"]
EngineName = Literal["spark", "driver"]
_BATCH_DEFAULTS = {"batch": "1 second", "latency": "250 milliseconds", "history": "1 day",
                   "buckets": 256}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A name and its outputs.

    `latency` is how long a row may wait for more rows, which then share the cost of a batch; the
    first row after a quiet time does not wait, and `"0 seconds"` is as fast as it goes. `batch` is
    how long a batch should take under load. `history` is how far back the checkpoint can be
    rewound; the older, the fewer commits are kept. `buckets` is the number of parts that the state
    of a step is split into (a power of two, fixed at the first start). `delivery` is what a crash
    may do to the last batch: nothing, repeat it (`at_least_once`) or lose it (`at_most_once`).
    Bad rows go to the dead-letter topic `<pipeline>.dead` (to files in the checkpoint, if no
    topic is read or written), or to the sink `dead`; with `on_bad="stop"` the first one stops the
    job. `bad_above` is the share of bad rows per minute that stops it.

    `engine` is what runs the batches: Spark, or with `"driver"` the driver process alone, one
    core, without Java unless the pipeline has SQL that only Spark runs.

    `alerts` (`ms.JobAlert`) watch the job itself, if a supervisor runs it.

    `mode="continuous"` passes rows from topics to topics within milliseconds: stateless steps
    only, at least once (`docs/continuous.md`); `batch`, `latency`, `history` and `buckets` do not
    apply.
    """

    name: str
    outputs: tuple[Output, ...]
    batch: int
    latency: int
    history: int
    buckets: int
    delivery: Delivery
    on_bad: OnBad
    bad_above: float | None
    dead: Sink | None
    mode: Mode
    engine: EngineName
    alerts: tuple[JobAlert, ...]

    def __init__(
        self,
        name: str,
        *outputs: Output,
        delivery: Delivery = "exactly_once",
        batch: Duration = "1 second",
        latency: Duration = "250 milliseconds",
        history: Duration = "1 day",
        buckets: int = 256,
        on_bad: OnBad = "dead",
        bad_above: float | None = None,
        dead: Sink | None = None,
        mode: Mode = "micro_batch",
        engine: EngineName = "spark",
        alerts: Sequence[JobAlert] = (),
    ) -> None:
        check_pipeline_name(name)
        if not outputs or not all(isinstance(output, Output) for output in outputs):
            raise InvalidSpec(f"Pipeline({name!r}) needs outputs", got=repr(outputs),
                              do="write Pipeline(name, stream.to(ms.Topic(…)))")  # fmt: skip
        if type(buckets) is not int or not 1 <= buckets <= 65536 or buckets & (buckets - 1):
            raise InvalidSpec("buckets needs a power of two up to 65536", got=repr(buckets),
                              do="leave it at 256")  # fmt: skip
        if delivery not in get_args(Delivery):
            raise InvalidSpec(f"delivery needs one of {', '.join(get_args(Delivery))}",
                              got=repr(delivery))  # fmt: skip
        if engine not in get_args(EngineName):
            raise InvalidSpec('engine needs "spark" or "driver"', got=repr(engine))
        if engine == "driver":
            _check_without_spark(outputs, dead)
        _check_bad(on_bad, bad_above)
        check_side_output(dead, "dead")
        outputs = distinct_names(outputs)
        unique([output.name for output in outputs], "output", "give .to(sink, name=…)")
        step_names(outputs)
        _check_mode(mode, outputs, delivery, dead,
                    {"batch": batch, "latency": latency, "history": history,
                     "buckets": buckets})  # fmt: skip
        for field, value in (("name", name), ("outputs", outputs), ("buckets", buckets),
                             ("delivery", delivery), ("on_bad", on_bad),
                             ("bad_above", bad_above), ("dead", dead), ("mode", mode),
                             ("engine", engine),
                             ("alerts", _checked_alerts(alerts)),
                             ("batch", positive_micros(batch, what="batch")),
                             ("latency", not_negative_micros(latency, what="latency")),
                             ("history", not_negative_micros(history, what="history")),
                             ):  # fmt: skip
            object.__setattr__(self, field, value)

    def run(self, until: Literal["caught_up", "finished"] | None = None, **options: Any) -> None:
        """Run in this process and wait; see `millstream.engine.job.run` for the options."""
        from millstream.engine.job import run

        run(self, until=until, **options)

    def start(self, **options: Any) -> Job:
        """Run in the background of this process; the Job can be stopped and waited for."""
        from millstream.engine.job import start

        return start(self, **options)

    def dataframe(
        self,
        output: str,
        until: Literal["caught_up", "finished"] = "finished",
        **options: Any,
    ) -> DataFrame:
        """The rows of an output as a Spark DataFrame, for notebooks.

        Runs the steps of that output over its sources from their beginning, in a checkpoint of its
        own; every call computes the rows again. Nothing is written to the pipeline's sinks, its own
        checkpoint does not change, and late and bad rows are only counted in a warning. Of a table
        the DataFrame has the rows as they are at the end; of a stream with retractions it has a
        column `_sign` with −1 for them. `options` are those of `run`, except `checkpoint` and
        `take_over`. The DataFrame can be used until the process ends.
        """
        from millstream.api.dataframe import dataframe

        return dataframe(self, output, until, **options)

    def plan(self) -> str:
        """The logical plan and its stages, as text."""
        from millstream.plan.explain.explain import explain

        text = explain(self.name, self.outputs, self.dead) + _alert_lines(self.alerts)
        if self.mode == "continuous":
            first, rest = text.split("\n", 1)
            return f"{first}\n{headline()}\n{rest}"
        return text


def _check_mode(
    mode: object, outputs: tuple[Output, ...], delivery: str, dead: Sink | None,
    options: dict[str, object],
) -> None:  # fmt: skip
    if mode not in get_args(Mode):
        raise InvalidSpec(f"mode needs one of {', '.join(get_args(Mode))}", got=repr(mode))
    if mode == "continuous":
        other = [name for name, value in options.items() if value != _BATCH_DEFAULTS[name]]
        check_continuous(outputs, delivery, other, dead)


def _check_without_spark(outputs: tuple[Output, ...], dead: Sink | None) -> None:
    for place in on_spark(outputs, dead):
        raise InvalidSpec(
            'engine="driver" needs sources and sinks that work without Spark', got=repr(place),
            do='leave engine= out: the default is "spark"',
        )  # fmt: skip


def _alert_lines(alerts: tuple[JobAlert, ...]) -> str:
    lines = [f"  {alert!r}" for alert in alerts]
    return "\n".join(["", "alerts, where a supervisor runs it", *lines, ""]) if alerts else ""


def _checked_alerts(alerts: Sequence[JobAlert]) -> tuple[JobAlert, ...]:
    if not isinstance(alerts, list | tuple) or not all(isinstance(a, JobAlert) for a in alerts):
        raise InvalidSpec("Pipeline(alerts=…) needs a list of ms.JobAlert(…)", got=repr(alerts),
                          do="write alerts on rows as outputs: stream.to(ms.Alert(…))")  # fmt: skip
    unique([alert.name for alert in alerts], "alert", "give JobAlert(…, name=…)")
    return tuple(alerts)


def _check_bad(on_bad: object, bad_above: object) -> None:
    if on_bad not in get_args(OnBad):
        raise InvalidSpec('on_bad needs "dead" or "stop"', got=repr(on_bad))
    if bad_above is not None and not (
        isinstance(bad_above, int | float) and 0 <= bad_above <= 1 and bad_above is not True
    ):
        raise InvalidSpec("bad_above needs a share from 0 to 1", got=repr(bad_above),
                          do="write bad_above=0.05")  # fmt: skip
