"""`millstream commits`: what each batch of a job was."""

from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_rows
from millstream.cli.terminal.pipelines import Checkpoint, load
from millstream.errors import InvalidInput
from millstream.viewing.points_in_time import iso

MaybeFile = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE", help="A Python file (FILE:NAME is one of its pipelines), or a job."
    ),
]
LAST = 20
COLUMNS = ["batch", "at", "lane", "rows", "written", "late", "dead", "watermark", "seconds"]


def register(app: typer.Typer) -> None:
    """Adds `commits`."""
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
    every: Annotated[bool, typer.Option("--all", help="All that are still kept.")] = False,
    output: Shape = Output.table,
) -> None:
    """List a job's commits, oldest first: one per batch, running or not."""
    if last < 1:
        raise InvalidInput("--last needs a number of 1 or more", got=str(last))
    from millstream.engine.inspection.inspect import commits, looked_at

    rows = commits(looked_at(folder_of(file, checkpoint)), None if every else last)
    shown = [_for_programs(row) if output is Output.json else _for_people(row) for row in rows]
    print_rows(shown, COLUMNS, output, none="nothing has been committed yet")


def folder_of(file: str | None, checkpoint: Path | None) -> Path:
    """The checkpoint that a FILE, a job's name or --checkpoint names.

    Raises:
        InvalidInput: none of them is given.
    """
    if checkpoint is not None:
        return checkpoint
    if file is None:
        raise InvalidInput("this needs a FILE, a JOB or --checkpoint DIR", got="neither")
    of_job = _checkpoint_of_job(file)
    if of_job is not None:
        return of_job
    from millstream.engine.checkpoint.folders import checkpoint_folder

    return checkpoint_folder(load(file)[1].name)


def _checkpoint_of_job(name: str) -> Path | None:
    from millstream.jobs.folders import stack_folder
    from millstream.jobs.registry import JobRegistry

    with JobRegistry(stack_folder().registry, read_only=True) as registry:
        found = {job.name: job.checkpoint for job in registry.all()}.get(name)
    return None if found is None else Path(found)


def _for_programs(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "at": None if row["at"] is None else iso(row["at"])}


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    known = list(row["watermarks"].values())
    slowest = min(known) if known and None not in known else None
    return {
        **row,
        "at": None if row["at"] is None else f"{row['at']:%Y-%m-%d %H:%M:%S}",
        "written": sum(row["outputs"].values()),
        "watermark": "the end" if row["finished"] else slowest,
        "seconds": round(row["seconds"], 3),
    }
