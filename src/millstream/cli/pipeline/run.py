"""`millstream run FILE`: a pipeline, running in this process until it ends or is stopped."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from millstream.cli.terminal.connect import cluster_of
from millstream.cli.terminal.options import Kafka, Shape, command
from millstream.cli.terminal.output import Output, colored, json_text, say, screen, warn
from millstream.cli.terminal.pipelines import Checkpoint, File, libraries_print_to, load
from millstream.errors import Unavailable
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.api.pipeline import Pipeline
    from millstream.engine.job import Job
    from millstream.kafka.settings import Cluster
    from millstream.metrics.facts import Facts
    from millstream.metrics.progress import Progress, ProgressDisplay


class Until(StrEnum):
    """Where a run ends by itself."""

    caught_up = "caught-up"
    finished = "finished"


class Lane(StrEnum):
    """The lane every batch takes."""

    wide = "wide"
    narrow = "narrow"

    @classmethod
    def _missing_(cls, value: object) -> "Lane | None":
        return cls.narrow if value == "short" else None


def register(app: typer.Typer) -> None:
    """Adds `run`."""
    command(
        app,
        "run",
        "millstream run hot.py",
        "millstream run hot.py:hot-auctions --kafka localhost:9092 --checkpoint jobs/hot",
        "millstream run hot.py --until finished",
        "millstream run hot.py -o json | jq .rows",
    )(run)


def run(
    file: File,
    *,
    until: Annotated[
        Until | None,
        typer.Option(
            "--until",
            metavar="caught-up|finished",
            help="End when all that is there now is done; finished: close everything too.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    lane: Annotated[
        Lane | None,
        typer.Option("--lane", metavar="wide|narrow", help="Not the planner's choice, but this."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Shut out another run of this job.")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on without what is gone from the log.")
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Go on behind the damaged record batch it stopped at."),
    ] = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Run a pipeline, exactly once, until Ctrl-C.

    Started again it goes on where it stopped, however it stopped. Ctrl-C (or SIGTERM) ends it
    after the batch in hand, a second one at once; neither loses or repeats a row. (A pipeline with
    mode="continuous" is at least once: it may repeat the rows of the last seconds.)

    --until caught-up ends when all that was there at the start is committed; open windows stay
    open for the next run. --until finished takes the sources as ended: everything closes.

    Exit code 0 means that the run came to its end: the one --until names, or without it the
    stop that was asked for. A run stopped before its end gives 130 (Ctrl-C) or 143 (SIGTERM).
    """
    loaded, pipeline = load(file)
    cluster = cluster_or_none(pipeline, kafka)
    if cluster is not None:
        check_topics(pipeline, cluster)
    if skip_lost:
        _skip("lost", pipeline, cluster, checkpoint)
    if skip_damaged:
        _skip("damaged", pipeline, cluster, checkpoint)
    loaded.for_spark()
    from millstream.engine.job import Job
    from millstream.engine.recovery.rewind import suffix_of

    show = _shown(pipeline, output)
    warnings: list[str] = []
    job = Job(
        pipeline,
        until=cast("Literal['caught_up', 'finished']", until.name) if until else None,
        kafka=cluster,
        checkpoint=checkpoint,
        lane=lane.value if lane else None,
        take_over=take_over,
        on_batch=show.batch,
        on_phase=lambda phase: show.phase(_PHASES.get(phase, phase)),
        warn=warnings.append,
    )
    place = cluster.address if cluster is not None else "no Kafka"
    kind = "throw-away checkpoint" if job.throw_away is not None else "checkpoint"
    say(f"{pipeline.name} on {place}, {kind} {job.folder}")
    suffix = suffix_of(job.folder)
    if suffix:
        say(f"its outputs end in {suffix}, since it was rewound into them")
    with libraries_print_to(libraries_log(job, pipeline)), stopped_by_signals(job) as stop, show:
        job.start()
        stop.watch()
    for text in warnings:
        warn(text)
    job.wait()
    say(_ending(job, until, show.progress))
    if stop.signal is not None and until is not None and not job.reached_end:
        raise typer.Exit(128 + stop.signal)


