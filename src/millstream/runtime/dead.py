"""Dead rows: what lies in `<pipeline>.dead`, and what has been done about it.

    <pipeline>.dead         the records nobody could take, with why and where from
    <pipeline>.dead.done    marks: which of them were sent again, which were dropped

A dead row is known by its origin: topic (and the topic's id), partition and offset. A mark and
the records it tells of are one transaction, so a command that is killed and given again doubles
nothing. Nothing is ever deleted from the log.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from millstream.errors import Fenced, InvalidInput, NotFound
from millstream.log.consumer import Consumer
from millstream.log.producer import Producer
from millstream.log.topics import Topics
from millstream.runtime.faultpoints import reached
from millstream.sinks.topic_messages import AGAIN, ENVELOPE, RESULT_OF

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from millstream.log.records import Headers, Record
    from millstream.log.settings import Cluster

What = Literal["retried", "dropped"]
State = Literal["waiting", "retried", "dropped"]
Origin = tuple[str, int, int]  # topic, partition, offset
POINTS = ("before a mark's commit", "after a mark's commit")
RETRY, ORIGIN = "millstream.retry", "millstream.origin"
_TOGETHER, _TOGETHER_BYTES = 5_000, 16_000_000
_FORMAT = 1
_WHOLE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class DeadRow:
    """One record that could not be taken, as it was: `record` has its own topic, partition,
    offset and headers; `place` is where it lies in the dead topic."""

    record: Record
    step: str
    reason: str
    place: tuple[int, int]

    @property
    def origin(self) -> Origin:
        """What it is known by."""
        return self.record.topic, self.record.partition, self.record.offset

    @property
    def result_of(self) -> str | None:
        """The output whose sink could not take it, where it is a result and not a record."""
        name, value = self.record.headers[-1] if self.record.headers else ("", b"")
        return (value or b"").decode("utf-8", "replace") if name == RESULT_OF else None

    @property
    def size(self) -> int:
        """Its bytes, nearly."""
        return len(self.record.value or b"") + len(self.record.key or b"")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead rows are meant: all, unless a word says otherwise.

    `reason` is a part of the reason; `places` are offsets in the source, of one partition or
    (None) of any.
    """

    reason: str | None = None
    step: str | None = None
    source: str | None = None
    places: tuple[tuple[int | None, int], ...] = ()

    def takes(self, row: DeadRow) -> bool:
        """Whether a row is meant."""
        source, partition, offset = row.origin
        if self.places and not {(None, offset), (partition, offset)} & set(self.places):
            return False
        if self.source is not None and source != self.source:
            return False
        if self.step is not None and row.step != self.step:
            return False
        return self.reason is None or self.reason.lower() in row.reason.lower()


@dataclass
class Survey:
    """How many of the selected rows wait, per source, and how many have been dealt with;
    `results` names the outputs that could not take some of them."""

    waiting: Counter[str] = field(default_factory=Counter)
    dealt_with: int = 0
    results: set[str] = field(default_factory=set)


class Marks:
    """What has been done, by origin."""

    def __init__(self) -> None:
        self._done: dict[tuple[str, int], dict[int, What]] = {}

    def state(self, origin: Origin) -> State:
        """Whether a row still waits."""
        source, partition, offset = origin
        return self._done.get((source, partition), {}).get(offset, "waiting")

    def add(self, origin: Origin, what: What) -> None:
        """One more that was dealt with."""
        source, partition, offset = origin
        self._done.setdefault((source, partition), {})[offset] = what


