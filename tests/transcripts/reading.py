"""Transcripts as values: what is read, what is built from it, and what happens batch by batch.

    title: A row at the watermark is on time
    about: One sentence that says what a user can rely on.
    zero: 2026-01-01                    # what times in tables count from; this is the default
    read:                               # sources; without it: events of k string, v long, ts
      events: {schema: "k string, v long, ts timestamp", time: ts, watermark: 5 seconds}
    pipeline: events.by("k").window(tumbling("10 seconds")).agg(n=count())
    functions: |                        # Python, where a step takes a function; seldom needed
      def doubled(visit):
          return [{**row, "v": 2 * row["v"]} for row in visit.rows]
    steps:                              # each is one batch
      - feed: |
          k  v  ts
          a  1  15
        panes: none
      - finish: yes
        panes: |
          k  window  n
          a  10..20  1

`pipeline` is Python over the public names; as a mapping it names several outputs, each of
which the next may use; `functions` are defined with `timedelta` and the plain builtins at hand.
A step may `feed` (a table; for several sources or partitions a mapping
`events`, `events/1`), set a source's `watermark`, move the `clock`, `restart` first or `finish`;
it must say which `panes` leave (a table, a mapping by output, or none), and may say which rows
are `late` (a table of the row's columns and `windows`, `step`), how many are `dead` (or how
their reasons begin) and other `facts`. What it does not mention must not happen. A transcript
that is `refused` instead of played says how the sentence begins; one that holds `within_a_run`
only (idleness does) says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.transcripts import tables
from tests.transcripts.nodes import Item, documents

import millstream as ms
from millstream.errors import MillstreamError
from millstream.metrics.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.transcripts.tables import Table

PARTS = ("title", "about", "zero", "read", "functions", "pipeline", "within_a_run", "steps",
         "refused")  # fmt: skip
READ = ("schema", "time", "watermark", "idle", "ahead")
SCHEMA = "k string, v long, ts timestamp"
ACTIONS = ("restart", "feed", "watermark", "clock", "finish")
STEP = (*ACTIONS, "panes", "late", "dead", "facts")
LATE = ("windows", "step")
FACTS = tuple(field.name for field in fields(Facts))


@dataclass(frozen=True)
class Feed:
    """Rows for one partition of a source; `_timestamp` is the record's own."""

    source: str
    partition: int
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Fact:
    """A fact of the batch, by the names that lead to it: `watermarks`, `events`."""

    line: int
    path: tuple[str | int, ...]
    text: str


