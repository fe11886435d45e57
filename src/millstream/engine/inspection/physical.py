"""The physical plan: tasks, shuffle and files of each stage, per lane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.continuous import rules as continuous_rules
from millstream.engine.continuous.ways import direct
from millstream.engine.dead_letters.side_outputs import SideOutputs
from millstream.engine.inspection.sql_placement import foreseen
from millstream.engine.inspection.without_spark import without_spark
from millstream.engine.lanes.planner import NARROW_BYTES, SPARK_BYTES
from millstream.plan.graph import Aggregated, Read
from millstream.plan.stages import cut
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.spec import Discard
from millstream.sources.kafka.topic import Topic
from millstream.sources.memory import Memory

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.engine.inspection.sql_placement import Where
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
_SHORT = {
    "processes": "the driver (Python, and its JVM where Spark has started)",
    "transports": "Kafka to the driver over TCP; to the JVM and back as Arrow over a socket where "
    "Spark runs SQL; results, late and dead rows in staged files",
    "Spark jobs": "none to read; one for SQL where Spark runs it",
    "data": "one thread over all ranges of offsets and all buckets",
    "pipelined": "nothing: each step processes the whole batch",
    "task": "state merges beside the batch; stages one after the other",
}
# Where SQL runs. If Spark settings change its meaning, it always runs in Spark.
_SQL_WIDE = {
    "arrow": "as Arrow columns, in the Python workers: no row goes to the JVM for it",
    "spark": "by Spark, in the same tasks",
    "both": "of some inputs as Arrow columns in the Python workers, of others by Spark",
    "either": "as Arrow columns in the Python workers, where types allow it, else by Spark",
}
_SQL_SHORT = {
    "arrow": "as Arrow columns, on the driver: no Spark job",
    "spark": "one Spark job over the decoded rows",
    "both": "of some inputs as Arrow columns on the driver, of others in a Spark job",
    "either": "as Arrow columns on the driver, where types allow it, else in a Spark job",
}


def outlined(pipeline: Pipeline) -> list[Outline]:
    """Both lanes, each with when it is used and what it does for every stage.

    A continuous pipeline has no lanes: all rows take the same path.
    """
    stages = cut(pipeline.outputs)
    if pipeline.mode == continuous_rules.MODE:
        runs = continuous_rules.outline(pipeline, direct=direct(pipeline))
        return [{"lane": pipeline.mode, "when": "every row", "runs": runs, "stages": []}]
    edge, where = f"{NARROW_BYTES >> 20} MiB", foreseen(stages)
    later = without_spark(stages)
    start = f", once Spark runs: it starts when {SPARK_BYTES >> 20} MiB wait" if later else ""
    before = ", and every batch until Spark runs" if later else ""
    return [
        {
            "lane": "wide",
            "when": f"a batch of more than {edge}{start}",
            "runs": _WIDE,
            "stages": _outlined(
                stages, lambda stage: _wide(stage, stages, pipeline.buckets, where[stage])
            ),
        },
        {
            "lane": "narrow",
            "when": f"a batch of {edge} or less{before}",
            "runs": _SHORT,
            "stages": _outlined(stages, lambda stage: _short(stage, stages, where[stage])),
        },
    ]


def as_text(pipeline: Pipeline) -> str:
    """The outline as text, with how the sinks of a batch commit."""
    lines = []
    for lane in outlined(pipeline):
        lines += ["", f"physical plan, {lane['lane']} lane: {lane['when']}"]
        lines += [f"  {word:<12}{does}" for word, does in lane["runs"].items()]
        for stage in lane["stages"]:
            lines.append(f"  {stage['stage']}. {stage['name']}")
            lines += [f"       {word:<11}{does}" for word, does in stage["does"].items()]
    return "\n".join([*lines, "", *_leaving(pipeline)]) + "\n"


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


def _leaving(pipeline: Pipeline) -> list[str]:
    what = "rows leave" if pipeline.mode == continuous_rules.MODE else "a batch leaves"
    return [f"how {what}", *(f"  {line}" for line in leaving(pipeline))]


def _outlined(stages: Stages, does: Any) -> list[Outline]:
    return [
        {"stage": place, "name": stage.name, "does": does(stage)}
        for place, stage in enumerate(stages.stages, start=1)
    ]


def _wide(stage: Stage, stages: Stages, buckets: int, where: Where) -> dict[str, str]:
    does = {}
    topics, flows = _origins(stage, stages)
    if topics:
        does["read"] = f"Spark tasks over {topics}: at least one per partition, and per core"
        does["decode"] = "bytes to Arrow columns, in Python workers (mapInArrow)"
    if flows:
        does["take"] = f"what {flows} emitted in this batch, from its staged files"
    if where != "none":
        does["SQL"] = _SQL_WIDE[where]
    if stage.step is None:
        return {**does, "shuffle": "none: narrow", "files": "staged results, one per task"}
    if isinstance(stage.step, Aggregated):
        does["combine"] = "partial aggregates per key and window, before the shuffle"
    does["shuffle"] = f"wide, by the hash of the keys: {buckets} buckets in as many parts as cores"
    does["kernel"] = "one task per part takes the rows in; a second job closes what is due, " \
                     "on the driver if it is little"  # fmt: skip
    does["files"] = "one state run per part; staged results and late rows"
    return does


def _short(stage: Stage, stages: Stages, where: Where) -> dict[str, str]:
    does = {}
    topics, flows = _origins(stage, stages)
    if topics:
        does["read"] = f"the driver itself, from {topics}"
        does["decode"] = "on the driver, by the same decoder: no Python workers"
    if flows:
        does["take"] = f"what {flows} emitted in this batch, from its staged files"
    if where != "none":
        does["SQL"] = _SQL_SHORT[where]
    does["shuffle"] = "none: narrow"
    if stage.step is None:
        return {**does, "files": "one of staged results"}
    does["kernel"] = "on the driver, over all buckets"
    does["files"] = "one state run; staged results and late rows"
    return does


def _origins(stage: Stage, stages: Stages) -> tuple[str, str]:
    topics = [stages.names[leaf] for leaf in stage.leaves if isinstance(leaf, Read)]
    flows = [stages.names[leaf] for leaf in stage.leaves if not isinstance(leaf, Read)]
    return " and ".join(topics), " and ".join(flows)
