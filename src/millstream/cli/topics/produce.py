"""`millstream produce TOPIC`: records from lines of text, all of them or none."""

import os
import sys
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.connect import check_partitions, cluster_of
from millstream.cli.terminal.options import Kafka, TopicName, command
from millstream.cli.terminal.output import complain, counted, say, warn
from millstream.cli.topics.bodies import Format
from millstream.cli.topics.lines import Entry, Lines, Rules, Spool
from millstream.errors import InvalidInput
from millstream.viewing.escape import shortened
from millstream.viewing.points_in_time import point

if TYPE_CHECKING:
    from millstream.kafka.clients.producing.producer import Producer
    from millstream.kafka.settings import Cluster


def register(app: typer.Typer) -> None:
    """Add `produce`."""
    command(
        app,
        "produce",
        "echo '{\"n\": 1}' | millstream produce clicks",
        'millstream produce clicks --key ann --value \'{"page": "/"}\'',
        "millstream produce clicks --key-separator : < keys-and-values.txt",
        "millstream produce names --format text --key ann --value '' --empty-as-null",
    )(produce)


@dataclass(frozen=True)
class Target:
    """Topic, partition, timestamp and headers of the records."""

    topic: str
    partition: int | None
    timestamp: datetime | None
    headers: tuple[tuple[str, bytes], ...]

    def send(self, producer: "Producer", entry: Entry) -> None:
        """Send one entry."""
        producer.send(
            self.topic,
            entry.value,
            key=entry.key,
            partition=self.partition,
            timestamp=self.timestamp,
            headers=self.headers or None,
        )


def produce(
    topic: TopicName,
    *,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", metavar="TEXT", help="A value (repeatable); stdin is not read."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, VALUE."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header (repeatable)."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", help="The partition [by key]."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="2026-01-01T12:00, -1h [now]."),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", "-f", metavar="json|text|hex", help="The format of the values."),
    ] = Format.json,
    empty_as_null: Annotated[
        bool, typer.Option("--empty-as-null", help="An empty value is a tombstone (null).")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Send each line as it is read, not all or nothing.")
    ] = False,
    kafka: Kafka = None,
) -> None:
    """Send records: one per line of stdin, or one per --value.

    All or nothing: the input is read and checked to its end, then sent in one transaction, so a
    malformed line or a lost broker leaves no record behind. Input that never ends needs
    --partial, which sends as it reads and stops at the first bad line. Lines typed at a
    terminal are sent one by one.
    """
    if key is not None and key_separator is not None:
        raise InvalidInput("a record has one key", got="both --key and --key-separator")
    if key_separator == "":
        raise InvalidInput("--key-separator needs at least one character", got="''")
    rules = Rules(
        form=form,
        key=None if key is None else os.fsencode(key),
        separator=None if key_separator is None else os.fsencode(key_separator),
        empty_as_null=empty_as_null,
    )
    target = Target(
        topic,
        partition,
        None if timestamp is None else point(timestamp, what="--timestamp"),
        tuple(map(_header, header or [])),
    )
    if value is not None:
        _send_all_or_nothing(_given(value, rules), target, kafka)
    elif sys.stdin.isatty():
        _send_typed_lines(rules, target, kafka)
    else:
        lines = Lines(sys.stdin.buffer, rules)
        (_send_as_read if partial else _send_all_or_nothing)(lines, target, kafka)
        if lines.blank:
            warn(f"{lines.blank} blank {'line was' if lines.blank == 1 else 'lines were'} skipped")


def _given(values: list[str], rules: Rules) -> list[Entry]:
    names = ["--value"] if len(values) == 1 else [f"--value {n + 1}" for n in range(len(values))]
    return [rules.entry(os.fsencode(text), name) for name, text in zip(names, values, strict=True)]


def _header(text: str) -> tuple[str, bytes]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise InvalidInput("--header needs NAME=VALUE", got=shortened(text))
    return name, os.fsencode(value)


def _send_all_or_nothing(given: Iterable[Entry], target: Target, kafka: str | None) -> None:
    from millstream.kafka.clients.producing.producer import Producer

    cluster = _checked_cluster(target, kafka)
    with Spool(given) as spool:
        if spool.count == 0:
            warn("the input is empty; nothing was sent")
            return
        # A single record is atomic; several need a transaction.
        name = f"millstream-produce-{uuid.uuid4()}" if spool.count > 1 else None
        with Producer(cluster, transactional_id=name) as producer:
            with producer.transaction() if name else nullcontext():
                for entry in spool:
                    target.send(producer, entry)
            producer.flush()
        _report(spool.count, target)


def _send_as_read(given: Iterable[Entry], target: Target, kafka: str | None) -> None:
    from millstream.kafka.clients.producing.producer import Producer

    with Producer(_checked_cluster(target, kafka)) as producer:
        try:
            for entry in given:
                target.send(producer, entry)
        finally:
            producer.flush()
            _report(producer.acknowledged, target)


def _send_typed_lines(rules: Rules, target: Target, kafka: str | None) -> None:
    """Send each line typed at a terminal on Enter; report a malformed one and continue."""
    from millstream.kafka.clients.producing.producer import Producer

    with Producer(_checked_cluster(target, kafka)) as producer:
        say(f"one {rules.form.value} value per line; Ctrl-D ends")
        lines = Lines(sys.stdin.buffer, rules, on_invalid=lambda error: complain(str(error)))
        for entry in lines:
            target.send(producer, entry)
            producer.flush()
        _report(producer.acknowledged, target)
    if lines.invalid:
        raise typer.Exit(InvalidInput.exit_code)


def _checked_cluster(target: Target, kafka: str | None) -> "Cluster":
    """The cluster, after checking that it has the topic and the partition."""
    from millstream.kafka.admin.topics import Topics

    cluster = cluster_of(kafka)
    topic = Topics(cluster).describe(target.topic)
    check_partitions([] if target.partition is None else [target.partition], topic)
    return cluster


def _report(count: int, target: Target) -> None:
    say(f"sent {counted(count, 'record')} to {target.topic}")
