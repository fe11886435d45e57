"""`millstream up | down | status`: the Kafka that runs on this machine."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from millstream.cli.connect import topics_of
from millstream.cli.moments import iso
from millstream.cli.options import Kafka, Shape, command
from millstream.cli.output import Output, print_facts, say
from millstream.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Adds `up`, `down` and `status`."""
    command(app, "up", "millstream up", "millstream up --port 9092")(up)
    command(app, "down", "millstream down")(down)
    command(app, "status", "millstream status", "millstream status -o json")(status)


def up(
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="Where it listens; else as before, or free."),
    ] = None,
    output: Shape = Output.table,
) -> None:
    """Start the local Kafka broker in the background.

    A real one, on the loopback only: any Kafka client can use its address. It keeps its data
    and its port until the next `millstream up`.
    """
    from millstream.log.broker import start

    if port is not None and not 0 < port < 65536:
        raise InvalidInput("--port needs a number from 1 to 65535", got=str(port))
    say("starting the local broker …")
    start(port=port, say=say)
    _show(output)
    say("next: `millstream topics create clicks`, `millstream demo`, or `millstream down`")


def down() -> None:
    """Stop the local Kafka broker; what it holds stays."""
    from millstream.log.broker import stop

    if stop(say=say):
        say("the local broker has stopped")
    else:
        say("no local broker was running")


def status(kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Show whether Kafka runs, where, and how much it holds."""
    if kafka is None:
        _show(output)
        return
    topics = topics_of(kafka)
    count = len(topics.list())
    print_facts({"running": True, "address": topics.address, "topics": count}, output)


def _show(output: Output) -> None:
    from millstream.log import broker

    now = broker.status()
    started = None if now.started is None else datetime.fromtimestamp(now.started, UTC)
    print_facts(
        {
            "running": now.running,
            "answering": now.answering,
            "address": now.address if now.running else None,
            "pid": now.pid,
            "since": None if started is None else iso(started),
            "topics": len(topics_of(now.address).list()) if now.answering else None,
            "folder": str(now.folder),
            "log_file": str(now.log_file),
        },
        output,
    )
    if not now.running:
        say("start it with `millstream up`")
    elif not now.answering:
        say(f"it runs but does not answer: it may be starting, paused or stuck; see {now.log_file}")
