"""Where late rows and bad rows go: the sink chosen for them, or the default.

A pipeline with a topic among its sources and sinks sends them to `<pipeline>.late` and
`<pipeline>.dead`. One without writes files of JSON lines into its checkpoint (`late/`, `dead/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from millstream.errors import InvalidSpec
from millstream.plan.graph import Read, Stateful, ancestry
from millstream.plan.outputs import watched_keys
from millstream.sinks.alerts.alert import Alert
from millstream.sinks.files.files import FilesSink
from millstream.sinks.keys import Keyed
from millstream.sinks.spec import Discard, Sink
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.api.pipeline import Pipeline
    from millstream.plan.graph import Output

SideOutput = Literal["late", "dead"]
DEAD = ("key", "value", "headers", "partition", "offset", "timestamp", "reason", "step", "topic")
LATE = ("step", "reason", "watermark", "windows", "origin", "row")
_COLUMNS = {"late": LATE, "dead": DEAD}
_NESTED = {"late": ("windows", "origin"), "dead": ("headers",)}
_WORDS = {"late": "rest=", "dead": "dead="}


def uses_kafka(outputs: Sequence[Output], dead: Sink | None) -> bool:
    """Whether a topic is among the sources and sinks, those of late and bad rows included."""
    return any(isinstance(place, Topic) for place in endpoints(outputs, dead))


def on_spark(outputs: Sequence[Output], dead: Sink | None) -> list[object]:
    """The sources and sinks that need a Spark session."""
    return [place for place in endpoints(outputs, dead) if getattr(place, "needs_spark", False)]


def endpoints(outputs: Sequence[Output], dead: Sink | None) -> Iterator[object]:
    """Every source and sink of a pipeline."""
    yield from (output.sink for output in outputs)
    yield from (node.source for node in ancestry(outputs) if isinstance(node, Read))
    yield from named_sinks(outputs, dead)


def named_sinks(outputs: Sequence[Output], dead: Sink | None) -> Iterator[Sink]:
    """The sinks chosen for late and bad rows, without `ms.discard`."""
    for node in ancestry(outputs):
        if isinstance(node, Stateful) and node.rest and not isinstance(node.rest, Discard):
            yield node.rest
    if dead is not None:
        yield dead


def default_of(pipeline: str, kind: SideOutput, *, kafka: bool) -> str:
    """The default destination, as plans show it."""
    return f"topic {pipeline}.{kind}" if kafka else f"files in the checkpoint ({kind}/)"


def dead_topic(pipeline: Pipeline) -> Topic:
    """The dead-letter topic of a pipeline that uses Kafka."""
    return pipeline.dead if isinstance(pipeline.dead, Topic) else Topic(f"{pipeline.name}.dead")


def check_side_output(sink: Sink | None, kind: SideOutput) -> None:
    """Refuse a sink that cannot store these rows, which have a fixed set of columns.

    Raises:
        InvalidSpec: it is no sink, or needs columns or types that these rows do not have.
    """
    word, columns = _WORDS[kind], _COLUMNS[kind]
    if sink is None or (isinstance(sink, Discard) and kind == "late"):
        return
    if not isinstance(sink, Sink) or isinstance(sink, Discard):
        either = "a sink or ms.discard" if kind == "late" else "a sink"
        raise InvalidSpec(f"{word} needs {either}", got=repr(sink),
                          do=f'write {word}ms.Topic("{kind}-rows")')  # fmt: skip
    if isinstance(sink, Alert):
        raise _unfit(kind, repr(sink), f'watch the job: alerts=[ms.JobAlert("{kind}", above=…)]')
    if isinstance(sink, Files):
        FilesSink(sink)
    keys = (sink.keys or ()) if isinstance(sink, Topic | Keyed) else ()
    watched_keys(sink, (), (), columns)
    plain = [name for name in columns if name not in _NESTED[kind]]
    wrong = [key for key in keys if isinstance(sink, Topic) or key not in plain]
    if wrong:
        raise _unfit(kind, f"{sink!r}, whose key is {', '.join(keys)}",
                     "leave key= out" if isinstance(sink, Topic)
                     else f"leave key= out, or choose among {', '.join(plain)}")  # fmt: skip
    if isinstance(sink, Files) and sink.format == "csv":
        raise _unfit(kind, f"{sink!r}, whose cells cannot hold {', '.join(_NESTED[kind])}",
                     'write format="json" or format="parquet"')  # fmt: skip
    if isinstance(sink, Topic) and sink.format != "json":
        form = "JSON" if kind == "late" else "the bytes they came as"
        raise InvalidSpec(f"{word} needs a topic without format=: "
                          f"{kind} rows leave as {form}",
                          got=repr(sink), do="leave format= out")  # fmt: skip


def _unfit(kind: SideOutput, got: str, do: str) -> InvalidSpec:
    columns = ", ".join(_COLUMNS[kind])
    return InvalidSpec(f"{_WORDS[kind]} needs a sink for the columns {columns}", got=got, do=do)
