"""`millstream rewind`: a job that begins once more from an earlier commit."""

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
    typer.Option("--into", metavar="SUFFIX", help="New outputs: the old names with this added."),
]
Again = Annotated[
    bool, typer.Option("--again", help="The same outputs: they go back, or take rows again.")
]


def register(app: typer.Typer) -> None:
    """Adds `rewind`."""
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
    """Let a job begin once more from an earlier commit; the next run goes on from there.

    One word is needed. --into -2 writes to new topics, tables and folders, which end in -2, from
    now on. --again keeps the outputs: topics receive rows again (with the header
    millstream.again), keyed tables are overwritten, folders and Delta tables go back to what they
    held then. The job must not be running. Killed in the middle, it is done or it is not: the
    next run brings it to its end.
    """
    _, pipeline = load(file)
    rewound(pipeline, to, into=into, again=again, kafka=kafka, checkpoint=checkpoint)
    say("next: `millstream run` goes on from there")


def rewound(
    pipeline: "Pipeline",
    to: str,
    *,
    into: str | None,
    again: bool,
    kafka: str | None,
    checkpoint: Path | None,
) -> None:
    """Rewind a pipeline's job, and say what was done."""
    from millstream.cli.pipeline.run import cluster_or_none
    from millstream.engine.recovery.rewind import rewind

    place = _place(to)
    cluster = cluster_or_none(pipeline, kafka)
    going = rewind(pipeline, place, into=into, again=again, kafka=cluster, checkpoint=checkpoint,
                   say=say)  # fmt: skip
    where = f"batch {going.to}" if going.to else "the start"
    how = f"into outputs that end in {going.suffix}" if into else "with the same outputs"
    say(f"{pipeline.name} is back at {where}, {how}; this was batch {going.batch}")
    for told in going.told:
        warn(f"{told}: what was before it is gone from the log")


def _place(text: str) -> "int | datetime | Literal['start']":
    if text.strip().lower() in ("start", "beginning"):
        return "start"
    if text.isascii() and text.isdigit() and len(text) <= 8:
        return int(text)
    return point(text, what="--to")