def libraries_log(job: "Job", pipeline: "Pipeline") -> "Path":
    """Where libraries print to: a folder that outlives the run."""
    from millstream.engine.checkpoint.folders import checkpoint_folder

    folder = job.folder if job.throw_away is None else checkpoint_folder(pipeline.name)
    return folder / "libraries.log"


def _skip(
    what: Literal["lost", "damaged"], pipeline: "Pipeline", cluster: "Cluster | None",
    checkpoint: "Path | None",
) -> None:  # fmt: skip
    from millstream.engine.checkpoint.folders import checkpoint_folder
    from millstream.engine.recovery.lost import skip

    folder = checkpoint or checkpoint_folder(pipeline.name)
    for told in skip(pipeline, cluster, folder, what=what):
        warn(told)


_PHASES = {"running": "waiting for the first batch (Ctrl-C stops)"}


def cluster_or_none(pipeline: "Pipeline", kafka: str | None) -> "Cluster | None":
    """The cluster that is meant; None where none is there and the pipeline names no topic.

    Raises:
        Unavailable: there is none, and the pipeline needs it.
    """
    from millstream.plan.side_outputs import uses_kafka

    try:
        return cluster_of(kafka)
    except Unavailable:
        if uses_kafka(pipeline.outputs, pipeline.dead):
            raise
        return None


def check_topics(pipeline: "Pipeline", cluster: "Cluster") -> None:
    """Kafka answers and the topics to read are there: told before Spark is started for nothing.

    Raises:
        NotFound: a topic is not there.
        Unavailable: Kafka does not answer.
    """
    from millstream.kafka.admin.topics import Topics
    from millstream.plan.stages import cut
    from millstream.sources.kafka.topic import Topic

    topics = Topics(cluster)
    for read in cut(pipeline.outputs).reads.values():
        if isinstance(read.source, Topic):
            topics.describe(read.source.name)


def _shown(pipeline: "Pipeline", output: Output) -> "ProgressDisplay":
    from millstream.metrics.progress import EveryBatch, LiveLine, PlainLines

    if output is Output.json:
        return EveryBatch(say, lambda facts, lag: _print_batch(pipeline.name, facts, lag))
    if sys.stderr.isatty() and not screen().quiet:
        from rich.console import Console

        return LiveLine(Console(stderr=True, no_color=not colored(sys.stderr), highlight=False))
    return PlainLines(say)


def _print_batch(pipeline: str, facts: "Facts", lag: dict[str, int]) -> None:
    row = {"pipeline": pipeline, "at": iso(datetime.now(UTC)), **facts.body(), "lag": lag}
    sys.stdout.write(json_text(row) + "\n")
    sys.stdout.flush()


def _ending(job: "Job", until: Until | None, progress: "Progress") -> str:
    if job.finished_before:
        return "it is finished already, and nothing new has come: nothing was done"
    if job.reached_end:
        word = "finished" if until is Until.finished else "caught up"
        return f"{word}: {progress.total()}"
    return f"stopped: {progress.total()}; the same command goes on from here"


class _Stop:
    """Signals as wishes: the first ends the job after the batch in hand, the second at once."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self.signal: int | None = None

    def hear(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            _end_now(number, again=self._job.continuous)
        self.signal = number
        self._job.stop()

    def watch(self) -> None:
        """Until the job has ended; says so when it has been asked to."""
        said = False
        while not self._job.ended(0.1):
            if self.signal is not None and not said:
                said = True
                first = "when positions are kept" if self._job.continuous else "after this batch"
                say(f"stopping {first}; press Ctrl-C again to stop now")


def _end_now(number: int, *, again: bool) -> None:
    """The process ends here; what is half done is finished or done anew by the next run."""
    shown = b"\x1b[?25h" if sys.stderr.isatty() else b""
    words = b"\nstopped now; the next run brings the batch in hand to its end, once\n"
    if again:
        words = b"\nstopped now; the next run sends the rows of the last seconds again\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), shown + words)
    os._exit(128 + number)


@contextmanager
def stopped_by_signals(job: "Job") -> Iterator[_Stop]:
    """Ctrl-C and SIGTERM are heard as wishes for the length of the block."""
    stop = _Stop(job)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop.hear)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
