"""`millstream rewind`: set a job back to an earlier commit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.options import Kafka, command
from millstream.cli.terminal.output import say, warn
from millstream.cli.terminal.pipelines import Checkpoint, File, load
from millstream.viewing.points_in_time import point

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal

    from millstream.api.pipeline import Pipeline

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="BATCH|TIME|start",
        help="A batch of `millstream commits`, a time (2026-01-01T12:00), a time ago (-1h), start.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="SUFFIX", help="Write to new outputs: the old names with this suffix."
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Keep the outputs: they are rewound, or get rows again.")
]


def register(app: typer.Typer) -> None:
    """Add `rewind`."""
    command(
        app,
        "rewind",
        "millstream rewind hot.py --to start --into -2",
        "millstream rewind hot.py --to -1h --again",
        "millstream rewind hot.py --to 1200 --again --checkpoint jobs/hot",
    )(rewind)


def rewind(
    file: File,
    *,
    to: To,
    into: Into = None,
    again: Again = False,
    checkpoint: Checkpoint = None,
    kafka: Kafka = None,
) -> None:
    """Set a job back to an earlier commit; its next run continues from there.

    Needs --into or --again. --into -2 writes from now on to new topics, tables and folders whose
    names end in -2. --again keeps the outputs: topics receive rows again (with the header
    millstream.again), keyed tables are overwritten, folders and Delta tables are restored to
    that commit. The job must not be running. A rewind that is killed is completed by the next run,
    or has changed nothing.
    """
    _, pipeline = load(file)
    rewind_job(pipeline, to, into=into, again=again, kafka=kafka, checkpoint=checkpoint)
    say("next: `millstream run` continues from there")


def rewind_job(
    pipeline: "Pipeline",
    to: str,
    *,
    into: str | None,
    again: bool,
    kafka: str | None,
    checkpoint: Path | None,
) -> None:
    """Rewind a pipeline's job, and report what was done."""
    from millstream.cli.pipeline.run import cluster_or_none
    from millstream.engine.recovery.rewind import rewind

    target = _target(to)
    cluster = cluster_or_none(pipeline, kafka)
    done = rewind(pipeline, target, into=into, again=again, kafka=cluster, checkpoint=checkpoint,
                  on_wait=say)  # fmt: skip
    where = f"batch {done.to}" if done.to else "the start"
    how = f"into outputs that end in {done.suffix}" if into else "with the same outputs"
    say(f"{pipeline.name} is back at {where}, {how}; this was batch {done.batch}")
    for lost in done.gaps:
        warn(f"{lost}: earlier records are gone from the log")


def _target(text: str) -> "int | datetime | Literal['start']":
    if text.strip().lower() in ("start", "beginning"):
        return "start"
    if text.isascii() and text.isdigit() and len(text) <= 8:
        return int(text)
    return point(text, what="--to")
