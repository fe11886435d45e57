"""`millstream tail TOPIC`: show the records of a topic, as `tail -f` shows a file."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.connect import check_partitions, cluster_of
from millstream.cli.terminal.options import Kafka, Shape, TopicName, command
from millstream.cli.terminal.output import Output, counted, say, warn
from millstream.cli.terminal.stdout import watch_stdout
from millstream.cli.topics.bodies import Format, for_people, for_programs, value_alone
from millstream.errors import InvalidInput
from millstream.viewing.points_in_time import PointInTime, parse_point_in_time
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from millstream.cli.topics.reading import Section
    from millstream.kafka.clients.consuming.damaged import LostOffsets
    from millstream.kafka.records import Record
    from millstream.kafka.settings import Cluster

LAST = 10


def register(app: typer.Typer) -> None:
    """Add `tail`."""
    command(
        app,
        "tail",
        "millstream tail clicks",
        "millstream tail clicks --from -1h --until-end -o json | jq .value",
        "millstream tail clicks --from-beginning --key ann",
        "millstream tail clicks --where \"price > 10 and shop.country in ('de', 'fr')\"",
        "millstream tail clicks -n 1 --no-follow",
        "millstream tail jobs --share workers --limit 10",
    )(tail)


def tail(
    topic: TopicName,
    *,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MOMENT",
            help="beginning, end, -1h, 2026-01-01T12:00 (UTC) or an offset (@1200).",
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Same as --from beginning.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", metavar="N", help=f"Start with the last N [{LAST}]."),
    ] = None,
    no_follow: Annotated[
        bool,
        typer.Option("--until-end", "--no-follow", help="Stop at the current end."),
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Stop after N records.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Only this key.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="CONDITION", help="Only records that match."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition (repeatable)."),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", "-f", metavar="json|text|hex", help="How values are shown."),
    ] = Format.json,
    values: Annotated[bool, typer.Option("--values", help="Print only the values.")] = False,
    share: Annotated[
        str | None,
        typer.Option(
            "--share", metavar="GROUP", help="Take records as a member of this share group."
        ),
    ] = None,
    output: Shape = Output.table,
    kafka: Kafka = None,
) -> None:
    """Show a topic's records as they arrive.

    Starts with the last few records, or at --from, and continues until Ctrl-C.

    --where compares fields of the JSON value (price, shop.country, items.0.sku) and the
    record's own _key, _partition, _offset, _timestamp and _headers.NAME with = != < <= > >=,
    in (…), like 'a%', is null, and joins with and, or, not, ( ). A missing field is unknown,
    as in SQL, and an unknown record is not shown. Only committed records are read.

    A damaged record batch is reported with its offsets, and reading continues after it.

    With --share, records are read from a share group, as from a queue: each is acknowledged once it
    is shown, and no other member of the group receives it.
    """
    if sum([begin is not None, from_beginning, last is not None]) > 1:
        raise InvalidInput(
            "tail needs one start position", got="more than one of --from, --from-beginning, -n"
        )
    _check_count(last, "-n", least=0)
    _check_count(limit, "--limit", least=1)
    if values and output is Output.json:
        raise InvalidInput("tail needs one output format", got="both --values and -o json")
    beginning: PointInTime = "start"
    if not from_beginning:
        beginning = "end" if begin is None else parse_point_in_time(begin, what="--from")
    view = View(
        selection=Selection(
            key=None if key is None else os.fsencode(key),
            where=None if where is None else parse(where),
        ),
        write=writer(output, form, values=values),
        limit=limit,
    )
    if share is not None:
        chosen = (begin, from_beginning, last, no_follow, key, where, partition)
        if any(option not in (None, False) for option in chosen):
            raise InvalidInput(
                "--share needs to show every record it receives, in order",
                got="--share with --from, -n, --until-end, --key, --where or --partition",
                do="omit those; --limit N stops after N records",
            )
        _run(lambda: _take(topic, share, view, cluster_of(kafka)), view)
        return
    newest = LAST if last is None and begin is None and not from_beginning else last or 0
    section = section_of(topic, partition or [], cluster_of(kafka))
    follow = not no_follow
    _run(lambda: _read(section, view, beginning=beginning, last=newest, follow=follow), view)


@dataclass
class View:
    """Selects records, writes them and counts them."""

    selection: Selection
    write: Callable[["Record"], None]
    limit: int | None = None
    shown: int = 0

    def show(self, record: "Record") -> None:
        """Write one record."""
        self.write(record)
        self.shown += 1

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and self.shown >= self.limit


def _run(read: Callable[[], None], view: View) -> None:
    """Write records until the limit or the end is reached, or the user stops it."""
    try:
        read()
    except KeyboardInterrupt:
        _sum_up(view)
        raise
    _sum_up(view)


def _take(topic: str, group: str, view: View, cluster: "Cluster") -> None:
    """Write records of a share group; acknowledge each once it is written."""
    from millstream.kafka.clients.consuming.share_consumer import ShareConsumer

    most = 1 if view.limit is not None else 100
    with (
        ShareConsumer(topic, group=group, kafka=cluster, most=most) as queue,
        watch_stdout(queue.stop),
    ):
        for record in queue:
            view.show(record)
            queue.acknowledge(record)
            if view.full:
                return


def _read(
    section: "Section", view: View, *, beginning: PointInTime, last: int, follow: bool
) -> None:
    if last:
        found, places, lost = section.last(last, view.selection)
        for one in lost:
            _report_lost(one)
        for record in found[: view.limit]:
            view.show(record)
    else:
        places = section.offsets(beginning)
    if (follow or not last) and not view.full:
        _follow(section, view, places, until_end=not follow)


def _sum_up(view: View) -> None:
    """Report how many records a filter excluded."""
    selection = view.selection
    if selection.key is None and selection.where is None:
        return
    text = f"{view.shown} of {counted(selection.seen, 'record')} shown"
    if selection.unknown:
        text += f"; in {selection.unknown} a field of --where was missing, null or of another type"
    say(text)


def _report_lost(lost: "LostOffsets") -> None:
    warn(f"{lost}; reading continues after it")


def _follow(section: "Section", view: View, places: dict[int, int], *, until_end: bool) -> None:
    from millstream.kafka.clients.consuming.damaged import skip_damaged

    with section.reader(places, until_end=until_end) as reader, watch_stdout(reader.stop):
        for record in skip_damaged(reader, section.cluster, _report_lost):
            if view.selection.matches(record):
                view.show(record)
                if view.full:
                    return


def section_of(topic: str, partitions: list[int], cluster: "Cluster") -> "Section":
    """The named partitions of a topic, or all.

    Raises:
        NotFound: there is no such topic.
        InvalidInput: it has no such partition.
    """
    from millstream.cli.topics.reading import Section
    from millstream.kafka.admin.topics import Topics

    info = Topics(cluster).describe(topic)
    check_partitions(partitions, info)
    every = [part.partition for part in info.partitions]
    return Section(cluster, topic, tuple(dict.fromkeys(partitions or every)))


def writer(output: Output, form: Format, *, values: bool = False) -> Callable[["Record"], None]:
    """A function that writes a record to stdout at once, in the given format."""
    if values:
        return lambda record: _write(value_alone(record, form))
    line = for_programs if output is Output.json else for_people
    return lambda record: _write(line(record, form).encode("utf-8", "backslashreplace"))


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def _check_count(number: int | None, name: str, *, least: int) -> None:
    if number is not None and number < least:
        raise InvalidInput(f"{name} needs a number from {least} on", got=str(number))
