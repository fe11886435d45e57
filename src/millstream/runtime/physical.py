"""How a pipeline runs: per lane the tasks, the shuffle and the files of each stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.plan.graph import Aggregated, Read
from millstream.plan.stages import cut
from millstream.runtime.planner import SHORT_BYTES
from millstream.sinks.spec import Discard
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from millstream.pipeline import Pipeline
    from millstream.plan.stages import Stage, Stages

Outline = dict[str, Any]


def outlined(pipeline: Pipeline) -> list[Outline]:
    """Both lanes, each with when it is taken and what it does for every stage."""
    stages = cut(pipeline.outputs)
    edge = f"{SHORT_BYTES >> 20} MiB"
    return [
        {
            "lane": "wide",
            "when": f"a batch of more than {edge}",
            "stages": _outlined(stages, lambda stage: _wide(stage, stages, pipeline.buckets)),
        },
        {
            "lane": "short",
            "when": f"a batch of {edge} or less",
            "stages": _outlined(stages, lambda stage: _short(stage, stages)),
        },
    ]


def as_text(pipeline: Pipeline) -> str:
    """The outline as text, and how a batch leaves."""
    lines = []
    for lane in outlined(pipeline):
        lines += ["", f"physical plan, {lane['lane']} lane: {lane['when']}"]
        for stage in lane["stages"]:
            lines.append(f"  {stage['stage']}. {stage['name']}")
            lines += [f"       {word:<11}{does}" for word, does in stage["does"].items()]
    return "\n".join([*lines, "", *_leaving(pipeline)]) + "\n"


def leaving(pipeline: Pipeline) -> list[str]:
    """How a batch leaves: which sinks see it together."""
    stages = cut(pipeline.outputs)
    topics = [o.sink.name for o in pipeline.outputs if isinstance(o.sink, Topic)]
    for step in stages.steps.values():
        if not isinstance(step.rest, Discard):
            topics.append(step.rest.name if step.rest is not None else f"{pipeline.name}.late")
    topics.append(f"{pipeline.name}.dead")
    together = ", ".join(dict.fromkeys(topics))
    others = [o.name for o in pipeline.outputs if not isinstance(o.sink, Topic)]
    lines = [f"one Kafka transaction per batch, from the driver: {together}"]
    if others:
        lines.append(f"in this process only, gone with it: {', '.join(others)}")
    return lines


def _leaving(pipeline: Pipeline) -> list[str]:
    return ["how a batch leaves", *(f"  {line}" for line in leaving(pipeline))]


def _outlined(stages: Stages, does: Any) -> list[Outline]:
    return [
        {"stage": place, "name": stage.name, "does": does(stage)}
        for place, stage in enumerate(stages.stages, start=1)
    ]


def _wide(stage: Stage, stages: Stages, buckets: int) -> dict[str, str]:
    does = {}
    topics, flows = _origins(stage, stages)
    if topics:
        does["read"] = f"Spark tasks over {topics}: at least one per partition, and per core"
        does["decode"] = "bytes to Arrow columns, in Python workers (mapInArrow)"
    if flows:
        does["take"] = f"what {flows} emitted in this batch, from its staged files"
    if not stage.bare:
        does["SQL"] = "in the same Spark tasks"
    if stage.step is None:
        return {**does, "shuffle": "none", "files": "staged results, one per task"}
    if isinstance(stage.step, Aggregated):
        does["combine"] = "partial aggregates per key and window, before the shuffle"
    does["shuffle"] = f"by the hash of the keys: {buckets} buckets in as many parts as cores"
    does["kernel"] = "one task per part takes the rows in; a second job closes what is due, " \
                     "on the driver if it is little"  # fmt: skip
    does["files"] = "one state run per part; staged results and late rows"
    return does


def _short(stage: Stage, stages: Stages) -> dict[str, str]:
    does = {}
    topics, flows = _origins(stage, stages)
    if topics:
        does["read"] = f"one Spark job over {topics}; the bytes come to the driver"
        does["decode"] = "on the driver, by the same decoder: no Python workers"
    if flows:
        does["take"] = f"what {flows} emitted in this batch, from its staged files"
    if not stage.bare:
        does["SQL"] = "one Spark job over the decoded rows"
    does["shuffle"] = "none"
    if stage.step is None:
        return {**does, "files": "one of staged results"}
    does["kernel"] = "on the driver, over all buckets"
    does["files"] = "one state run; staged results and late rows"
    return does


def _origins(stage: Stage, stages: Stages) -> tuple[str, str]:
    topics = [stages.names[leaf] for leaf in stage.leaves if isinstance(leaf, Read)]
    flows = [stages.names[leaf] for leaf in stage.leaves if not isinstance(leaf, Read)]
    return " and ".join(topics), " and ".join(flows)
