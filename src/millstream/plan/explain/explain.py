"""The logical plan of a pipeline and its stages, without Spark and without Kafka.

`describe` returns it as data, `explain` as text; the same pipeline gives the same text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from millstream.duration import text as duration
from millstream.plan.explain.promises import describe_step
from millstream.plan.graph import (
    Drop,
    Explode,
    Node,
    Output,
    Read,
    Select,
    Stateful,
    Transform,
    Where,
    WithColumns,
    ancestry,
)
from millstream.plan.join_graph import waits
from millstream.plan.side_outputs import default_of, uses_kafka
from millstream.plan.stages import Stage, Stages, cut, leaves
from millstream.sinks.spec import Discard, Sink
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic
from millstream.sources.memory import Memory
from millstream.sources.spark.spark import Spark
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Facts = dict[str, Any]

_QUOTED = re.compile(r"`(\w+)`")


def explain(name: str, outputs: Sequence[Output], dead: Sink | None = None) -> str:
    """The logical plan and its stages, as text."""
    plan = describe(name, outputs, dead)
    lines = [f"pipeline {name}", "", "logical plan"]
    for step in plan["steps"]:
        lines += _step_lines(step)
    lines += ["", "outputs"]
    for output in plan["outputs"]:
        lines.append(f"  {output['output']}  from {output['from']} → {output['to']}")
    lines += [f"  bad rows → {plan['dead']}", "", "stages, in the order a batch passes them"]
    for stage in plan["stages"]:
        lines.append(f"  {stage['stage']}. {' → '.join(stage['path'])}")
    return "\n".join(lines) + "\n"


def describe(name: str, outputs: Sequence[Output], dead: Sink | None = None) -> Facts:
    """The plan as data: steps in order, each with the numbers of its inputs."""
    stages, kafka = cut(outputs), uses_kafka(outputs, dead)
    late = default_of(name, "late", kafka=kafka)
    nodes = list(ancestry(outputs))
    waiting = waits(nodes)
    numbers = {id(node): place for place, node in enumerate(nodes, start=1)}
    return {
        "pipeline": name,
        "steps": [
            {
                "number": numbers[id(node)],
                "from": [numbers[id(below)] for below in node.inputs],
                **_step(node, late, stages),
                **_waits(waiting.get(node, ()) if isinstance(node, Read) else (), stages),
            }
            for node in nodes
        ],
        "outputs": [
            {"output": o.name, "from": numbers[id(o.input)], "to": _sink(o.sink, o.keys)}
            for o in outputs
        ],
        "dead": default_of(name, "dead", kafka=kafka) if dead is None else _sink(dead, ()),
        "stages": [
            {"stage": place, "name": stage.name, "path": path(stage, stages)}
            for place, stage in enumerate(stages.stages, start=1)
        ],
    }


def step_text(node: Node) -> str:
    """A step as the user wrote it: the method and its SQL."""
    if isinstance(node, Read | Stateful):
        return f"read {node.name}" if isinstance(node, Read) else node.label
    if isinstance(node, Where):
        return f"where {node.sql}"
    if isinstance(node, Select | WithColumns):
        word = "select" if isinstance(node, Select) else "with_columns"
        return f"{word} {', '.join(_item(name, text) for name, text in node.items)}"
    if isinstance(node, Transform):
        return f"transform {getattr(node.function, '__name__', 'a function')}"
    if isinstance(node, Drop):
        return f"drop {', '.join(node.names)}"
    return f"explode {node.column}" if isinstance(node, Explode) else "union"


def path(stage: Stage, stages: Stages) -> list[str]:
    """The steps of a stage, from its sources to its outputs."""
    between = [step_text(node).split(" ")[0] for tree in stage.trees for node in _between(tree)]
    begin = " and ".join(
        ("read " if isinstance(leaf, Read) else "results of ") + stages.names[leaf]
        for leaf in stage.leaves
    )
    step = [] if stage.step is None else [stage.name]
    ends = [", ".join(f"output {output.name}" for output in stage.outputs)]
    return [begin, *between, *step, *filter(None, ends)]


def _between(tree: Node) -> list[Node]:
    """The stateless steps of a tree, inputs first."""
    found: list[Node] = []

    def visit(node: Node) -> None:
        if isinstance(node, Read | Stateful) or node in found:
            return
        for below in node.inputs:
            visit(below)
        found.append(node)

    visit(tree)
    return found


def _item(name: str, text: str) -> str:
    if sql.copied_column(text) == name:
        return name
    return text if text.lower().endswith(f" as {name.lower()}") else f"{text} as {name}"


def _step(node: Node, late: str, stages: Stages) -> Facts:
    if isinstance(node, Read):
        return _read(node, stages.names[node])
    if isinstance(node, Stateful):
        places = [stages.names[leaf] for below in node.inputs for leaf in leaves(below)]
        return {"step": stages.names[node], **describe_step(node, _rest(node, late), places)}
    facts: Facts = {"step": step_text(node)}
    if isinstance(node, Transform):
        facts["columns"] = "only Spark knows them: `millstream check` shows them"
    if any(sql.at_clock(text, 0) != text for text in _texts(node)):
        facts["clock"] = "now() is the batch clock: the answer depends on when the batch ran"
    if node.time is None and any(below.time is not None for below in node.inputs):
        facts["event time"] = "none from here on: its column is gone"
    return facts


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node, Where):
        yield node.sql
    elif isinstance(node, Select | WithColumns):
        yield from (text for _, text in node.items)


def _read(node: Read, name: str) -> Facts:
    facts: Facts = {"step": f"read {name}", "source": _source(node)}
    facts["columns"] = _QUOTED.sub(r"\1", node.source.row_schema().ddl())
    if node.changes is not None:
        return facts | _changes(node)
    if node.time is None:
        facts["event time"] = "none: no later step can use event time"
        return facts
    facts["event time"] = str(node.correction or node.time.column)
    facts["watermark"] = (
        f"{duration(node.delay)} behind the largest time of the slowest partition"
        if node.delay
        else "the largest time of the slowest partition"
    )
    facts["idle"] = (
        "never: a partition without new rows delays all others"
        if node.idle is None
        else f"a partition read to its end for {duration(node.idle)} does not delay others"
    )
    facts["ahead"] = (
        "any event time is accepted"
        if node.ahead is None
        else f"a row more than {duration(node.ahead)} ahead of {_stamp(node)} is a bad row"
    )
    return facts


def _waits(tables: Sequence[Read], stages: Stages) -> Facts:
    if not tables:
        return {}
    names = ", ".join(stages.names[table] for table in tables)
    return {"waits": f"its rows stay unread until {names} is read to the end it had at the first "
            "start: lookup needs the whole table"}  # fmt: skip


def _changes(node: Read) -> Facts:
    assert node.changes is not None
    by = node.changes.time or ("source.ts_ms" if node.changes.kind == "debezium" else
                               _own_stamp(node))  # fmt: skip
    behind = f"{duration(node.delay)} behind" if node.delay else "at"
    return {
        "changes": str(node.changes),
        "event time": f"{by}, of a record without a value its timestamp",
        "watermark": f"{behind} the largest time of the slowest partition, or the batch clock "
        "once the log is read to its end",
    }


def _own_stamp(node: Read) -> str:
    if isinstance(node.source, Memory):
        return "the batch clock"
    if isinstance(node.source, Spark):
        return "the time of the first start"
    files = isinstance(node.source, Files)
    return "the file's modification time" if files else "the record's timestamp"


def _stamp(node: Read) -> str:
    return "its record's timestamp" if isinstance(node.source, Topic) else "the batch clock"


def _source(node: Read) -> str:
    source = node.source
    return f"topic {source.name}, {source.format}" if isinstance(source, Topic) else repr(source)


def _rest(node: Stateful, late: str) -> str:
    if isinstance(node.rest, Discard):
        return "discarded, as ms.discard says, and counted"
    return late if node.rest is None else _sink(node.rest, ())


def _sink(sink: Sink, keys: tuple[str, ...]) -> str:
    if isinstance(sink, Spark):
        return f"{sink!r}, at least once"
    if not isinstance(sink, Topic):
        again = getattr(sink, "at_least_once", False)
        return f"{sink!r}, at least once, under ids that stay the same" if again else repr(sink)
    return f"topic {sink.name}" + (f", key {', '.join(keys)}" if keys else "")


_NOT_LINES = ("number", "from", "step")


def _step_lines(step: Facts) -> Iterator[str]:
    origin = f"  from {', '.join(map(str, step['from']))}" if step["from"] else ""
    yield f"  {step['number']}. {step['step']}{origin}"
    for word, value in step.items():
        if word not in _NOT_LINES:
            shown = ", ".join(value) if isinstance(value, list) else value
            yield f"       {word:<11}{shown}"
