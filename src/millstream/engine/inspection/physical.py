"""The physical plan: tasks, shuffle and files of each stage, per lane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous import rules as continuous_rules
from millstream.engine.continuous.choice import runs_directly
from millstream.engine.dead_letters.side_outputs import SideOutputs
from millstream.engine.inspection.sql_placement import sql_placement
from millstream.engine.inspection.without_spark import without_spark
from millstream.engine.lanes.planner import NARROW_BYTES
from millstream.plan.graph import Aggregated, Read
from millstream.plan.stages import cut
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.spec import Discard
from millstream.sources.kafka.topic import Topic
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.plan.stages import Stage, Stages
    from millstream.sinks.spec import Sink

Outline = dict[str, Any]

# How each lane is distributed over processes, and its three kinds of parallelism.
_WIDE = {
    "processes": "the driver (Python and its JVM), Spark tasks in the JVM or in executors, "
    "Python workers beside them",
    "transports": "Kafka to Python workers over TCP; to the JVM and back as Arrow over a socket "
    "where Spark runs SQL; map to reduce in Arrow files; results, late and dead rows in staged "
    "files",
    "Spark jobs": "two per stage with a step: one up to the shuffle, one after it",
    "data": "a task per range of offsets before the shuffle, a task per range of buckets after it",
    "pipelined": "read, decode, SQL and partial aggregates run block by block in one task",
    "task": "state merges beside the batch; stages one after the other",
}
_NARROW = {
    "processes": "the driver, which plans, sends to sinks and commits; one Python worker of Spark, "
    "reused for each batch",
    "transports": "Kafka to the worker over TCP; results, late and dead rows in staged files",
    "Spark jobs": "one per batch, with one stage and one task, for all stages of the pipeline",
    "data": "one task over all ranges of offsets and all buckets",
    "pipelined": "nothing: each step processes the whole batch",
    "task": "state merges beside the batch; stages one after the other",
}
_NARROW_SQL = {
    **_NARROW,
    "transports": "Kafka to Python workers over TCP; to the JVM and back as Arrow over a socket; "
    "results, late and dead rows in staged files",
    "Spark jobs": "two per stage with a step, each with one task: up to the kernel, and the kernel",
}
_DRIVER = {
    **_NARROW,
    "processes": "the driver alone",
    "transports": "Kafka to the driver over TCP; results, late and dead rows in staged files",
    "Spark jobs": "none",
    "data": "one thread over all ranges of offsets and all buckets",
}
_DRIVER_SQL = {
    **_DRIVER,
    "processes": "the driver, and its JVM for SQL that only Spark runs",
    "Spark jobs": "one per input with SQL that only Spark runs",
}
_SQL_WIDE = {
    "none": "",
    "arrow": "as Arrow columns, in the Python workers: no row goes to the JVM for it",
    "spark": "by Spark, in the same tasks",
    "both": "of some inputs as Arrow columns in the Python workers, of others by Spark",
    "either": "as Arrow columns in the Python workers, where types allow it, else by Spark",
}
_SQL_NARROW = {
    "none": "",
    "arrow": "as Arrow columns",
    "spark": "by Spark, in a job over the decoded rows",
    "both": "of some inputs as Arrow columns, of others by Spark in a job over the decoded rows",
    "either": "as Arrow columns where types allow it, else by Spark in a job over the decoded rows",
}

_WIDE_INPUT = (
    "Spark tasks over {}: at least one per partition, and per core",
    "bytes to Arrow columns, in Python workers",
)
_NARROW_INPUT = ("{}, all partitions", "bytes to Arrow columns, in the same process")


def outlined(pipeline: Pipeline) -> list[Outline]:
    """Both lanes, each with when it is used and what it does for every stage.

    A continuous pipeline has no lanes: all rows take the same path.
    """
    stages = cut(pipeline.outputs)
    if pipeline.mode == continuous_rules.MODE:
        runs = continuous_rules.outline(pipeline, direct=runs_directly(pipeline))
        return [{"lane": pipeline.mode, "when": "every row", "runs": runs, "stages": []}]
    where, here = sql_placement(stages), without_spark(stages)
    narrow = [
        {"stage": place, "name": stage.name,
         "does": _input(stage, stages, _NARROW_INPUT, _SQL_NARROW[where[stage]]) | _narrow(stage)}
        for place, stage in enumerate(stages.stages, start=1)
    ]  # fmt: skip
    if pipeline.engine == "driver":
        runs = _DRIVER if here else _DRIVER_SQL
        return [{"lane": "narrow", "when": "every batch", "runs": runs, "stages": narrow}]
    edge = f"{NARROW_BYTES >> 20} MiB"
    bridge = "; while Spark starts, every batch, in the driver" if here else ""
    return [
        {
            "lane": "wide",
            "when": f"a batch of more than {edge}",
            "runs": _WIDE,
            "stages": [
                {"stage": place, "name": stage.name,
                 "does": _input(stage, stages, _WIDE_INPUT, _SQL_WIDE[where[stage]])
                 | _wide(stage, pipeline.buckets)}
                for place, stage in enumerate(stages.stages, start=1)
            ],
        },
        {
            "lane": "narrow",
            "when": f"a batch of {edge} or less{bridge}",
            "runs": _NARROW if here else _NARROW_SQL,
            "stages": narrow,
        },
    ]  # fmt: skip


def as_text(pipeline: Pipeline) -> str:
    """The outline as text, with how the sinks of a batch commit."""
    lines = []
    for lane in outlined(pipeline):
        lines += ["", f"physical plan, {lane['lane']} lane: {lane['when']}"]
        lines += [f"  {word:<12}{does}" for word, does in lane["runs"].items()]
        for stage in lane["stages"]:
            lines.append(f"  {stage['stage']}. {stage['name']}")
            lines += [f"       {word:<11}{does}" for word, does in stage["does"].items()]
    what = "rows leave" if pipeline.mode == continuous_rules.MODE else "a batch leaves"
    lines += ["", f"how {what}", *(f"  {line}" for line in leaving(pipeline))]
    return "\n".join(lines) + "\n"


def leaving(pipeline: Pipeline) -> list[str]:
    """Which sinks receive a batch together."""
    if pipeline.mode == continuous_rules.MODE:
        return continuous_rules.leaving(pipeline)
    stages = cut(pipeline.outputs)
    groups: dict[str, list[str]] = {}
    for name, sink in _leaving_by(pipeline, stages):
        groups.setdefault(_together(sink), []).append(name)
    return [f"{how}: {', '.join(dict.fromkeys(names))}" for how, names in groups.items()]


def _leaving_by(pipeline: Pipeline, stages: Stages) -> list[tuple[str, Sink]]:
    """Every sink, topics first, with the name that plans show."""
    side = SideOutputs(pipeline, Path())
    rests = [step.rest for step in stages.steps.values() if not isinstance(step.rest, Discard)]
    found: list[tuple[str, Sink]] = [(output.name, output.sink) for output in pipeline.outputs]
    found += [("late rows", side.late(rest)) for rest in rests]
    found.append(("bad rows", side.dead()))
    topics = [(sink.name, sink) for _, sink in found if isinstance(sink, Topic)]
    return [*topics, *((name, sink) for name, sink in found if not isinstance(sink, Topic))]


def _together(sink: Sink) -> str:
    """With which other sinks the rows of a sink become visible."""
    if isinstance(sink, Topic):
        return "one Kafka transaction per batch, from the driver"
    if isinstance(sink, Memory):
        return "in this process only, lost with it"
    if isinstance(sink, Chart | LiveTable):
        return "then one transaction in the page's own store"
    return f"then the {type(sink).__name__} sinks of one system together"


def _input(stage: Stage, stages: Stages, texts: tuple[str, str], sql: str) -> dict[str, str]:
    does: dict[str, str] = {}
    topics = [stages.names[leaf] for leaf in stage.leaves if isinstance(leaf, Read)]
    flows = [stages.names[leaf] for leaf in stage.leaves if not isinstance(leaf, Read)]
    if topics:
        read, decode = texts
        does |= {"read": read.format(" and ".join(topics)), "decode": decode}
    if flows:
        does["take"] = f"what {' and '.join(flows)} emitted in this batch, from its staged files"
    if sql:
        does["SQL"] = sql
    return does


def _wide(stage: Stage, buckets: int) -> dict[str, str]:
    if stage.step is None:
        return {"shuffle": "none: narrow", "files": "staged results, one per task"}
    does: dict[str, str] = {}
    if isinstance(stage.step, Aggregated):
        does["combine"] = "partial aggregates per key and window, before the shuffle"
    does["shuffle"] = f"wide, by the hash of the keys: {buckets} buckets in as many parts as cores"
    does["kernel"] = "a second job, one task per part: takes the rows in, closes what is due"
    does["files"] = "one state run per part; staged results and late rows"
    return does


def _narrow(stage: Stage) -> dict[str, str]:
    if stage.step is None:
        return {"shuffle": "none: narrow", "files": "one of staged results"}
    return {"shuffle": "none: narrow", "kernel": "over all buckets",
            "files": "one state run; staged results and late rows"}  # fmt: skip
