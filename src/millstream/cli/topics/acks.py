"""`millstream acks`: a trial of what each acknowledgement setting loses when a leader dies."""

from dataclasses import asdict

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_rows, say


def register(app: typer.Typer) -> None:
    """Add `acks`."""
    command(app, "acks", "millstream acks", "millstream acks -o json")(acks)


def acks(output: Shape = Output.table) -> None:
    """Kill a leader under four producers, and show what each acknowledgement setting lost.

    Starts three brokers in a temporary folder; your own are not affected.
    It takes about half a minute.
    """
    from millstream.testing import brokers
    from millstream.testing.acks_trial import trial

    say("starting three brokers …")
    with brokers(3) as cluster:
        rows: list[dict[str, object]] = [asdict(outcome) for outcome in trial(cluster, say=say)]
    print_rows(rows, list(rows[0]), output, none="")
    say('acks="all" loses no acknowledged record; an idempotent producer, the default, writes no '
        "duplicates")  # fmt: skip
