"""What continuous mode can run, checked while a pipeline is built; and its lines in a plan.

Rows are processed one by one from topics to topics: there are no batches that could be repeated,
so nothing that needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan.explain.explain import step_text
from millstream.plan.graph import (
    Drop,
    Explode,
    Read,
    Select,
    Transform,
    Union,
    Where,
    WithColumns,
    ancestry,
)
from millstream.plan.side_outputs import dead_topic
from millstream.plan.stages import leaves
from millstream.sources.kafka.topic import Topic
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.api.pipeline import Pipeline
    from millstream.plan.graph import Node, Output
    from millstream.sinks.spec import Sink

MODE = "continuous"
INTERVAL_SECONDS = 5
_ROW_WISE = (Where, Select, WithColumns, Drop, Explode, Transform, Union)
_INSTEAD = "leave mode= out: micro-batch mode runs it"


def check_continuous(
    outputs: Sequence[Output], delivery: str, meaningless: Sequence[str], dead: Sink | None = None
) -> None:
    """Refuse a pipeline that continuous mode cannot run, with the reason.

    `meaningless` are the given options that concern batches or state.

    Raises:
        InvalidSpec: for the first rule that is violated.
    """
    if delivery != "at_least_once":
        raise InvalidSpec(
            f'mode="{MODE}" needs delivery="at_least_once"',
            got=f'delivery="{delivery}"',
            do='set delivery="at_least_once" (a crash repeats the rows of up to '
            f"{INTERVAL_SECONDS} seconds), or leave mode= out for exactly once",
        )
    if meaningless:
        raise InvalidSpec(
            f'mode="{MODE}" needs {" and ".join(f"{name}=" for name in meaningless)} left out',
            got="a value for it",
            do="it has no batches and no state: rows are processed one by one",
        )
    if not isinstance(dead, Topic | None):
        raise InvalidSpec(f'mode="{MODE}" needs a topic for bad rows', got=repr(dead), do=_INSTEAD)
    for node in ancestry(outputs):
        _check_node(node)
    for output in outputs:
        _check_output(output)


def _check_node(node: Node) -> None:
    if isinstance(node, Read):
        _check_read(node)
    elif not isinstance(node, _ROW_WISE):
        raise _refused("steps without state", step_text(node), node)
    for text in _texts(node):
        if sql.at_clock(text, 0) != text:
            raise _refused("SQL without now(), because there is no batch clock", text, node,
                           "use the record's own time, _timestamp, or leave mode= out")  # fmt: skip


def _check_read(read: Read) -> None:
    source = read.source
    if not isinstance(source, Topic):
        raise _refused("topics as sources", repr(source), read)
    if source.format != "json":
        raise _refused("sources of JSON, the only format it decodes",
                       f"the topic {source.name!r} as {source.format}", read)  # fmt: skip
    if read.correction is not None:
        raise _refused("uncorrected times", "correct_clock(…)", read)
    if getattr(read, "changes", None) is not None:
        raise _refused("streams, because a table has state", f"the table of {source.name!r}", read)


def _check_output(output: Output) -> None:
    if not isinstance(output.sink, Topic):
        raise InvalidSpec(f'mode="{MODE}" needs topics as sinks', got=repr(output.sink),
                          do=_INSTEAD)  # fmt: skip
    if output.sink.format != "json":
        raise InvalidSpec(
            f'mode="{MODE}" needs sinks of JSON, the only format it encodes',
            got=f"the topic {output.sink.name!r} as {output.sink.format}", do=_INSTEAD,
        )  # fmt: skip
    topics = [read.source.name for read in reads_of(output)]
    if len(set(topics)) < len(topics) or _doubled(output.input):
        twice = next((name for name in topics if topics.count(name) > 1), topics[0])
        raise InvalidSpec(
            f'mode="{MODE}" needs each topic once per output',
            got=f"{twice!r} on two sides of a union",
            do="write two outputs to one topic, each with a name=, or leave mode= out",
        )


def reads_of(output: Output) -> list[Read]:
    """The sources of an output's rows."""
    return [leaf for leaf in leaves(output.input) if isinstance(leaf, Read)]


def _doubled(tree: Node) -> bool:
    """Whether a union has one stream on both of its sides."""
    if isinstance(tree, Union):
        below = [leaf for side in tree.sides for leaf in leaves(side)]
        if len(set(map(id, below))) < len(below):
            return True
    return any(_doubled(node) for node in tree.inputs)


def _texts(node: Node) -> list[str]:
    if isinstance(node, Where):
        return [node.sql]
    return [text for _, text in node.items] if isinstance(node, Select | WithColumns) else []


def _refused(need: str, got: str, node: Node, do: str = _INSTEAD) -> InvalidSpec:
    place = "" if node.at is None else f" (see {node.at})"
    return InvalidSpec(f'mode="{MODE}" needs {need}', got=f"{got}{place}", do=do)


def headline() -> str:
    """The mode in one line, for a plan."""
    return f"mode {MODE}: rows are processed one by one, at least once; batch= has no effect"


def outline(pipeline: Pipeline, *, direct: bool) -> dict[str, str]:
    """How a continuous pipeline runs, for the physical plan: `direct`, or by Spark."""
    return {**(_DIRECT if direct else _BY_SPARK), **_positions(pipeline, direct=direct)}


_DIRECT = {
    "processes": 'the driver alone: no Java, no Spark (engine="driver")',
    "transports": "Kafka to the driver and back over TCP",
    "data": "a thread per topic reads all its partitions together",
    "pipelined": "the next rows are requested while the current ones are decoded, run through the "
    "steps and sent",
}
_BY_SPARK = {
    "processes": "the driver (Python and its JVM), Spark tasks in the JVM or in executors; "
    "no Python workers",
    "transports": "Kafka to tasks and tasks to Kafka over TCP",
    "Spark jobs": "one query of Structured Streaming in real-time mode per output",
    "data": "a task per partition and output, which runs as long as the job",
    "pipelined": "read, decode, SQL and send pass row by row through one task",
}


def _positions(pipeline: Pipeline, *, direct: bool) -> dict[str, str]:
    raising = "" if direct else "; a row on which SQL raises stops the job"
    return {
        "positions": f"stored every {INTERVAL_SECONDS} seconds: a crash repeats at most that much",
        "bad rows": f"to {dead_topic(pipeline).name} when positions are stored{raising}",
    }


def leaving(pipeline: Pipeline) -> list[str]:
    """How rows are sent."""
    names = ", ".join(output.sink.name for output in pipeline.outputs)
    return [f"row by row, acknowledged by all replicas before positions are stored: {names}",
            "the timestamp of a record is the time of sending, not its event time"]  # fmt: skip