@dataclass(frozen=True)
class Step:
    """One batch: what is done before it, and what must leave in it."""

    item: Item
    feeds: tuple[Feed, ...]
    watermarks: dict[str, datetime]
    clock: datetime | None
    restart: bool
    finish: bool
    panes: dict[str, Table]
    late: Table | None
    dead: int | tuple[str, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Transcript:
    """A test case of one pipeline: its steps, and what each must emit.

    `refusal` is the beginning of the error that refuses to build it. A transcript that is played
    `within_a_run` gives different results if the run is restarted between its steps.
    """

    item: Item
    title: str
    zero: datetime
    sources: dict[str, dict[str, str | None]]
    functions: str
    outputs: dict[str, str]
    steps: tuple[Step, ...]
    refusal: str | None
    within_a_run: bool

    @property
    def name(self) -> str:
        """File and title, as tests are named."""
        return f"{self.item.file.stem}: {self.title}"

    def build(self) -> ms.Pipeline:
        """A new instance of the pipeline."""
        return _built(self.sources, self.functions, self.outputs)


def transcripts(files: Sequence[Path]) -> list[Transcript]:
    """All transcripts of these files; each title once."""
    found = [transcript(document) for file in files for document in documents(file)]
    seen: set[str] = set()
    for one in found:
        if one.title in seen:
            raise one.item.refuse("a title is needed once", got=repr(one.title), do="say another")
        seen.add(one.title)
    return found


def transcript(item: Item) -> Transcript:
    """One document as a transcript."""
    parts = item.mapping(PARTS)
    for name in ("title", "about", "pipeline"):
        if name not in parts:
            raise item.refuse("a transcript needs title, about and pipeline", got=f"no {name}",
                              do="write it")  # fmt: skip
    if ("steps" in parts) == ("refused" in parts):
        raise item.refuse("a transcript needs steps, or to be refused",
                          got="both" if "steps" in parts else "neither",
                          do="say what happens")  # fmt: skip
    zero = _time(parts["zero"], datetime(1970, 1, 1, tzinfo=UTC)) if "zero" in parts else ZERO
    sources = _sources(parts.get("read"))
    functions = parts["functions"].text() if "functions" in parts else ""
    outputs = _expressions(parts["pipeline"])
    refusal = parts["refused"].text() if "refused" in parts else None

    steps: tuple[Step, ...] = ()
    if "steps" in parts:
        columns = _columns(parts["pipeline"], sources, functions, outputs)
        schemas = {name: str(options["schema"]) for name, options in sources.items()}
        reader = _Reader(zero, columns, schemas)
        steps = tuple(reader.step(one) for one in parts["steps"].sequence())
        if not steps:
            raise parts["steps"].refuse("a transcript needs a step", got="none", do="write one")
    if "within_a_run" in parts:
        parts["within_a_run"].yes()
    return Transcript(item, parts["title"].text(), zero, sources, functions, outputs, steps,
                      refusal, "within_a_run" in parts)  # fmt: skip


def _columns(
    item: Item,
    sources: dict[str, dict[str, str | None]],
    functions: str,
    outputs: dict[str, str],
) -> dict[str, tuple[str, ...]]:
    """The columns of each output, known while building."""
    try:
        pipeline = _built(sources, functions, outputs)
    except (MillstreamError, SyntaxError, NameError, TypeError, AttributeError) as error:
        raise item.refuse("a pipeline that can be built is needed", got=error,
                          do="correct it") from error  # fmt: skip
    return {output.name: output.input.columns or () for output in pipeline.outputs}


ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def _sources(item: Item | None) -> dict[str, dict[str, str | None]]:
    if item is None:
        return {"events": {"schema": SCHEMA, "time": "ts"}}
    return {
        name: {"schema": SCHEMA, "time": "ts",
               **{k: None if v.text() == "null" else v.text()
                  for k, v in options.mapping(READ).items()}}
        for name, options in item.mapping().items()
    }  # fmt: skip


def _expressions(item: Item) -> dict[str, str]:
    if item.is_mapping():
        return {name: text.text() for name, text in item.mapping().items()}
    return {"out": item.text()}


class _Names(Mapping[str, Any]):
    """The public names, the streams that are there already, and the transcript's functions."""

    def __init__(self, streams: dict[str, ms.Stream], functions: dict[str, Any]) -> None:
        self._streams, self._functions = streams, functions

    def __getitem__(self, name: str) -> Any:
        if name in self._streams:
            return self._streams[name]
        if name in self._functions:
            return self._functions[name]
        if name.startswith("_") or not hasattr(ms, name):
            raise KeyError(name)
        return getattr(ms, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)


def _built(
    sources: dict[str, dict[str, Any]], functions: str, outputs: dict[str, str]
) -> ms.Pipeline:
    streams = {}
    defined: dict[str, Any] = {"__name__": "transcript", "timedelta": timedelta}
    exec(functions, defined)
    for name, options in sources.items():
        others = {k: v for k, v in options.items() if k != "schema"}
        streams[name] = ms.read(ms.Topic(name, schema=options["schema"]), **others)
    made = []
    for name, text in outputs.items():
        code = f"({text.strip()})"
        streams[name] = eval(code, {"__builtins__": {}}, _Names(streams, defined))
        made.append(streams[name].to(ms.Topic(name)))
    return ms.Pipeline("transcript", *made)


@dataclass(frozen=True)
class _Reader:
    """Reads steps, knowing the columns there are."""

    zero: datetime
    outputs: dict[str, tuple[str, ...]]
    schemas: dict[str, str]

    def step(self, item: Item) -> Step:
        """One step of a transcript."""
        parts = item.mapping(STEP)
        if "panes" not in parts:
            raise item.refuse("a step needs to say which panes leave", got="no panes",
                              do="write a table, or panes: none")  # fmt: skip
        for word in ("restart", "finish"):
            if word in parts:
                parts[word].yes()
        return Step(
            item,
            tuple(self._feeds(parts["feed"])) if "feed" in parts else (),
            self._watermarks(parts["watermark"]) if "watermark" in parts else {},
            _time(parts["clock"], self.zero) if "clock" in parts else None,
            "restart" in parts,
            "finish" in parts,
            self._panes(parts["panes"]),
            self._late(parts["late"]) if "late" in parts else None,
            _dead(parts["dead"]) if "dead" in parts else 0,
            tuple(self._facts(parts)),
        )

    def _feeds(self, item: Item) -> Iterator[Feed]:
        entries = item.mapping() if item.is_mapping() else {self._only(item): item}
        for place, rows in entries.items():
            source, _, partition = place.partition("/")
            if source not in self.schemas or not (partition or "0").isdecimal():
                raise rows.refuse("a source of the transcript is needed", got=place,
                                  do=f"write one of {', '.join(self.schemas)}")  # fmt: skip
            yield Feed(source, int(partition or 0), tuple(self._rows(source, rows)))

    def _only(self, item: Item) -> str:
        if len(self.schemas) > 1:
            raise item.refuse("the source is needed where there are several", got="a table",
                              do=f"name one of {', '.join(self.schemas)}")  # fmt: skip
        return next(iter(self.schemas))

    def _rows(self, source: str, item: Item) -> Iterator[dict[str, Any]]:
        schema = ms.Topic(source, schema=self.schemas[source]).row_schema()
        kinds = {name: schema[name].type.ddl() for name in schema.names}
        found = tables.of_columns(tables.table(item), [*kinds, "_timestamp"], every=False)
        for line in found.lines:
            try:
                yield {
                    column: tables.json_value(cell, kinds.get(column, "timestamp"), self.zero)
                    for column, cell in line.cells.items()
                }
            except ValueError as error:
                raise item.refuse("cells of the columns' types are needed",
                                  got=f"line {line.number}: {line.text} ({error})",
                                  do="correct it") from error  # fmt: skip

    def _watermarks(self, item: Item) -> dict[str, datetime]:
        entries = item.mapping(self.schemas) if item.is_mapping() else {self._only(item): item}
        return {name: _time(at, self.zero) for name, at in entries.items()}

    def _panes(self, item: Item) -> dict[str, Table]:
        entries = item.mapping(self.outputs) if item.is_mapping() else {}
        if not entries:
            if len(self.outputs) > 1 and item.text().strip() != "none":
                raise item.refuse("the output is needed where there are several", got="a table",
                                  do=f"name one of {', '.join(self.outputs)}")  # fmt: skip
            entries = dict.fromkeys(self.outputs, item)
        return {
            name: tables.of_columns(tables.table(rows), self.outputs[name], every=True)
            for name, rows in entries.items()
        }

    def _late(self, item: Item) -> Table:
        known = [*LATE, *(name for text in self.schemas.values()
                          for name in ms.Topic("any", schema=text).row_schema().names),
                 *(name for columns in self.outputs.values() for name in columns)]  # fmt: skip
        return tables.of_columns(tables.table(item), known, every=False)

    def _facts(self, parts: dict[str, Item]) -> Iterator[Fact]:
        """What is said of the batch; late rows are counted where nothing else is said."""
        said = parts["facts"].mapping(FACTS) if "facts" in parts else {}
        for name, item in said.items():
            yield from _facts(item, (name,))
        if "late" not in said:
            late = self._late(parts["late"]) if "late" in parts else None
            place = parts.get("late", parts["panes"])
            yield Fact(place.line, ("late",), str(len(late.lines) if late else 0))


def _facts(item: Item, path: tuple[str | int, ...]) -> Iterator[Fact]:
    inside: dict[str | int, Item] = {}
    if item.is_mapping():
        inside.update(item.mapping())
    elif item.is_list():
        inside.update(enumerate(item.sequence()))
    else:
        yield Fact(item.line, path, item.text())
    for name, value in inside.items():
        yield from _facts(value, (*path, name))


def _dead(item: Item) -> int | tuple[str, ...]:
    if item.is_list():
        return tuple(reason.text() for reason in item.sequence())
    return item.number()


def _time(item: Item, zero: datetime) -> datetime:
    try:
        return tables.time_of(item.text(), zero)
    except ValueError as error:
        raise item.refuse("a time is needed", got=repr(item.text()),
                          do="write seconds, or 2026-01-01T00:00:30") from error  # fmt: skip
