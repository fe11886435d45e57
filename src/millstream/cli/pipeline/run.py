"""`millstream run FILE`: run a pipeline in this process until it ends or is stopped."""

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
    """When a run ends by itself."""

    caught_up = "caught-up"
    finished = "finished"


class Lane(StrEnum):
    """The lane of every batch."""

    wide = "wide"
    narrow = "narrow"

    @classmethod
    def _missing_(cls, value: object) -> "Lane | None":
        return cls.narrow if value == "short" else None


def register(app: typer.Typer) -> None:
    """Add `run`."""
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
            help="End when all records of now are processed; finished: close all windows too.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    lane: Annotated[
        Lane | None,
        typer.Option(
            "--lane", metavar="wide|narrow", help="Always use this lane [the planner chooses]."
        ),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence another run of this job.")
    ] = False,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Continue without records that are gone from the log."),
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option(
            "--skip-damaged", help="Continue after the damaged record batch it stopped at."
        ),
    ] = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Run a pipeline, exactly once, until Ctrl-C.

    Started again, it continues where it stopped, however it stopped. Ctrl-C (or SIGTERM) ends it
    after the current batch, a second one at once; neither loses or repeats a row. (A pipeline with
    mode="continuous" is at least once: it may repeat the rows of the last seconds.)

    --until caught-up ends when all records present at the start are committed; open windows stay
    open for the next run. --until finished treats the sources as ended: everything closes.

    Exit code 0 means that the run reached the end that --until names, or without it that it was
    stopped. A run stopped before that end gives 130 (Ctrl-C) or 143 (SIGTERM).
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

    display = _display(pipeline, output)
    warnings: list[str] = []
    job = Job(
        pipeline,
        until=cast("Literal['caught_up', 'finished']", until.name) if until else None,
        kafka=cluster,
        checkpoint=checkpoint,
        lane=lane.value if lane else None,
        take_over=take_over,
        on_batch=display.batch,
        on_phase=lambda phase: display.phase(_PHASES.get(phase, phase)),
        warn=warnings.append,
    )
    where = cluster.address if cluster is not None else "no Kafka"
    kind = "temporary checkpoint" if job.temporary is not None else "checkpoint"
    say(f"{pipeline.name} on {where}, {kind} {job.folder}")
    suffix = suffix_of(job.folder)
    if suffix:
        say(f"its outputs end in {suffix} since it was rewound")
    with libraries_print_to(libraries_log(job, pipeline)), stopped_by_signals(job) as stop, display:
        job.start()
        stop.watch()
    for text in warnings:
        warn(text)
    job.wait()
    say(_ending(job, until, display.progress))
    if stop.signal is not None and until is not None and not job.reached_end:
        raise typer.Exit(128 + stop.signal)


def libraries_log(job: "Job", pipeline: "Pipeline") -> "Path":
    """The file libraries print to, in a folder that outlives the run."""
    from millstream.engine.checkpoint.folders import checkpoint_folder

    folder = job.folder if job.temporary is None else checkpoint_folder(pipeline.name)
    return folder / "libraries.log"


def _skip(
    what: Literal["lost", "damaged"], pipeline: "Pipeline", cluster: "Cluster | None",
    checkpoint: "Path | None",
) -> None:  # fmt: skip
    from millstream.engine.checkpoint.folders import checkpoint_folder
    from millstream.engine.recovery.lost import skip

    folder = checkpoint or checkpoint_folder(pipeline.name)
    for skipped in skip(pipeline, cluster, folder, what=what):
        warn(skipped)


_PHASES = {"running": "waiting for the first batch (Ctrl-C stops)"}


def cluster_or_none(pipeline: "Pipeline", kafka: str | None) -> "Cluster | None":
    """The cluster to use; None if there is none and the pipeline needs none.

    Raises:
        Unavailable: there is none, and the pipeline needs one.
    """
    from millstream.plan.side_outputs import uses_kafka

    try:
        return cluster_of(kafka)
    except Unavailable:
        if uses_kafka(pipeline.outputs, pipeline.dead):
            raise
        return None


def check_topics(pipeline: "Pipeline", cluster: "Cluster") -> None:
    """Check that Kafka answers and the source topics exist, before Spark is started.

    Raises:
        NotFound: a topic does not exist.
        Unavailable: Kafka does not answer.
    """
    from millstream.kafka.admin.topics import Topics
    from millstream.plan.stages import cut
    from millstream.sources.kafka.topic import Topic

    topics = Topics(cluster)
    for read in cut(pipeline.outputs).reads.values():
        if isinstance(read.source, Topic):
            topics.describe(read.source.name)


def _display(pipeline: "Pipeline", output: Output) -> "ProgressDisplay":
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
        return "already finished, and there are no new records: nothing was done"
    if job.reached_end:
        word = "finished" if until is Until.finished else "caught up"
        return f"{word}: {progress.total()}"
    return f"stopped: {progress.total()}; the same command continues from here"


class _Stop:
    """The first signal stops the job after the current batch, the second at once."""

    def __init__(self, job: "Job") -> None:
        self._job = job
        self.signal: int | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            _end_now(number, again=self._job.continuous)
        self.signal = number
        self._job.stop()

    def watch(self) -> None:
        """Wait until the job has ended; report where the Spark UI is, and that the job is stopping
        once a signal has arrived."""
        reported = seen = False
        while not self._job.ended(0.1):
            if not seen and (address := self._job.spark_ui) is not None:
                seen = True
                say(f"Spark UI: {address}")
            if self.signal is not None and not reported:
                reported = True
                first = (
                    "after committing its offsets" if self._job.continuous else "after this batch"
                )
                say(f"stopping {first}; press Ctrl-C again to stop now")


def _end_now(number: int, *, again: bool) -> None:
    """End the process; the next run completes or repeats the unfinished batch."""
    show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
    message = b"\nstopped now; the next run completes the unfinished batch, once\n"
    if again:
        message = b"\nstopped now; the next run sends the rows of the last seconds again\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), show_cursor + message)
    os._exit(128 + number)


@contextmanager
def stopped_by_signals(job: "Job") -> Iterator[_Stop]:
    """Let Ctrl-C and SIGTERM stop the job during the block."""
    stop = _Stop(job)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop.on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
