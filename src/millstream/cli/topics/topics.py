"""`millstream topics`: list, create, describe, alter, delete."""

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.confirm import confirm
from millstream.cli.terminal.connect import cluster_of, topics_of
from millstream.cli.terminal.options import DryRun, Kafka, Shape, TopicName, Yes, command
from millstream.cli.terminal.output import (
    Output,
    counted,
    print_facts,
    print_json,
    print_rows,
    say,
    warn,
)
from millstream.cli.terminal.settings import duration, settings_of
from millstream.errors import InvalidInput, MillstreamError

if TYPE_CHECKING:
    from millstream.kafka.admin.topic_info import TopicInfo

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A Kafka topic setting (repeatable)."),
]


def register(app: typer.Typer) -> None:
    """Add `topics …`."""
    group = typer.Typer(help="Show, create, change and delete topics.", no_args_is_help=True)
    command(group, "list", "millstream topics list", "millstream topics list -o json")(list_topics)
    command(
        group,
        "create",
        "millstream topics create clicks",
        "millstream topics create clicks --partitions 3 --retention '7 days'",
        "millstream topics create users --compact",
    )(create)
    command(group, "describe", "millstream topics describe clicks")(describe)
    command(
        group,
        "alter",
        "millstream topics alter clicks --set retention.ms=3600000",
        "millstream topics alter clicks --partitions 6",
    )(alter)
    command(
        group,
        "delete",
        "millstream topics delete clicks",
        "millstream topics delete clicks --dry-run",
    )(delete)
    app.add_typer(group, name="topics")


def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """List the topics."""
    rows = [_row(info) for info in topics_of(kafka).list(internal=internal)]
    print_rows(
        rows,
        ["topic", "partitions", "replicas", "offsets_held"],
        output,
        none="no topics; create one with `millstream topics create NAME`",
    )


def create(
    topic: TopicName,
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", help="Number of partitions.")
    ] = 1,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", help="Replicas, at most one per broker."),
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option("--retention", metavar="DURATION", help="How long to keep records: '7 days'."),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option("--retention-bytes", metavar="N", help="Bytes to keep per partition."),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Keep the last record of each key.")
    ] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    settings: Settings = None,
    kafka: Kafka = None,
) -> None:
    """Create a topic."""
    length = None if retention is None else duration(retention, what="--retention")
    given = settings_of(settings)
    topics = topics_of(kafka)
    try:
        topics.create(
            topic,
            partitions=partitions,
            replicas=replicas,
            settings=given,
            retention=length,
            retention_bytes=retention_bytes,
            compact=compact,
            exists_ok=if_not_exists,
        )
    except InvalidInput as error:
        if "exists_ok" not in (error.do or ""):
            raise
        advice = "choose another name, or add --if-not-exists"
        raise InvalidInput(error.need, got=error.got, do=advice) from None
    say(f"the topic {topic} exists; next: `millstream produce {topic}`")


def describe(topic: TopicName, kafka: Kafka = None, output: Shape = Output.table) -> None:
    """Show a topic's partitions, offsets and settings, and the cluster's controllers.

    For each partition: its leader, its replicas, and those in sync (isr).
    """
    info = topics_of(kafka).describe(topic)
    partitions = [
        {**asdict(part), "replicas": list(part.replicas), "isr": list(part.isr)}
        for part in info.partitions
    ]
    facts = {**_row(info), "id": info.id, "settings": dict(info.settings), **_control(kafka)}
    if output is Output.json:
        print_json({**facts, "partitions": partitions})
        return
    print_facts(facts, output)
    print_rows(partitions, list(partitions[0]), output, none="no partitions")


def _control(kafka: str | None) -> dict[str, object]:
    """The cluster's controllers, if they can be queried."""
    from millstream.kafka.protocol.cluster import describe_quorum

    cluster = cluster_of(kafka)
    if cluster.settings:
        return {}
    try:
        quorum = describe_quorum(cluster)
    except MillstreamError:
        return {}
    return {"controllers": sorted(quorum.voters), "controller_in_charge": quorum.leader}


def alter(
    topic: TopicName,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Reset to the cluster's default."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="N", help="The new number.")
    ] = None,
    kafka: Kafka = None,
) -> None:
    """Change a topic's settings or add partitions.

    All changes are checked before any is made.
    """
    given: dict[str, str | int | float | bool | None] = {**settings_of(settings)}
    for name in unset or []:
        if name in given:
            raise InvalidInput(f"{name} needs one of --set and --unset", got="both")
        given[name] = None
    if not given and partitions is None:
        raise InvalidInput(
            "alter needs something to change", got="none of --set, --unset and --partitions"
        )
    topics = topics_of(kafka)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        topics.alter(topic, settings=given, partitions=partitions)
    for warning in caught:
        warn(str(warning.message))
    say(f"the topic {topic} has changed")


def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    kafka: Kafka = None,
) -> None:
    """Delete topics and their records. This cannot be undone.

    If one of the names is not a topic, nothing is deleted.
    """
    admin = topics_of(kafka)
    found = [admin.describe(name) for name in dict.fromkeys(topics)]
    names = ", ".join(
        f"{info.name} (up to {counted(info.offsets_held, 'record')})" for info in found
    )
    if dry_run:
        say(f"would delete {names}")
        return
    confirm(f"delete {names}", yes=yes)
    for info in found:
        admin.delete(info.name)
        say(f"deleted {info.name}")


def _row(info: "TopicInfo") -> dict[str, object]:
    return {
        "topic": info.name,
        "partitions": len(info.partitions),
        "replicas": info.replicas,
        "offsets_held": info.offsets_held,
    }
