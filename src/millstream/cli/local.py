"""`millstream up | down | status`: the broker, the supervisor and the page on this machine."""

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
    command(app, "up", "millstream up", "millstream up --port 9092 --page-port 8080",
            "millstream up --kafka kafka.example:9092")(up)  # fmt: skip
    command(app, "down", "millstream down")(down)
    command(app, "status", "millstream status", "millstream status -o json")(status)


def up(
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help="Where Kafka listens; else as before, or free."),
    ] = None,
    page_port: Annotated[
        int | None,
        typer.Option(
            "--page-port", metavar="N", help="Where the page is; else as before, or free."
        ),
    ] = None,
    only_broker: Annotated[
        bool, typer.Option("--only-broker", help="No jobs and no page: only Kafka.")
    ] = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Start the local stack in the background: a Kafka broker, the supervisor, the page.

    The broker is a real one, on the loopback only: any Kafka client can use its address. It
    keeps its data and its port until the next `millstream up`. With --kafka no broker is
    started and jobs use that one. What is up already stays as it is; jobs that ran at the last
    `down` run again.
    """
    for option, value in (("--port", port), ("--page-port", page_port)):
        if value is not None and not 0 < value < 65536:
            raise InvalidInput(f"{option} needs a number from 1 to 65535", got=str(value))
    if kafka is None:
        start_broker(port)
    if not only_broker:
        start_stack(kafka, page_port)
    _show(output, kafka)
    say("next: `millstream jobs submit FILE`, `millstream topics create clicks`, "
        "`millstream demo`, or `millstream down`")  # fmt: skip


def start_broker(port: int | None) -> None:
    """Start the local broker; one that runs already stays as it is."""
    from millstream.log import broker

    address = broker.running_address()
    if address is None:
        say("starting the local broker …")
        broker.start(port=port, say=say)
    elif port is not None and address != f"127.0.0.1:{port}":
        raise InvalidInput(f"--port {port} needs a broker that is not running yet",
                           got=f"one at {address}", do="end it with `millstream down`")  # fmt: skip


def start_stack(kafka: str | None, page_port: int | None) -> None:
    """Start the supervisor and the page; what is up already stays as it is."""
    from millstream.jobs import stack
    from millstream.jobs.book import Book
    from millstream.jobs.places import stack_place
    from millstream.log.broker_folder import free_port, refuse_taken

    now = stack.status()
    if now.supervisor is None or now.console is None:
        say("starting the supervisor and the page …")
    with Book(stack_place().book, read_only=True) as book:
        before = book.setting(stack.PAGE_PORT)
    chosen = page_port or (int(before) if before else free_port())
    if now.console is None:
        refuse_taken(chosen)
    elif before != str(chosen):
        raise InvalidInput(f"--page-port {chosen} needs a page that is not up yet",
                           got=f"one at {now.page}",
                           do="end it with `millstream down`")  # fmt: skip
    stack.up(kafka=kafka, page_port=chosen)


def down() -> None:
    """Stop the page, the jobs, the supervisor and the local Kafka broker; what they hold stays."""
    from millstream.jobs import stack
    from millstream.log.broker import stop

    if stack.down(say):
        say("the page and the supervisor have stopped")
    if stop(say=say):
        say("the local broker has stopped")
    else:
        say("no local broker was running")


def status(kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Show whether Kafka runs, where, and how much it holds; and where the page is."""
    _show(output, kafka)


def _show(output: Output, kafka: str | None) -> None:
    from millstream.jobs import stack

    around = stack.status()
    page = None if around.page is None else stack.page_link(around.page)
    facts, advice = _of_broker() if kafka is None else _of_kafka(kafka)
    print_facts({**facts, "supervisor": around.supervisor, "page": page}, output)
    if advice is not None:
        say(advice)


def _of_kafka(kafka: str) -> tuple[dict[str, object], str | None]:
    topics = topics_of(kafka)
    count = len(topics.list())
    return {"running": True, "address": topics.address, "topics": count}, None


def _of_broker() -> tuple[dict[str, object], str | None]:
    """The local broker in facts, and what to do where something is amiss."""
    from millstream.log import broker

    now = broker.status()
    started = None if now.started is None else datetime.fromtimestamp(now.started, UTC)
    facts: dict[str, object] = {
        "running": now.running,
        "answering": now.answering,
        "address": now.address if now.running else None,
        "pid": now.pid,
        "since": None if started is None else iso(started),
        "topics": len(topics_of(now.address).list()) if now.answering else None,
        "folder": str(now.folder),
        "log_file": str(now.log_file),
    }
    if not now.running:
        return facts, "start it with `millstream up`"
    if not now.answering:
        return facts, (
            f"it runs but does not answer: it may be starting, paused or stuck; see {now.log_file}"
        )
    return facts, None
