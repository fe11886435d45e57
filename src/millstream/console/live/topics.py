"""Live tailing of topics: one consumer for all readers of a topic, and a short queue for each.

Each reader gets its new records four times a second. When a topic is faster than a page can show,
some records are left out and counted. A reader that falls behind is disconnected with a message;
the others are unaffected.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from millstream.console.api.paging import lost_to_json
from millstream.errors import MillstreamError, NotFound, Unavailable
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.consuming.damaged import skip_damaged
from millstream.viewing.cursors import format_cursor
from millstream.viewing.fields import RecordRow
from millstream.viewing.record_json import Form, record_to_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millstream.kafka.clients.consuming.damaged import LostOffsets
    from millstream.kafka.records import Record
    from millstream.kafka.settings import Cluster
    from millstream.viewing.binary_values import ValueDecoder
    from millstream.viewing.selection import Selection

LOG = logging.getLogger(__name__)
TICK = 0.25
QUEUE = 20
SHOWN = 50
TOPICS = 16
_FILTERING = 0.8 * TICK  # seconds of a tick that filters may take
MOST_LAG = 50_000
_DETECTING = 0.1  # seconds for detecting which values are JSON
_MOST_LOST = 20  # damaged batches of one tick
_CHECK_LAG = 2.0
_LINGER = 5.0
_CHECK = 5.0
_KEEP_ALIVE = 15.0
_END = b""
_SLOW = "this client is too slow for the topic; follow it again, with a filter if it is busy"


@dataclass
class Reader:
    """One client that follows a topic: its filter, and its records since the last tick."""

    selection: Selection
    partitions: frozenset[int] = frozenset()
    form: Form = "auto"
    queue: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(QUEUE))
    records: list[Record] = field(default_factory=list)
    scanned: int = 0
    left_out: int = 0
    skipped: int = 0
    lost: list[LostOffsets] = field(default_factory=list)
    last_event: float = field(default_factory=time.monotonic)
    spent: float = 0.0
    share: float = math.inf
    lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, row: RecordRow) -> None:
        """Keep a record that matches; skip it where the filter has used its `share` of the tick."""
        if self.partitions and row.record.partition not in self.partitions:
            return
        if self.spent > self.share:
            self.skip(1)
            return
        began = time.monotonic()
        wanted = self.selection.matches_row(row)
        with self.lock:
            self.spent += time.monotonic() - began
            self.scanned += 1
            if wanted and len(self.records) < SHOWN:
                self.records.append(row.record)
            elif wanted:
                self.left_out += 1

    def skip(self, count: int) -> None:
        """Count records that were not looked at."""
        with self.lock:
            self.skipped += count

    def add_lost(self, lost: LostOffsets) -> None:
        """Report a batch that cannot be read."""
        with self.lock:
            self.lost = [*self.lost, lost][-_MOST_LOST:]

    def take(self) -> dict[str, Any] | None:
        """Everything since the last call; None if there is nothing."""
        with self.lock:
            if not (self.scanned or self.skipped or self.lost):
                return None
            update = {"records": self.records, "scanned": self.scanned, "left_out": self.left_out,
                      "skipped": self.skipped, "lost": lost_to_json(self.lost)}  # fmt: skip
            self.records, self.scanned, self.left_out, self.skipped = [], 0, 0, 0
            self.lost = []
            self.spent = 0.0
            return update

    def send(self, event: bytes) -> bool:
        """Queue an event; False where the reader was too slow and is disconnected."""
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(b"event: dropped\n" + _data(_SLOW))
            self.queue.put_nowait(_END)
            return False
        self.queue.put_nowait(event)
        self.last_event = time.monotonic()
        return True


class LiveTopic:
    """One topic that is followed from its end on, in a separate thread."""

    def __init__(self, cluster: Cluster, topic: str, decoder: ValueDecoder | None = None) -> None:
        self._cluster, self._decoder = cluster, decoder
        self._consumer = Consumer(topic, kafka=cluster, start="end")
        self._lock = threading.Lock()
        self._readers: tuple[Reader, ...] = ()
        self._error: str | None = None
        self._over = False
        self._last_left = self._checked = time.monotonic()
        threading.Thread(target=self._read, name=f"follow {topic}", daemon=True).start()

    @property
    def readers(self) -> int:
        """How many clients follow it."""
        return len(self._readers)

    @property
    def over(self) -> bool:
        """Whether it has ended, or has had no reader for some seconds."""
        alone = not self._readers and time.monotonic() - self._last_left > _LINGER
        return self._over or alone

    def keep_open(self) -> None:
        """Do not end yet: a reader is about to join."""
        self._last_left = time.monotonic()

    def join(self, reader: Reader) -> None:
        """Add a reader, and send it the offsets it starts from."""
        with self._lock:
            self._readers = (*self._readers, reader)
        reader.send(_data({"records": [], "scanned": 0, "left_out": 0, "skipped": 0,
                           "lost": [], "later": self._cursor()}))  # fmt: skip
        if self._over:
            self._send_end(reader)

    def leave(self, reader: Reader) -> None:
        """Remove a reader."""
        with self._lock:
            self._readers = tuple(one for one in self._readers if one is not reader)
        self._last_left = time.monotonic()

    def stop(self) -> None:
        """End the thread, which closes its connections."""
        self._consumer.stop()

    def tick(self, events: list[tuple[Reader, bytes]]) -> None:
        """Send readers their events; remove the slow ones."""
        for reader, event in events:
            if not reader.send(event):
                self.leave(reader)

    def events(self) -> list[tuple[Reader, bytes]]:
        """The next event of each reader; a record is serialized once for all of them."""
        self._check()
        updates = [(reader, reader.take()) for reader in self._readers]
        serialized: dict[tuple[int, int, Form], bytes] = {}
        cursor, now, events = self._cursor(), time.monotonic(), []
        for reader, update in updates:
            if update is not None:
                events.append((reader, self._event(update, reader.form, cursor, serialized)))
            elif now - reader.last_event > _KEEP_ALIVE:
                events.append((reader, b": still here\n\n"))
        return events

    def end(self) -> None:
        """Tell the remaining readers why the stream ends."""
        for reader in self._readers:
            self._send_end(reader)

    def _send_end(self, reader: Reader) -> None:
        reader.send(b"event: gone\n" + _data(self._error or "the console is shutting down"))
        reader.send(_END)

    def _event(
        self,
        update: dict[str, Any],
        form: Form,
        cursor: str,
        serialized: dict[tuple[int, int, Form], bytes],
    ) -> bytes:
        records, until = [], time.monotonic() + _DETECTING
        for record in update.pop("records"):
            key = (record.partition, record.offset, form)
            if key not in serialized:
                serialized[key] = _json(
                    record_to_json(record, form, decoder=self._decoder, until=until)
                )
            records.append(serialized[key])
        rest = _json({**update, "later": cursor})
        return b'data: {"records":[' + b",".join(records) + b"]," + rest[1:] + b"\n\n"

    def _check(self) -> None:
        """End when the topic is deleted: a consumer that waits at its end does not notice."""
        if time.monotonic() - self._checked < _CHECK or self._over:
            return
        self._checked = time.monotonic()
        try:
            self._consumer.lag()
        except NotFound:
            self._error = f"the topic {self._consumer.topics[0]} was deleted"
            self.stop()
        except MillstreamError:
            LOG.info("Kafka is unavailable; the consumer raises an error if this persists")

    def _cursor(self) -> str:
        offsets = self._consumer.position()
        return format_cursor({partition: offset for (_, partition), offset in offsets.items()})

    def _read(self) -> None:
        try:
            checked = time.monotonic()
            for record in skip_damaged(self._consumer, self._cluster, self._add_lost):
                self._offer(RecordRow(record, self._decoder))
                if time.monotonic() - checked > _CHECK_LAG:
                    checked = time.monotonic()
                    self._catch_up()
        except MillstreamError as error:
            self._error = str(error)
        except Exception:
            LOG.exception("following %s failed", self._consumer.topics)
            self._error = "following the topic failed unexpectedly; see console.out"
        finally:
            self._over = True
            self._consumer.close()

    def _add_lost(self, lost: LostOffsets) -> None:
        """Report a damaged batch to the readers of its partition."""
        for reader in self._readers:
            if not reader.partitions or lost.partition in reader.partitions:
                reader.add_lost(lost)

    def _offer(self, row: RecordRow) -> None:
        """Readers share the time of a tick, so a slow filter slows down only its own reader."""
        readers = self._readers
        share = math.inf if len(readers) < 2 else _FILTERING / len(readers)
        for reader in readers:
            reader.share = share
            reader.offer(row)

    def _catch_up(self) -> None:
        """Far behind, continue at the end of the topic, and count what was skipped."""
        with suppress(Unavailable):
            lag = sum(self._consumer.lag().values())
            if lag > MOST_LAG:
                self._consumer.seek_to("end")
                for reader in self._readers:
                    reader.skip(lag)


class LiveTopics:
    """All topics that are being followed."""

    def __init__(self, tick: float = TICK) -> None:
        self._tick = tick
        self._topics: dict[tuple[Cluster, str], LiveTopic] = {}
        self._tasks: dict[tuple[Cluster, str], asyncio.Task[None]] = {}

    @property
    def readers(self) -> int:
        """How many clients follow a topic."""
        return sum(topic.readers for topic in self._topics.values())

    async def open(
        self, cluster: Cluster, topic: str, decoder: ValueDecoder | None = None
    ) -> LiveTopic:
        """The live topic that all its readers share; `decoder` reads its values, if known.

        Raises:
            NotFound: there is no such topic.
            Unavailable: Kafka is unavailable, or too many topics are followed already.
        """
        key = (cluster, topic)
        known = self._topics.get(key)
        if known is not None and not known.over:
            known.keep_open()
            return known
        if len(self._topics) >= TOPICS:
            raise Unavailable(f"at most {TOPICS} topics can be followed at once", got="one more",
                              do="stop following one of them")  # fmt: skip
        live = await run_in_threadpool(LiveTopic, cluster, topic, decoder)
        raced = self._topics.get(key)
        if raced is not None and not raced.over:
            live.stop()
            return raced
        self._topics[key] = live
        self._tasks[key] = asyncio.create_task(self._poll(key, live))
        return live

    async def watch(self, live: LiveTopic, reader: Reader) -> AsyncGenerator[bytes]:
        """Server-sent events for one reader, until it disconnects or the topic ends."""
        live.join(reader)
        try:
            while (event := await reader.queue.get()) != _END:
                yield event
        finally:
            live.leave(reader)

    async def _poll(self, key: tuple[Cluster, str], live: LiveTopic) -> None:
        try:
            over = False
            while not over:
                await asyncio.sleep(self._tick)
                over = live.over
                live.tick(await run_in_threadpool(live.events))
        finally:
            live.stop()
            live.end()
            if self._topics.get(key) is live:
                del self._topics[key], self._tasks[key]


def _data(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
