"""`millstream commits`: the committed batches of a job."""

from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_rows
from millstream.cli.terminal.pipelines import Checkpoint, find_job, load
from millstream.errors import InvalidInput
from millstream.viewing.points_in_time import iso

MaybeFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="A Python file (FILE:NAME is one of its pipelines), or a job."
    ),
]
LAST = 20
COLUMNS = ["batch", "at", "lane", "where", "rows", "written", "late", "dead", "watermark",
           "seconds"]  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add `commits`."""
    command(
        app,
        "commits",
        "millstream commits hot.py",
        "millstream commits --checkpoint jobs/hot --all -o json",
    )(list_commits)


def list_commits(
    file: MaybeFile = None,
    checkpoint: Checkpoint = None,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", help="Only the last N.")] = LAST,
    every: Annotated[bool, typer.Option("--all", help="All commits that are still kept.")] = False,
    output: Shape = Output.table,
) -> None:
    """List a job's commits, oldest first: one per batch. The job may be running."""
    if last < 1:
        raise InvalidInput("--last needs a number of 1 or more", got=str(last))
    from millstream.engine.inspection.inspect import commits, open_checkpoint

    rows = commits(open_checkpoint(folder_of(file, checkpoint)), None if every else last)
    shown = [_for_programs(row) if output is Output.json else _for_people(row) for row in rows]
    print_rows(shown, COLUMNS, output, none="nothing has been committed yet")


def folder_of(file: str | None, checkpoint: Path | None) -> Path:
    """The checkpoint folder named by a FILE, a job's name or --checkpoint.

    Raises:
        InvalidInput: none of them is given.
    """
    if checkpoint is not None:
        return checkpoint
    if file is None:
        raise InvalidInput("this needs a FILE, a JOB or --checkpoint DIR", got="neither")
    job = find_job(file)
    if job is not None:
        return Path(job.checkpoint)
    from millstream.engine.checkpoint.folders import checkpoint_folder

    return checkpoint_folder(load(file)[1].name)


def _for_programs(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "at": None if row["at"] is None else iso(row["at"])}


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    watermarks = list(row["watermarks"].values())
    slowest = min(watermarks) if watermarks and None not in watermarks else None
    return {
        **row,
        "at": None if row["at"] is None else f"{row['at']:%Y-%m-%d %H:%M:%S}",
        "written": sum(row["outputs"].values()),
        "watermark": "the end" if row["finished"] else slowest,
        "seconds": round(row["seconds"], 3),
    }
