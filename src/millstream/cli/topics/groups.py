"""`millstream groups`: consumer groups, their lag, and resetting their offsets."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.connect import topics_of
from millstream.cli.terminal.options import DryRun, Kafka, Shape, command
from millstream.cli.terminal.output import Output, print_facts, print_json, print_rows, say
from millstream.errors import NotFound
from millstream.viewing.points_in_time import parse_point_in_time

if TYPE_CHECKING:
    from millstream.kafka.admin.topics import Topics

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's name.")]


def register(app: typer.Typer) -> None:
    """Add `groups …`."""
    group = typer.Typer(help="Show consumer groups and reset their offsets.", no_args_is_help=True)
    command(group, "list", "millstream groups list", "millstream groups list --lag")(list_groups)
    command(group, "describe", "millstream groups describe reports")(describe)
    command(
        group,
        "reset",
        "millstream groups reset reports --topic clicks --to beginning --dry-run",
        "millstream groups reset reports --topic clicks --to -1h",
    )(reset)
    app.add_typer(group, name="groups")


def list_groups(
    lag: Annotated[
        bool, typer.Option("--lag", help="Also members, topics and lag (slower).")
    ] = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """List the consumer groups."""
    topics = topics_of(kafka)
    rows: list[dict[str, object]] = [
        {"group": found.name, "state": found.state} for found in topics.groups()
    ]
    if lag:
        rows = [row for found in rows for row in _with_lag(topics, str(found["group"]))]
    columns = ["group", "state", *(["members", "topics", "lag"] if lag else [])]
    print_rows(rows, columns, output, none="there are no consumer groups")


def _with_lag(topics: "Topics", group: str) -> Iterator[dict[str, object]]:
    """The group's row, or none if the group has been deleted since it was listed."""
    with suppress(NotFound):
        info = topics.group(group)
        yield {
            "group": info.name,
            "state": info.state,
            "members": len(info.members),
            "topics": sorted({part.topic for part in info.partitions}),
            "lag": info.lag,
        }


def describe(group: GroupName, kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Show a group's state, its members, and its offsets per partition."""
    info = topics_of(kafka).group(group)
    facts = {"group": info.name, "state": info.state, "lag": info.lag}
    partitions: list[dict[str, object]] = [
        {**asdict(part), "lag": part.lag, "gone": part.gone} for part in info.partitions
    ]
    members: list[dict[str, object]] = [
        {
            "member": member.id,
            "client": member.client,
            "host": member.host.lstrip("/"),
            "partitions": [f"{topic}/{number}" for topic, number in member.partitions],
            "idle": member.idle,
        }
        for member in info.members
    ]
    if output is Output.json:
        print_json({**facts, "members": members, "partitions": partitions})
        return
    print_facts(facts, output)
    columns = ["topic", "partition", "committed", "earliest", "end", "lag", "gone", "member"]
    print_rows(partitions, columns, output, none="no offsets committed")
    if members:
        print_rows(members, list(members[0]), output, none="")
    else:
        say("no members")


def reset(
    group: GroupName,
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="MOMENT",
            help="beginning, end, -1h, 2026-01-01T12:00 (UTC) or an offset (@1200).",
        ),
    ],
    dry_run: DryRun = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Reset a group's offsets in a topic.

    Refused while the group has members. The old offsets are shown, so that you can restore them.
    """
    place = parse_point_in_time(to, what="--to")
    moves = topics_of(kafka).reset_group(group, topic, place, dry_run=dry_run)
    rows: list[dict[str, object]] = [
        {"topic": topic, "partition": partition, "old": old, "new": new}
        for partition, (old, new) in sorted(moves.items())
    ]
    print_rows(rows, ["topic", "partition", "old", "new"], output, none="nothing to move")
    say(
        f"{group} would continue from there; nothing was changed"
        if dry_run
        else f"{group} continues from there"
    )