class DeadRows:
    """The dead rows of one pipeline on one cluster; `suffix` is that of its outputs."""

    def __init__(self, pipeline: str, cluster: Cluster, suffix: str = "") -> None:
        self._pipeline, self._cluster = pipeline, cluster
        self._topics = Topics(cluster)
        self.topic = f"{pipeline}.dead{suffix}"
        self.marks_topic = f"{self.topic}.done"
        self._ids: dict[str, str | None] = {}
        self.strange = 0

    def rows(self, selection: Selection) -> Iterator[tuple[DeadRow, State]]:
        """The selected rows from the oldest on, each with what became of it."""
        marks = self.marks()
        for row in self._read(selection):
            yield row, marks.state(row.origin)

    def survey(self, selection: Selection, *, again: bool = False) -> Survey:
        """How many rows a command would deal with."""
        found = Survey()
        for row in self._meant(selection, found, again=again):
            found.waiting[row.record.topic] += 1
            if row.result_of is not None:
                found.results.add(row.result_of)
        return found

    def retry(
        self, selection: Selection, topics: Collection[str], *, again: bool = False
    ) -> Survey:
        """Send the selected rows to their topics again, each to the partition it came from.

        A record has its value, key, headers and timestamp, and says that it is a retry. Those
        that were dealt with before are left out unless `again`.

        Raises:
            InvalidInput: some came from a source that is not among `topics`; nothing was sent.
        """
        found = self.survey(selection, again=again)
        _refuse_results(found.results)
        _refuse_files(set(found.waiting) - set(topics))
        return self._deal(selection, "retried", again=again)

    def drop(self, selection: Selection) -> Survey:
        """Mark the selected rows as dealt with; they stay in the log."""
        return self._deal(selection, "dropped", again=False)

    # -- reading -----------------------------------------------------------------

    def _read(self, selection: Selection) -> Iterator[DeadRow]:
        self.strange = 0
        for record in self._records(self.topic):
            row = opened(record)
            if row is None:
                self.strange += 1
            elif selection.takes(row):
                yield row

    def _records(self, topic: str) -> Iterator[Record]:
        """All committed records of a topic; none where it does not exist."""
        try:
            reader = Consumer(topic, kafka=self._cluster, start="start", until_end=True)
        except NotFound:
            return
        with reader:
            yield from reader

    def marks(self) -> Marks:
        """What has been done about rows so far."""
        marks = Marks()
        for record in self._records(self.marks_topic):
            body = _mark(record.value)
            if body is not None and self._is_of(body):
                for first, end in body["offsets"]:
                    for offset in range(first, end):
                        marks.add((body["source"], body["partition"], offset), body["what"])
        return marks

    def _is_of(self, body: dict[str, Any]) -> bool:
        """Whether a mark tells of the topic that is there now: a topic made anew begins at 0."""
        return self._id(body["source"]) in (None, body["id"])

    def _id(self, source: str) -> str | None:
        if source not in self._ids:
            try:
                self._ids[source] = self._topics.describe(source).id
            except (NotFound, InvalidInput):
                self._ids[source] = None
        return self._ids[source]

    # -- dealing with them ---------------------------------------------------------

    def _meant(self, selection: Selection, found: Survey, *, again: bool) -> Iterator[DeadRow]:
        """Each selected record once that is still to be dealt with; the others are counted."""
        marks, taken = self.marks(), Marks()
        for row in self._read(selection):
            if taken.state(row.origin) != "waiting":
                continue
            taken.add(row.origin, "retried")
            if again or marks.state(row.origin) == "waiting":
                yield row
            else:
                found.dealt_with += 1

    def _deal(self, selection: Selection, what: What, *, again: bool) -> Survey:
        """One transaction for some thousand rows and their marks, then the next.

        The first, empty one ends what a killed command had begun and shuts one out that still
        runs; only then are the marks read.
        """
        found = Survey()
        if self._id(self.topic) is None:
            return found
        self._make_marks_topic()
        name = f"millstream.dead.{self._pipeline}"
        try:
            with Producer(self._cluster, transactional_id=name) as producer:
                with producer.transaction():
                    pass
                for chunk in self._chunks(selection, found, again=again):
                    with producer.transaction():
                        self._send(producer, chunk, what)
                        reached(POINTS[0], 0)
                    reached(POINTS[1], 0)
                    found.waiting.update(row.record.topic for row in chunk)
        except Fenced as error:
            raise Fenced(
                f"one dead retry or drop at a time works on {self.topic}",
                got=f"another, begun since; this one had done {found.waiting.total()} rows",
                do="let that one end; the same command then does what is left",
            ) from error
        return found

    def _chunks(
        self, selection: Selection, found: Survey, *, again: bool
    ) -> Iterator[list[DeadRow]]:
        chunk: list[DeadRow] = []
        size = 0
        for row in self._meant(selection, found, again=again):
            chunk.append(row)
            size += row.size
            if len(chunk) >= _TOGETHER or size >= _TOGETHER_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _send(self, producer: Producer, chunk: Sequence[DeadRow], what: What) -> None:
        offsets: dict[tuple[str, int], list[int]] = {}
        for row in chunk:
            record = row.record
            offsets.setdefault((record.topic, record.partition), []).append(record.offset)
            if what == "retried":
                at = record.timestamp if record.timestamp.timestamp() > 0 else None
                producer.send(
                    record.topic, record.value, key=record.key, partition=record.partition,
                    timestamp=at, headers=_marked(record),
                )  # fmt: skip
        for (source, partition), some in offsets.items():
            body = {"format": _FORMAT, "what": what, "source": source, "id": self._id(source),
                    "partition": partition, "offsets": _ranges(some),
                    "at": round(time.time() * 1000)}  # fmt: skip
            producer.send(self.marks_topic, body, key=f"{source}/{partition}")

    def _make_marks_topic(self) -> None:
        """Marks outlive the rows they tell of: the topic keeps everything."""
        self._topics.create(
            self.marks_topic,
            replicas=self._topics.describe(self.topic).replicas,
            settings={"retention.ms": -1, "retention.bytes": -1},
            exists_ok=True,
        )


