"""`millstream state show`: the state of a job's steps at its last commit."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli.pipeline.commits import MaybeFile, folder_of
from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_json, print_table, say
from millstream.cli.terminal.pipelines import Checkpoint
from millstream.cli.terminal.settings import key_values
from millstream.errors import InvalidInput, NotFound
from millstream.viewing.points_in_time import iso


def register(app: typer.Typer) -> None:
    """Add `state …`."""
    group = typer.Typer(help="Show the state of a job's steps.", no_args_is_help=True)
    command(
        group,
        "show",
        "millstream state show hot.py",
        "millstream state show hot.py 'tumbling(auction)' --key auction=7",
        "millstream state show hot-auctions 'tumbling(auction)' --key auction=7",
        "millstream state show --checkpoint jobs/hot -o json",
    )(show)
    app.add_typer(group, name="state")


def show(
    file: MaybeFile = None,
    step: Annotated[str | None, typer.Argument(metavar="STEP", help="Only this step.")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="NAME=VALUE", help="This key's value (repeatable)."),
    ] = None,
    checkpoint: Checkpoint = None,
    output: Shape = Output.table,
) -> None:
    """Show rows, bytes, runs and floor of each step's state; with --key the value of one key.

    Needs neither Spark nor Kafka, and the job may be running: the output names the batch it
    reflects. With --checkpoint, an argument that is no file is the STEP.
    """
    if checkpoint is not None and file is not None and step is None and not Path(file).exists():
        file, step = None, file
    from millstream.engine.inspection.inspect import of_key, open_checkpoint, states

    found = open_checkpoint(folder_of(file, checkpoint))
    state = states(found)
    steps = [row for row in state.steps if step in (None, row["step"])]
    if step is not None and not steps:
        known = ", ".join(row["step"] for row in state.steps) or "no steps"
        raise NotFound(f"the checkpoint {found.folder} needs a step {step!r}", got=known)
    if key:
        wanted = key_values(key)
        if len(steps) != 1:
            raise InvalidInput("--key needs one step", got=f"{len(steps)}",
                               do="name the STEP after the file")  # fmt: skip
        state = of_key(found, steps[0]["step"], wanted)
        steps = state.steps
        if not steps:
            raise NotFound(f"{', '.join(key)} needs to be in the state",
                           got=f"no such key after batch {state.batch}")  # fmt: skip
    _print(state.batch, state.at, steps, output)


def _print(batch: int, at: datetime | None, rows: list[dict[str, Any]], output: Output) -> None:
    when = None if at is None else iso(at)
    shown = [{name: _value(value) for name, value in row.items()} for row in rows]
    if output is Output.json:
        print_json({"batch": batch, "at": when, "rows": shown})
        return
    say(f"after batch {batch} ({when or 'no batch yet'})")
    if shown:
        print_table(list(shown[0]), [list(row.values()) for row in shown])
    else:
        say("no step has state")


def _value(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value
