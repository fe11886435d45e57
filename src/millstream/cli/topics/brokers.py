"""`millstream brokers`: list, add, remove, move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.confirm import confirm
from millstream.cli.terminal.connect import cluster_of
from millstream.cli.terminal.options import Kafka, Shape, TopicName, Yes, command
from millstream.cli.terminal.output import Output, counted, print_rows, say
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from millstream.kafka.admin.brokers import Brokers, OnProgress

Node = Annotated[int, typer.Argument(metavar="BROKER", help="The broker's id.")]


def register(app: typer.Typer) -> None:
    """Add `brokers …`."""
    group = typer.Typer(
        help="Show, add and remove brokers, and move partitions.",
        no_args_is_help=True,
    )
    command(group, "list", "millstream brokers list", "millstream brokers list -o json")(
        list_brokers
    )
    command(group, "add", "millstream brokers add")(add)
    command(group, "remove", "millstream brokers remove 4")(remove)
    command(
        group,
        "move",
        "millstream brokers move clicks --to 1,2,4",
        "millstream brokers move clicks --to 4,1 --partition 0 --replicas 2",
    )(move)
    app.add_typer(group, name="brokers")


def list_brokers(kafka: Kafka = None, output: Shape = Output.table) -> None:
    """List the brokers with their replicas, and which is the active controller."""
    rows: list[dict[str, object]] = [
        {
            "broker": broker.node,
            "address": broker.address,
            "state": "down" if broker.address is None else "up",
            "controller": "in charge" if broker.controls else "votes" if broker.votes else None,
            "holds": broker.holds,
            "leads": broker.leads,
            "behind": broker.behind,
        }
        for broker in _brokers(kafka).list()
    ]
    print_rows(rows, list(rows[0]), output, none="no brokers")
    if down := [str(row["broker"]) for row in rows if row["state"] == "down"]:
        say(f"down: {', '.join(down)}; `millstream up` restarts those on this machine")


def add() -> None:
    """Add a broker to the local cluster. It is empty until partitions are moved to it."""
    from millstream.kafka.local import cluster

    _need_cluster("add a broker")
    say("starting one more broker …")
    node = cluster.add()
    say(f"broker {node} is up; next: `millstream brokers move TOPIC --to …,{node}`")


def remove(node: Node, yes: Yes = False) -> None:
    """Remove a broker from the local cluster. Its partitions move to the others first."""
    from millstream.kafka.local import cluster
    from millstream.kafka.local.cluster_folder import ClusterFolder

    _need_cluster("remove a broker")
    cluster.check_removable(ClusterFolder(cluster.status().folder).existing(), node)
    confirm(f"remove broker {node}", yes=yes)
    brokers = _brokers(None)
    moved = brokers.drain(node, on_progress=_progress())
    cluster.remove(node)
    brokers.unregister(node)
    say(f"{counted(moved, 'partition')} moved; broker {node} is removed")


def move(
    topic: TopicName,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="N,N,…", help="The brokers, leaders in this order.")
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition (repeatable)."),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", help="The new number of replicas.")
    ] = None,
    kafka: Kafka = None,
) -> None:
    """Move a topic's partitions to these brokers. It can be read and written during the move."""
    moved = _brokers(kafka).move(
        topic, _numbers(to), partitions=partition, replicas=replicas, on_progress=_progress()
    )
    say(f"{counted(moved, 'partition')} of {topic} moved" if moved else "nothing to move")


def _brokers(kafka: str | None) -> Brokers:
    from millstream.kafka.admin.brokers import Brokers

    return Brokers(cluster_of(kafka))


def _need_cluster(action: str) -> None:
    from millstream.kafka.local import cluster

    if cluster.running_address() is None:
        raise InvalidInput(
            f"to {action} needs a local cluster that is up",
            got="none",
            do="start one with `millstream up --brokers 3`",
        )


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            "--to needs broker numbers separated by commas", got=repr(text), do="write 1,2,3"
        ) from None


def _progress() -> OnProgress:
    """Print a line for each partition that has moved."""
    printed: list[int] = []

    def on_progress(done: int, total: int) -> None:
        if done not in printed:
            printed.append(done)
            say(f"{done} of {counted(total, 'partition')} moved")

    return on_progress