def opened(record: Record) -> DeadRow | None:
    """A record of the dead topic taken out of its envelope; None if it has none."""
    headers = record.headers
    if headers and headers[-1][0] == AGAIN and _names(headers[-6:-1]) == ENVELOPE:
        headers = headers[:-1]
    if _names(headers[-5:]) != ENVELOPE:
        return None
    told = {
        name.removeprefix("millstream."): (value or b"").decode("utf-8", "backslashreplace")
        for name, value in headers[-5:]
    }
    if not (_WHOLE.fullmatch(told["partition"]) and _WHOLE.fullmatch(told["offset"])):
        return None
    original = replace(record, topic=told["topic"], partition=int(told["partition"]),
                       offset=int(told["offset"]), headers=headers[:-5])  # fmt: skip
    return DeadRow(original, told["step"], told["reason"], (record.partition, record.offset))


def _mark(value: bytes | None) -> dict[str, Any] | None:
    """A mark; None where it is of another version, or of somebody else's making."""
    try:
        body = json.loads(value or b"")
        offsets = [(int(first), int(end)) for first, end in body["offsets"]]
        known = (body["format"] == _FORMAT and body["what"] in ("retried", "dropped")
                 and isinstance(body["source"], str) and isinstance(body["partition"], int)
                 and all(0 <= first < end for first, end in offsets)
                 and sum(end - first for first, end in offsets) <= _TOGETHER)  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {**body, "offsets": offsets} if known and "id" in body else None


def _names(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, ...]:
    return tuple(name.removeprefix("millstream.") for name, _ in headers
                 if name.startswith("millstream."))  # fmt: skip


def _marked(record: Record) -> Headers:
    """The record's own headers; how often it has been sent again, and where it stood first."""
    told = dict(record.headers)
    times = (told.get(RETRY) or b"").decode("ascii", "replace")
    again = _WHOLE.fullmatch(times) is not None
    origin = told.get(ORIGIN) if again else None
    first = f"{record.topic}/{record.partition}@{record.offset}".encode()
    return [
        *((name, value) for name, value in record.headers if name not in (RETRY, ORIGIN)),
        (RETRY, str(int(times) + 1 if again else 1).encode()),
        (ORIGIN, origin or first),
    ]


def _ranges(offsets: list[int]) -> list[list[int]]:
    """Offsets as ranges [first, end).

    >>> _ranges([7, 4, 5])
    [[4, 6], [7, 8]]
    """
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return ranges


def _refuse_results(outputs: set[str]) -> None:
    if outputs:
        names = ", ".join(map(repr, sorted(outputs)))
        raise InvalidInput(
            "dead retry needs records of the pipeline's sources",
            got=f"results that the output {names} could not take",
            do="change the pipeline or the sink and rewind to make them again, then "
            "`dead drop` them; --step NAME chooses the others",
        )


def _refuse_files(others: set[str]) -> None:
    if others:
        raise InvalidInput(
            "dead retry needs rows that came from topics",
            got=f"some from {', '.join(sorted(others))}, which is no topic of the pipeline",
            do="mend what is in the file, put it there again under a new name and "
            "`dead drop` the old rows; --source NAME chooses the others",
        )
