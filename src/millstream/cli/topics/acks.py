"""`millstream acks`: what each kind of acknowledgement loses when a leader dies, tried out."""

from dataclasses import asdict

import typer

from millstream.cli.terminal.options import Shape, command
from millstream.cli.terminal.output import Output, print_rows, say


def register(app: typer.Typer) -> None:
    """Adds `acks`."""
    command(app, "acks", "millstream acks", "millstream acks -o json")(acks)


def acks(output: Shape = Output.table) -> None:
    """Kill a leader under four producers, and show what each kind of acknowledgement lost.

    Three brokers are started for it, in a folder that is gone afterwards; yours are not touched.
    It takes about half a minute.
    """
    from millstream.testing import brokers
    from millstream.testing.acks_trial import trial

    say("starting three brokers …")
    with brokers(3) as cluster:
        rows: list[dict[str, object]] = [asdict(outcome) for outcome in trial(cluster, say=say)]
    print_rows(rows, list(rows[0]), output, none="")
    say('nothing acknowledged is lost with acks="all", and nothing is there twice when it is '
        "idempotent, which is the default")  # fmt: skip
