"""Topics followed live: one consumer for all readers of a topic, and a short queue for each.

Four times a second each reader is given what has come. A topic that is faster than a page can
show is shown in part, with the number of what was left out; a reader that does not take what it
is given is told so and dropped, and costs the others nothing.
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

from millstream.console.api.paging import lost_of
from millstream.errors import MillstreamError, NotFound, Unavailable
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.consuming.damaged import readable
from millstream.viewing.fields import RecordRow
from millstream.viewing.positions import text_of
from millstream.viewing.record_json import Form, shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millstream.kafka.clients.consuming.damaged import Lost
    from millstream.kafka.records import Record
    from millstream.kafka.settings import Cluster
    from millstream.viewing.binary_values import Wire
    from millstream.viewing.selection import Selection

LOG = logging.getLogger(__name__)
TICK = 0.25
QUEUE = 20
SHOWN = 50
TOPICS = 16
_BUSY = 0.8 * TICK  # seconds of a tick that filters may take
BEHIND = 50_000
_JUDGING = 0.1  # seconds for seeing which values are JSON
_LOST_TOLD = 20  # damaged batches of one tick
_LOOK_BEHIND = 2.0
_LINGER = 5.0
_CHECK = 5.0
_KEEP_ALIVE = 15.0
_END = b""
_SLOW = "you were too slow for this topic; follow it again, with a filter if it is a fast one"


@dataclass
class Reader:
    """Somebody who follows a topic: which records, and what has gathered since the last tick."""

    selection: Selection
    partitions: frozenset[int] = frozenset()
    form: Form = "auto"
    queue: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(QUEUE))
    records: list[Record] = field(default_factory=list)
    scanned: int = 0
    left_out: int = 0
    skipped: int = 0
    lost: list[Lost] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    spent: float = 0.0
    share: float = math.inf
    lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, row: RecordRow) -> None:
        """Take a record, if it is one of those that are followed.

        Where this reader's filter has had its `share` since the last tick, the record is skipped.
        """
        if self.partitions and row.record.partition not in self.partitions:
            return
        if self.spent > self.share:
            self.skip(1)
            return
        began = time.monotonic()
        wanted = self.selection.takes_row(row)
        with self.lock:
            self.spent += time.monotonic() - began
            self.scanned += 1
            if wanted and len(self.records) < SHOWN:
                self.records.append(row.record)
            elif wanted:
                self.left_out += 1

    def skip(self, count: int) -> None:
        """Say with the next tick that so many records were not looked at."""
        with self.lock:
            self.skipped += count

    def miss(self, lost: Lost) -> None:
        """Say with the next tick what cannot be read."""
        with self.lock:
            self.lost = [*self.lost, lost][-_LOST_TOLD:]

    def taken(self) -> dict[str, Any] | None:
        """What has gathered; None where it is nothing."""
        with self.lock:
            if not (self.scanned or self.skipped or self.lost):
                return None
            told = {"records": self.records, "scanned": self.scanned, "left_out": self.left_out,
                    "skipped": self.skipped, "lost": lost_of(self.lost)}  # fmt: skip
            self.records, self.scanned, self.left_out, self.skipped = [], 0, 0, 0
            self.lost = []
            self.spent = 0.0
            return told

    def give(self, event: bytes) -> bool:
        """Queue an event; False where the reader has been dropped for being slow."""
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(b"event: dropped\n" + _data(_SLOW))
            self.queue.put_nowait(_END)
            return False
        self.queue.put_nowait(event)
        self.heard = time.monotonic()
        return True


class Followed:
    """One topic that is followed, from its end on, by a thread of its own."""

    def __init__(self, cluster: Cluster, topic: str, wire: Wire | None = None) -> None:
        self._cluster, self._wire = cluster, wire
        self._consumer = Consumer(topic, kafka=cluster, start="end")
        self._lock = threading.Lock()
        self._readers: tuple[Reader, ...] = ()
        self._trouble: str | None = None
        self._over = False
        self._left = self._checked = time.monotonic()
        threading.Thread(target=self._read, name=f"follow {topic}", daemon=True).start()

    @property
    def readers(self) -> int:
        """How many follow it now."""
        return len(self._readers)

    @property
    def over(self) -> bool:
        """Whether it has ended, or has had no reader for a while."""
        alone = not self._readers and time.monotonic() - self._left > _LINGER
        return self._over or alone

    def expect(self) -> None:
        """Somebody is about to join."""
        self._left = time.monotonic()

    def join(self, reader: Reader) -> None:
        """One more reader; it is told at once where following begins."""
        with self._lock:
            self._readers = (*self._readers, reader)
        reader.give(_data({"records": [], "scanned": 0, "left_out": 0, "skipped": 0,
                           "lost": [], "later": self._places()}))  # fmt: skip
        if self._over:
            self._tell_the_end(reader)

    def leave(self, reader: Reader) -> None:
        """One reader less."""
        with self._lock:
            self._readers = tuple(one for one in self._readers if one is not reader)
        self._left = time.monotonic()

    def stop(self) -> None:
        """End the thread; it lets go of its connections."""
        self._consumer.stop()

    def tick(self, events: list[tuple[Reader, bytes]]) -> None:
        """Give readers what was made for them; drop the slow ones."""
        for reader, event in events:
            if not reader.give(event):
                self.leave(reader)

    def events(self) -> list[tuple[Reader, bytes]]:
        """What each reader is to be given now; a record is written out once for all of them."""
        self._check()
        told = [(reader, reader.taken()) for reader in self._readers]
        written: dict[tuple[int, int, Form], bytes] = {}
        places, now, made = self._places(), time.monotonic(), []
        for reader, taken in told:
            if taken is not None:
                made.append((reader, self._event(taken, reader.form, places, written)))
            elif now - reader.heard > _KEEP_ALIVE:
                made.append((reader, b": still here\n\n"))
        return made

    def end(self) -> None:
        """Tell those who are still here why there is no more."""
        for reader in self._readers:
            self._tell_the_end(reader)

    def _tell_the_end(self, reader: Reader) -> None:
        reader.give(b"event: gone\n" + _data(self._trouble or "the console is ending"))
        reader.give(_END)

    def _event(
        self,
        taken: dict[str, Any],
        form: Form,
        places: str,
        written: dict[tuple[int, int, Form], bytes],
    ) -> bytes:
        records, until = [], time.monotonic() + _JUDGING
        for record in taken.pop("records"):
            key = (record.partition, record.offset, form)
            if key not in written:
                written[key] = _json(shown(record, form, wire=self._wire, until=until))
            records.append(written[key])
        rest = _json({**taken, "later": places})
        return b'data: {"records":[' + b",".join(records) + b"]," + rest[1:] + b"\n\n"

    def _check(self) -> None:
        """A consumer that waits at its end is told nothing of a topic that is deleted."""
        if time.monotonic() - self._checked < _CHECK or self._over:
            return
        self._checked = time.monotonic()
        try:
            self._consumer.lag()
        except NotFound:
            self._trouble = f"the topic {self._consumer.topics[0]} is no longer there"
            self.stop()
        except MillstreamError:
            LOG.info("Kafka is away; the consumer says so when it lasts")

    def _places(self) -> str:
        at = self._consumer.position()
        return text_of({partition: offset for (_, partition), offset in at.items()})

    def _read(self) -> None:
        try:
            looked = time.monotonic()
            for record in readable(self._consumer, self._cluster, self._tell_lost):
                self._offer(RecordRow(record, self._wire))
                if time.monotonic() - looked > _LOOK_BEHIND:
                    looked = time.monotonic()
                    self._catch_up()
        except MillstreamError as error:
            self._trouble = str(error)
        except Exception:
            LOG.exception("following %s failed", self._consumer.topics)
            self._trouble = "following met something it did not foresee; see console.out"
        finally:
            self._over = True
            self._consumer.close()

    def _tell_lost(self, lost: Lost) -> None:
        """Send the readers of that partition what cannot be read."""
        for reader in self._readers:
            if not reader.partitions or lost.partition in reader.partitions:
                reader.miss(lost)

    def _offer(self, row: RecordRow) -> None:
        """Readers share the time there is: a slow filter is its reader's own loss."""
        readers = self._readers
        share = math.inf if len(readers) < 2 else _BUSY / len(readers)
        for reader in readers:
            reader.share = share
            reader.offer(row)

    def _catch_up(self) -> None:
        """A follower shows what comes now: far behind, it goes on at the end and says so."""
        with suppress(Unavailable):
            behind = sum(self._consumer.lag().values())
            if behind > BEHIND:
                self._consumer.seek_to("end")
                for reader in self._readers:
                    reader.skip(behind)


