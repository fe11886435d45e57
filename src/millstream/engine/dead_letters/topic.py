"""Dead rows of a pipeline with topics, and which of them were retried or dropped.

    <pipeline>.dead         the records that failed, with reason and origin
    <pipeline>.dead.done    marks: which of them were retried, which were dropped

A dead row is identified by its origin: topic (and the topic's id), partition and offset. A mark
is written in one transaction with the records it covers, so repeating a killed command sends
nothing twice. Nothing is ever deleted from the log.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.dead_letters.rows import (
    DIGITS,
    ROWS_PER_TRANSACTION,
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


class TopicDeadLetters(DeadLetters):
    """The dead rows of one pipeline on one cluster; `suffix` is that of its outputs.

    They are in `topic` (by default that of the pipeline), or `kept` in files.
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

        A record keeps its value, key, headers and timestamp, and gets headers that mark it as a
        retry. Rows that were retried or dropped before are left out unless `again`.

        Raises:
            InvalidInput: some came from a source that is not among `topics`; nothing was sent.
        """
        found = self.survey(selection, again=again)
        refuse_results(found.results)
        refuse_other_sources(set(found.waiting) - set(topics))
        return self._process(selection, "retried", again=again)

    def drop(self, selection: Selection) -> Survey:
        """Mark the selected rows as dropped; they stay in the log."""
        return self._process(selection, "dropped", again=False)

    # -- reading -----------------------------------------------------------------

    def _records(self) -> Iterator[Record]:
        return self._log(self.topic) if self._kept is None else self._kept.records()

    def _log(self, topic: str) -> Iterator[Record]:
        """All committed records of a topic; none if it does not exist."""
        try:
            reader = Consumer(topic, kafka=self._cluster, start="start", until_end=True)
        except NotFound:
            return
        with reader:
            yield from reader

    def marks(self) -> Marks:
        """The rows that were retried or dropped so far."""
        marks = Marks()
        for record in self._log(self.marks_topic):
            body = _mark(record.value)
            if body is not None and self._is_of(body):
                for first, end in body["offsets"]:
                    for offset in range(first, end):
                        marks.add((body["source"], body["partition"], offset), body["what"])
        return marks

    def _is_of(self, body: dict[str, Any]) -> bool:
        """Whether a mark belongs to the topic as it is now: a recreated topic starts at 0."""
        return self._id(body["source"]) in (None, body["id"])

    def _id(self, source: str) -> str | None:
        if source not in self._ids:
            try:
                self._ids[source] = self._topics.describe(source).id
            except (NotFound, InvalidInput):
                self._ids[source] = None
        return self._ids[source]

    # -- retrying and dropping -----------------------------------------------------

    def _process(self, selection: Selection, what: What, *, again: bool) -> Survey:
        """Send or mark rows, some thousands and their marks in each transaction.

        The first transaction is empty: it aborts that of a killed command and fences a command
        that still runs. Only then are the marks read.
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
                f"{self.where} needs one dead retry or drop at a time",
                got=f"a newer one; this one had processed {found.waiting.total()} rows",
                do="wait for it to end, then repeat this command for the remaining rows",
            ) from error
        return found

    def _send(self, producer: Producer, chunk: Sequence[DeadRow], what: What) -> None:
        for row in chunk:
            record = row.record
            if what == "retried":
                at = record.timestamp if record.timestamp.timestamp() > 0 else None
                producer.send(
                    record.topic, record.value, key=record.key, partition=record.partition,
                    timestamp=at, headers=_retry_headers(record),
                )  # fmt: skip
        for (source, partition), ranges in by_partition(chunk).items():
            body = {"format": _FORMAT, "what": what, "source": source, "id": self._id(source),
                    "partition": partition, "offsets": ranges,
                    "at": round(time.time() * 1000)}  # fmt: skip
            producer.send(self.marks_topic, body, key=f"{source}/{partition}")

    def _make_marks_topic(self) -> None:
        """Create the topic of marks, which keeps everything: marks outlive the rows."""
        self._topics.create(
            self.marks_topic,
            replicas=self._topics.describe(self.topic).replicas if self._kept is None else None,
            settings={"retention.ms": -1, "retention.bytes": -1},
            exists_ok=True,
        )


def _mark(value: bytes | None) -> dict[str, Any] | None:
    """A mark; None if another version or another program wrote it."""
    try:
        body = json.loads(value or b"")
        offsets = [(int(first), int(end)) for first, end in body["offsets"]]
        known = (body["format"] == _FORMAT and body["what"] in ("retried", "dropped")
                 and isinstance(body["source"], str) and isinstance(body["partition"], int)
                 and all(0 <= first < end for first, end in offsets)
                 and sum(b - a for a, b in offsets) <= ROWS_PER_TRANSACTION)  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {**body, "offsets": offsets} if known and "id" in body else None


def _retry_headers(record: Record) -> Headers:
    """The record's headers, and how often it was retried and where it was first."""
    known = dict(record.headers)
    times = (known.get(RETRY) or b"").decode("ascii", "replace")
    again = DIGITS.fullmatch(times) is not None
    origin = known.get(ORIGIN) if again else None
    first = f"{record.topic}/{record.partition}@{record.offset}".encode()
    return [
        *((name, value) for name, value in record.headers if name not in (RETRY, ORIGIN)),
        (RETRY, str(int(times) + 1 if again else 1).encode()),
        (ORIGIN, origin or first),
    ]


def refuse_results(outputs: set[str]) -> None:
    """Refuse to retry results that a sink rejected: they are not records of a source."""
    if outputs:
        names = ", ".join(map(repr, sorted(outputs)))
        raise InvalidInput(
            "dead retry needs records of the pipeline's sources",
            got=f"results that the output {names} rejected",
            do="change the pipeline or the sink, rewind to compute them again, and `dead drop` "
            "these; --step NAME selects other rows",
        )


def refuse_other_sources(others: set[str]) -> None:
    """Refuse to retry rows that did not come from a topic."""
    if others:
        raise InvalidInput(
            "dead retry needs rows that came from topics",
            got=f"some from {', '.join(sorted(others))}, which is not a topic of the pipeline",
            do="write the corrected rows to a new file of that source and `dead drop` the old "
            "ones; --source NAME selects other rows",
        )
