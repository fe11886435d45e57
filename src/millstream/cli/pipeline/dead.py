"""`millstream dead …`: list, show, retry and drop dead rows."""

import re
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.connect import cluster_of
from millstream.cli.terminal.options import DryRun, Kafka, Shape, command
from millstream.cli.terminal.output import Output, counted, json_text, print_rows, say, warn
from millstream.cli.terminal.pipelines import Checkpoint, find_job, load
from millstream.cli.topics.bodies import Format, for_people, for_programs
from millstream.errors import InvalidInput, NotFound
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.api.pipeline import Pipeline
    from millstream.engine.dead_letters.rows import DeadLetters, DeadRow, Selection

Target = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A Python file (FILE:NAME is one of its pipelines), a job, or a pipeline's name.",
    ),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only where the reason contains this."),
]
Step = Annotated[
    str | None, typer.Option("--step", metavar="NAME", help="Only those of this step.")
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Only those from this source.")
]
Offsets = Annotated[
    list[str] | None,
    typer.Option("--offset", metavar="[P@]N", help="Only this offset of the source (repeatable)."),
]
COLUMNS = ["source", "step", "reason", "waiting", "retried", "dropped", "first", "last"]
_MOST_GROUPS = 1_000
_OFFSET = re.compile(r"(?:(\d{1,9})@)?(\d{1,18})\Z")


def register(app: typer.Typer) -> None:
    """Add `dead …`."""
    group = typer.Typer(
        help="List, retry and drop rows that a step could not process.", no_args_is_help=True
    )
    command(group, "list", "millstream dead list hot.py", "millstream dead list hot-auctions")(
        list_dead
    )
    command(group, "show", "millstream dead show hot.py --reason 'not JSON'",
            "millstream dead show hot-auctions --offset 0@17 -o json")(show)  # fmt: skip
    command(group, "retry", "millstream dead retry hot.py --source bids --dry-run",
            "millstream dead retry hot-auctions --step 'select price'")(retry)  # fmt: skip
    command(group, "drop", "millstream dead drop hot.py --reason future")(drop)
    app.add_typer(group, name="dead")


def list_dead(
    target: Target, checkpoint: Checkpoint = None, kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:  # fmt: skip
    """Count dead rows by source, step and reason: waiting, retried, dropped."""
    from millstream.engine.dead_letters.rows import Selection

    dead = _resolve(target, checkpoint, kafka).dead
    rows = _grouped(dead.rows(Selection()))
    print_rows(rows, COLUMNS, output, none=f"no dead rows in {dead.where}")
    _warn_of_foreign_records(dead)


def show(
    target: Target,
    *,
    reason: Reason = None,
    step: Step = None,
    source: Source = None,
    offset: Offsets = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that were retried or dropped.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most N rows.")] = 20,
    form: Annotated[
        Format,
        typer.Option("--format", "-f", metavar="json|text|hex", help="How values are read."),
    ] = Format.text,
    checkpoint: Checkpoint = None,
    kafka: Kafka = None,
    output: Shape = Output.table,
) -> None:
    """Show dead rows as they arrived, with the reason; -o json prints one line each."""
    if limit < 1:
        raise InvalidInput("--limit needs a number of 1 or more", got=str(limit))
    dead = _resolve(target, checkpoint, kafka).dead
    shown = more = 0
    for row, state in dead.rows(_selection(reason, step, source, offset)):
        if not every and state != "waiting":
            continue
        if shown >= limit:
            more += 1
            continue
        shown += 1
        sys.stdout.write(_line(row, state, form, output) + "\n")
    say(f"{counted(shown, 'dead row')} of {dead.where} shown"
        + (f"; {more} more with --limit {shown + more}" if more else ""))  # fmt: skip
    _warn_of_foreign_records(dead)


def retry(
    target: Target,
    *,
    reason: Reason = None,
    step: Step = None,
    source: Source = None,
    offset: Offsets = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were retried or dropped before.")
    ] = False,
    dry_run: DryRun = False,
    checkpoint: Checkpoint = None,
    kafka: Kafka = None,
) -> None:
    """Send dead rows to their source topics again, each once however often this is run.

    Each record goes unchanged to the partition it came from, with the headers millstream.retry
    (how often) and millstream.origin (its first offset). Other readers of the topic get it
    again, too. If the command is killed, running it again continues.
    """
    resolved = _resolve(target, checkpoint, kafka)
    selection = _selection(reason, step, source, offset)
    topics = resolved.topics()
    if dry_run:
        found = resolved.dead.survey(selection, again=again)
        say(f"{_summary(found.waiting)} would be sent again{_left_out(found.done_before)}")
        return
    done = resolved.dead.retry(selection, topics, again=again)
    say(f"{_summary(done.waiting)} sent again{_left_out(done.done_before)}")
    _warn_of_foreign_records(resolved.dead)


