"""Dead rows of a pipeline with topics, and what has been done about them.

    <pipeline>.dead         the records nobody could take, with why and where from
    <pipeline>.dead.done    marks: which of them were sent again, which were dropped

A dead row is known by its origin: topic (and the topic's id), partition and offset. A mark and
the records it tells of are one transaction, so a command that is killed and given again doubles
nothing. Nothing is ever deleted from the log.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.dead_letters.rows import (
    TOGETHER,
    WHOLE,
    DeadLetters,
    Marks,
    Survey,
    by_partition,
)
from millstream.errors import Fenced, InvalidInput, NotFound
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from millstream.engine.dead_letters.kept_rows import KeptRows
    from millstream.engine.dead_letters.rows import DeadRow, Selection, What
    from millstream.kafka.records import Headers, Record
    from millstream.kafka.settings import Cluster

POINTS = ("before a mark's commit", "after a mark's commit")
RETRY, ORIGIN = "millstream.retry", "millstream.origin"
_FORMAT = 1


class DeadRows(DeadLetters):
    """The dead rows of one pipeline on one cluster; `suffix` is that of its outputs.

    They are in `topic` (that of the pipeline unless another is named), or `kept` in files.
    """

    def __init__(
        self, pipeline: str, cluster: Cluster, suffix: str = "", *, topic: str | None = None,
        kept: KeptRows | None = None,
    ) -> None:  # fmt: skip
        self._pipeline, self._cluster, self._kept = pipeline, cluster, kept
        self._topics = Topics(cluster)
        self.topic = (topic or f"{pipeline}.dead") + suffix
        self.where = self.topic if kept is None else kept.where
        self.marks_topic = f"{self.topic}.done"
        self._ids: dict[str, str | None] = {}

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
        refuse_results(found.results)
        refuse_other_sources(set(found.waiting) - set(topics))
        return self._deal(selection, "retried", again=again)

    def drop(self, selection: Selection) -> Survey:
        """Mark the selected rows as dealt with; they stay in the log."""
        return self._deal(selection, "dropped", again=False)

    # -- reading -----------------------------------------------------------------

    def _records(self) -> Iterator[Record]:
        return self._log(self.topic) if self._kept is None else self._kept.records()

    def _log(self, topic: str) -> Iterator[Record]:
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
        for record in self._log(self.marks_topic):
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

    def _deal(self, selection: Selection, what: What, *, again: bool) -> Survey:
        """One transaction for some thousand rows and their marks, then the next.

        The first, empty one ends what a killed command had begun and shuts one out that still
        runs; only then are the marks read.
        """
        found = Survey()
        if self._kept is None and self._id(self.topic) is None:
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
                f"one dead retry or drop at a time works on {self.where}",
                got=f"another, begun since; this one had done {found.waiting.total()} rows",
                do="let that one end; the same command then does what is left",
            ) from error
        return found

    def _send(self, producer: Producer, chunk: Sequence[DeadRow], what: What) -> None:
        for row in chunk:
            record = row.record
            if what == "retried":
                at = record.timestamp if record.timestamp.timestamp() > 0 else None
                producer.send(
                    record.topic, record.value, key=record.key, partition=record.partition,
                    timestamp=at, headers=_marked(record),
                )  # fmt: skip
        for (source, partition), ranges in by_partition(chunk).items():
            body = {"format": _FORMAT, "what": what, "source": source, "id": self._id(source),
                    "partition": partition, "offsets": ranges,
                    "at": round(time.time() * 1000)}  # fmt: skip
            producer.send(self.marks_topic, body, key=f"{source}/{partition}")

    def _make_marks_topic(self) -> None:
        """Marks outlive the rows they tell of: the topic keeps everything."""
        self._topics.create(
            self.marks_topic,
            replicas=self._topics.describe(self.topic).replicas if self._kept is None else None,
            settings={"retention.ms": -1, "retention.bytes": -1},
            exists_ok=True,
        )


def _mark(value: bytes | None) -> dict[str, Any] | None:
    """A mark; None where it is of another version, or of somebody else's making."""
    try:
        body = json.loads(value or b"")
        offsets = [(int(first), int(end)) for first, end in body["offsets"]]
        known = (body["format"] == _FORMAT and body["what"] in ("retried", "dropped")
                 and isinstance(body["source"], str) and isinstance(body["partition"], int)
                 and all(0 <= first < end for first, end in offsets)
                 and sum(end - first for first, end in offsets) <= TOGETHER)  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {**body, "offsets": offsets} if known and "id" in body else None


def _marked(record: Record) -> Headers:
    """The record's own headers; how often it has been sent again, and where it stood first."""
    told = dict(record.headers)
    times = (told.get(RETRY) or b"").decode("ascii", "replace")
    again = WHOLE.fullmatch(times) is not None
    origin = told.get(ORIGIN) if again else None
    first = f"{record.topic}/{record.partition}@{record.offset}".encode()
    return [
        *((name, value) for name, value in record.headers if name not in (RETRY, ORIGIN)),
        (RETRY, str(int(times) + 1 if again else 1).encode()),
        (ORIGIN, origin or first),
    ]


def refuse_results(outputs: set[str]) -> None:
    """Refuse to send results again that a sink could not take: they are no records of a source."""
    if outputs:
        names = ", ".join(map(repr, sorted(outputs)))
        raise InvalidInput(
            "dead retry needs records of the pipeline's sources",
            got=f"results that the output {names} could not take",
            do="change the pipeline or the sink and rewind to make them again, then "
            "`dead drop` them; --step NAME chooses the others",
        )


def refuse_other_sources(others: set[str]) -> None:
    """Refuse to send rows again that no topic gave: there is no log to append them to."""
    if others:
        raise InvalidInput(
            "dead retry needs rows that came from topics",
            got=f"some from {', '.join(sorted(others))}, which is no topic of the pipeline",
            do="write the corrected rows to a new file of that source and `dead drop` the old "
            "ones; --source NAME chooses the others",
        )