class Following:
    """All topics that are followed now."""

    def __init__(self, tick: float = TICK) -> None:
        self._tick = tick
        self._topics: dict[tuple[Cluster, str], Followed] = {}
        self._tasks: dict[tuple[Cluster, str], asyncio.Task[None]] = {}

    @property
    def readers(self) -> int:
        """How many follow something now."""
        return sum(followed.readers for followed in self._topics.values())

    async def open(self, cluster: Cluster, topic: str, wire: Wire | None = None) -> Followed:
        """The topic as it is followed by all its readers; `wire` is its format, if known.

        Raises:
            NotFound: there is no such topic.
            Unavailable: Kafka is away, or too many topics are followed already.
        """
        key = (cluster, topic)
        known = self._topics.get(key)
        if known is not None and not known.over:
            known.expect()
            return known
        if len(self._topics) >= TOPICS:
            raise Unavailable("the page needs fewer topics to follow", got=str(len(self._topics)),
                              do="stop following one of them")  # fmt: skip
        followed = await run_in_threadpool(Followed, cluster, topic, wire)
        raced = self._topics.get(key)
        if raced is not None and not raced.over:
            followed.stop()
            return raced
        self._topics[key] = followed
        self._tasks[key] = asyncio.create_task(self._beat(key, followed))
        return followed

    async def watch(self, followed: Followed, reader: Reader) -> AsyncGenerator[bytes]:
        """Server-sent events for one reader, until it leaves, is dropped, or the topic ends."""
        followed.join(reader)
        try:
            while (event := await reader.queue.get()) != _END:
                yield event
        finally:
            followed.leave(reader)

    async def _beat(self, key: tuple[Cluster, str], followed: Followed) -> None:
        try:
            over = False
            while not over:
                await asyncio.sleep(self._tick)
                over = followed.over
                followed.tick(await run_in_threadpool(followed.events))
        finally:
            followed.stop()
            followed.end()
            if self._topics.get(key) is followed:
                del self._topics[key], self._tasks[key]


def _data(told: Any) -> bytes:
    return b"data: " + _json(told) + b"\n\n"


def _json(told: Any) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()