def drop(
    target: Target,
    *,
    reason: Reason = None,
    step: Step = None,
    source: Source = None,
    offset: Offsets = None,
    dry_run: DryRun = False,
    checkpoint: Checkpoint = None,
    kafka: Kafka = None,
) -> None:
    """Mark dead rows as handled. They are kept, and `retry --again` finds them."""
    dead = _resolve(target, checkpoint, kafka).dead
    selection = _selection(reason, step, source, offset)
    if dry_run:
        found = dead.survey(selection)
        say(f"{_summary(found.waiting)} would be dropped")
        return
    done = dead.drop(selection)
    say(f"{_summary(done.waiting)} dropped; they are still in {dead.where}")
    _warn_of_foreign_records(dead)


@dataclass(frozen=True)
class _Target:
    """The pipeline a command names; None if only its name is known, and its dead rows."""

    name: str
    pipeline: "Pipeline | None"
    dead: "DeadLetters"

    def topics(self) -> set[str]:
        """The names of its source topics.

        Raises:
            InvalidInput: only the pipeline's name is known.
        """
        from millstream.plan.stages import cut
        from millstream.sources.kafka.topic import Topic

        if self.pipeline is None:
            raise InvalidInput("dead retry needs the pipeline's file, or its job",
                               got=f"the name {self.name!r} alone",
                               do="write millstream dead retry FILE")  # fmt: skip
        sources = [read.source for read in cut(self.pipeline.outputs).reads.values()]
        others = {source.name for source in sources if not isinstance(source, Topic)}
        return {source.name for source in sources} - others


def _resolve(target: str, checkpoint: Path | None, kafka: str | None) -> _Target:
    """The pipeline named by FILE, FILE:NAME, a job's name or a pipeline's name."""
    from millstream.engine.checkpoint.folders import side_output_folder
    from millstream.engine.dead_letters.stores import dead_letters, dead_letters_of
    from millstream.engine.recovery.rewind import suffix_of
    from millstream.plan.names import check_pipeline_name

    pipeline = None
    if Path(target.rpartition(":")[0] or target).is_file() or Path(target).is_file():
        _, pipeline = load(target)
    elif (job := find_job(target)) is not None:
        _, pipeline = load(f"{job.file}:{job.pipeline}")
        checkpoint, kafka = checkpoint or Path(job.checkpoint), kafka or job.kafka
    elif target.endswith(".py") or "/" in target:
        raise NotFound(f"this needs the file {target}", got="no such file")
    name = target if pipeline is None else pipeline.name
    check_pipeline_name(name)
    folder = side_output_folder(name, pipeline, checkpoint)
    suffix, cluster = suffix_of(folder), partial(cluster_of, kafka)
    if pipeline is None:
        return _Target(name, None, dead_letters_of(name, folder, cluster, suffix))
    return _Target(name, pipeline, dead_letters(pipeline, folder, cluster, suffix))


def _selection(
    reason: str | None, step: str | None, source: str | None, offsets: list[str] | None
) -> "Selection":
    from millstream.engine.dead_letters.rows import Selection

    found = []
    for text in offsets or ():
        parts = _OFFSET.match(text)
        if parts is None:
            raise InvalidInput("--offset needs an offset, with or without its partition",
                               got=repr(text), do="write --offset 17 or --offset 0@17")  # fmt: skip
        found.append((None if parts[1] is None else int(parts[1]), int(parts[2])))
    return Selection(reason, step, source, tuple(found))


def _grouped(rows: "Iterable[tuple[DeadRow, str]]") -> list[dict[str, Any]]:
    """Counts by source, step and reason; beyond a thousand groups the rest is one."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row, state in rows:
        key = (row.record.topic, row.step, row.reason)
        if key not in groups and len(groups) >= _MOST_GROUPS:
            key = (row.record.topic, "(others)", "(others)")
        at = row.record.timestamp
        group = groups.setdefault(key, {"waiting": 0, "retried": 0, "dropped": 0,
                                        "first": at, "last": at})  # fmt: skip
        group[state] += 1
        group["first"], group["last"] = min(group["first"], at), max(group["last"], at)
    return [_group_row(key, group) for key, group in sorted(groups.items())]


def _group_row(key: tuple[str, str, str], group: dict[str, Any]) -> dict[str, Any]:
    times = {name: iso(at) for name, at in group.items() if isinstance(at, datetime)}
    return {**dict(zip(COLUMNS, key, strict=False)), **group, **times}


def _line(row: "DeadRow", state: str, form: Format, output: Output) -> str:
    if output is Output.table:
        return f"{for_people(row.record, form)}\n    {json_text(row.reason)} at {row.step}"
    fields = {"reason": row.reason, "step": row.step, "state": state,
              "dead": f"{row.place[0]}@{row.place[1]}"}  # fmt: skip
    return json_text(fields)[:-1] + ", " + for_programs(row.record, form)[1:]


def _summary(counts: dict[str, int]) -> str:
    if not sum(counts.values()):
        return "no dead rows"
    sources = ", ".join(f"{count} from {name}" for name, count in sorted(counts.items()))
    return f"{counted(sum(counts.values()), 'dead row')} ({sources})"


def _left_out(dealt_with: int) -> str:
    return f"; {dealt_with} were handled before (see --again)" if dealt_with else ""


def _warn_of_foreign_records(dead: "DeadLetters") -> None:
    if dead.foreign:
        warn(f"{counted(dead.foreign, 'record')} of {dead.where} "
             "have none of the headers of a dead row")  # fmt: skip
