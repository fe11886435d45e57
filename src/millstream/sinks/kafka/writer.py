"""Writes to Kafka, one transaction per batch: all topics of a cluster, late and dead rows included.

The intent's id is stored as the metadata of a group offset on the topic `millstream.ledger`, in
the same transaction as the rows. After a crash the ledger tells whether the batch was committed.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from millstream.errors import DataGone, Fenced, MillstreamError, Refused, Unavailable
from millstream.kafka.librdkafka import LOG, TEMPORARY_ERRORS, Link
from millstream.kafka.ping import system_of
from millstream.kafka.protocol.transactions import GroupOffset
from millstream.outages import waiting_for
from millstream.sinks.kafka.messages import messages
from millstream.sinks.kafka.oversized import TopicLimit
from millstream.sinks.kafka.record_limits import LARGE_RECORDS, TopicLimits
from millstream.sinks.ownership import claimed_by, fenced, missing_entry
from millstream.sinks.retries import CONTINUES
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from millstream.kafka.settings import Cluster
    from millstream.sinks.kafka.sender import Sender
    from millstream.sinks.spec import Check, Opening, Sink, Staged

LEDGER = "millstream.ledger"
NO_INTENT = "-"
_END = "."
_REFRESH_SECONDS = 86_400.0
_RESPONSE_SECONDS = 10.0
_PAUSE = 0.2
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"


class TopicWriter:
    """One cluster, opened for one run of one job."""

    def __init__(self, cluster: Cluster, opening: Opening) -> None:
        self._cluster, self._opening = cluster, opening
        self._pipeline, self._job = opening.pipeline, opening.job
        self._group = f"millstream.ledger.{opening.pipeline}"
        self._where = f"the pipeline {opening.pipeline!r} at {cluster.address}"
        self._topics: set[str] = set()
        self._limits = TopicLimits(cluster)
        self._sender: Sender | None = None
        self._readers: dict[str, Any] = {}
        self._entry_written, self._batch = -math.inf, 0
        self._checked = False
        self._last: str | None = None
        self._reason, self._waited = "", False

    def recover(self, expected: str | None) -> str | None:
        """Fence earlier runs of this job, then return the intent in the ledger.

        A new job claims the pipeline's name in the ledger at once, so that another job with that
        name is refused before it has written a row. A run that no longer owns the job fences
        no one.
        """
        self._opening.check_owned()
        self._refuse_credentials()
        self._create_topics({LEDGER})
        owner = self._last_owner()
        if owner not in (None, self._job):
            self._take_over_from(str(owner))
        self._connect()
        owner, intent = self._ledger_entry()
        if expected is not None and (owner != self._job or intent is None):
            raise self._missing_entry(owner)
        if owner != self._job:
            self._claim()
        else:
            self._last = intent
        return self._last

    def _refuse_credentials(self) -> None:
        """librdkafka tries wrong credentials for ever: find out first.

        Raises:
            Refused: the cluster does not accept them.
        """
        if self._cluster.settings:
            try:
                Link(self._cluster).ping()
            except Refused:
                raise
            except MillstreamError:
                return  # what comes next waits for it

    def _last_owner(self) -> str | None:
        """The owner in the last ledger entry, without waiting for open transactions.

        Fencing the run that left a transaction open, which comes next, is what ends it.
        """
        owner, _ = self._ledger_entry(_UNCOMMITTED)
        self._readers.pop(_UNCOMMITTED).close()
        return owner

    def _claim(self) -> None:
        """Write the job to the ledger before the first batch."""
        self._retry(NO_INTENT, 0, ())
        self._last = None

    def _missing_entry(self, owner: str | None) -> DataGone:
        where = f"the topic {LEDGER} for {self._pipeline!r}"
        if owner in (None, self._job):
            return missing_entry(where, None, restore="the cluster was recreated or the consumer "
                                 "group deleted: restore it")  # fmt: skip
        return missing_entry(where, str(owner)[:8], restore="let that job continue")

    def _take_over_from(self, owner: str) -> None:
        if not self._opening.take_over:
            raise claimed_by(owner, self._pipeline, self._where, other="rename this pipeline")
        zombie = self._open_sender(owner)
        self._call(zombie.open)
        zombie.close()

    def _connect(self) -> None:
        """Replace the sender; opening the new one aborts the transaction of the old one."""
        if self._sender is not None:
            self._sender.close()
        self._sender = self._open_sender(self._job)
        self._call(self._sender.open)

    def _open_sender(self, job: str) -> Sender:
        return open_sender(self._cluster, f"millstream.{self._pipeline}.{job}")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a batch and its ledger entry in one transaction; retry until it is committed."""
        self._create_topics_of(outputs)
        if not self._checked and self._ledger_entry()[0] != self._job:
            raise self._fenced()
        self._checked = True
        if self._call(self._current_sender().disconnected) and self._reconnect() != (
            self._job, self._last
        ):  # fmt: skip
            raise self._fenced()
        self._retry(intent, batch, outputs)

    def _create_topics_of(self, outputs: Sequence[Staged]) -> None:
        large = {staged.sink.name for staged in outputs if staged.kind != "result"}
        self._create_topics({staged.sink.name for staged in outputs}, large)

    def _retry(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        deadline = time.monotonic() + self._opening.patience
        while not self._attempt(intent, batch, outputs):
            if time.monotonic() > deadline:
                raise self._no_success(f"batch {batch}")
            time.sleep(_PAUSE)

    def _no_success(self, what: str) -> Unavailable:
        return Unavailable(
            f"{what} needs Kafka at {self._cluster.address}",
            got=f"no success in {self._opening.patience:.0f} s: {self._reason}",
            do=f"check the brokers; {CONTINUES}",
        )

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        """Try once; True if the batch is committed, False if it is certainly not."""
        from confluent_kafka import KafkaException

        try:
            sender = self._current_sender()
            sender.begin()
            self._send(sender, outputs)
            self._send_ledger_entry(sender, intent, batch)
            if outputs:
                self._opening.on_step("before a sink's commit")
            sender.commit()
        except KafkaException as raised:
            if not self._is_committed(raised, intent, outputs):
                return False
        if outputs:
            self._opening.on_step("after a sink's commit")
        self._last = intent
        self._answered()
        return True

    def _wait_for(self, reason: str) -> None:
        self._waited = True
        self._opening.on_wait(waiting_for(system_of(self._cluster), reason, retry_in=_PAUSE))

    def _answered(self) -> None:
        if self._waited:
            self._waited = False
            self._opening.on_answer(system_of(self._cluster))

    def _is_committed(self, raised: Any, intent: str, outputs: Sequence[Staged]) -> bool:
        """Whether a transaction that ended with an error was committed, according to the ledger.

        Raises:
            Fenced: another run has taken over. Reading the ledger fences other runs first, so a
                run that no longer owns the job must not read it.
        """
        from confluent_kafka import KafkaError

        error = raised.args[0]
        self._reason = error.str()
        if error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
                            KafkaError.PRODUCER_FENCED):  # fmt: skip
            raise self._fenced() from raised
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(outputs) from raised
        self._wait_for(self._reason)
        owner, found = self._reconnect()
        if intent == NO_INTENT:
            return owner == self._job
        if owner != self._job or found not in (self._last, intent):
            raise self._fenced() from raised
        return found == intent

    def _reconnect(self) -> tuple[str | None, str | None]:
        """Replace the sender, then return the ledger entry."""
        self._opening.check_owned()
        self._connect()
        return self._ledger_entry()

    def _send_ledger_entry(self, sender: Sender, intent: str, batch: int) -> None:
        text = f"{self._job} {intent} {_END}"
        sender.commit_offset(GroupOffset(self._group, LEDGER, batch, text))
        self._entry_written, self._batch = time.monotonic(), batch

    def refresh(self) -> None:
        """Rewrite the ledger entry once a day: brokers expire the offsets of inactive groups."""
        if time.monotonic() - self._entry_written > _REFRESH_SECONDS:
            last = self._last
            self.write(last or NO_INTENT, self._batch, ())
            self._last = last

    def _ledger_entry(self, isolation: str = _COMMITTED) -> tuple[str | None, str | None]:
        """The owner and the intent of the last ledger entry."""
        offset = self._call(lambda: self._read_ledger(isolation))
        text = _metadata(offset)
        if offset.offset < 0 or not text:
            return None, None
        self._batch = offset.offset
        owner, intent = text.split(" ")[:2]
        return owner, None if intent == NO_INTENT else intent

    def _read_ledger(self, isolation: str) -> Any:
        """The ledger's offset. A reader that fails is dropped: it may never find its coordinator
        again once that was unavailable."""
        from confluent_kafka import TopicPartition

        reader = self._readers.pop(isolation, None) or self._open_reader(isolation)
        (offset,) = reader.committed([TopicPartition(LEDGER, 0)], timeout=_RESPONSE_SECONDS)
        self._readers[isolation] = reader
        return offset

    def _open_reader(self, isolation: str) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            self._cluster.client(
                **{"group.id": self._group, "enable.auto.commit": "false",
                   "isolation.level": isolation}
            ),
            logger=LOG,
        )  # fmt: skip

    def _current_sender(self) -> Sender:
        assert self._sender is not None
        return self._sender

    def _send(self, sender: Sender, outputs: Sequence[Staged]) -> None:
        for staged in outputs:
            limit = self._limits.of(staged.sink.name)
            for chunk in messages(staged):
                sender.send(staged.sink.name, chunk, limit)

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """As `RejectsRows.check`: records over the topic's limit."""
        assert isinstance(sink, Topic)
        limit = self._limits.of(sink.name)
        return None if limit is None else TopicLimit(sink, keys, limit)

    def _create_topics(self, names: set[str], large: Collection[str] = ()) -> None:
        """Create missing topics. `large` are the topics of late and dead rows: they store rows in
        an envelope, and rows that are too large for other topics."""
        missing = names - self._topics
        if not missing:
            return
        admin = self._limits.admin()
        known = set(self._call(lambda: admin.list_topics(timeout=30)).topics)
        new = sorted(missing - known)
        refused = self._create(admin, new, large)
        self._create(admin, [name for name in new if name in refused], ())
        self._topics |= missing

    def _create(self, admin: Any, names: Sequence[str], large: Collection[str]) -> set[str]:
        """Create topics; return those for which the cluster refuses the limit of large records."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = [NewTopic(n, 1 if n == LEDGER else -1, -1, config=LARGE_RECORDS if n in large else {})
               for n in names]  # fmt: skip
        refused = set()
        for name, future in (admin.create_topics(new) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if name not in large:
                    raise Unavailable(f"the output needs the topic {name!r}",
                                      got=error.args[0].str()) from error  # fmt: skip
                refused.add(name)
        return refused

    def _call(self, call: Callable[[], Any]) -> Any:
        """Call until it succeeds, with pauses, for as long as the error may be temporary."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + self._opening.patience
        while True:
            try:
                return call()
            except KafkaException as raised:
                error = raised.args[0]
                if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                    raise self._fenced() from raised
                if time.monotonic() > deadline or not (error.retriable() or _is_temporary(error)):
                    raise Unavailable(
                        f"the pipeline {self._pipeline!r} needs Kafka at {self._cluster.address}",
                        got=error.str(),
                        do="start it, or choose another with --kafka",
                    ) from raised
                self._wait_for(error.str())
                time.sleep(_PAUSE)

    def _fenced(self) -> Fenced:
        return fenced(self._job, self._where)

    def _too_large(self, outputs: Sequence[Staged]) -> MillstreamError:
        """Late and dead rows, or a limit that was lowered after the rows were checked."""
        names = {staged.sink.name for staged in outputs} or self._topics
        limits = {name: self._limits.of(name) for name in names}
        shown = ", ".join(f"{name} takes {limit or 0:,}" for name, limit in sorted(limits.items()))
        return MillstreamError(
            f"every row of {self._pipeline!r} needs to fit into one Kafka record",
            got=f"a larger one ({self._reason}; {shown} bytes)",
            do=f"raise the limit with `millstream topics alter TOPIC --set max.message.bytes=…`; "
            f"{CONTINUES}",
        )

    def close(self) -> None:
        """Close all connections; the next run or the broker aborts an open transaction."""
        for reader in self._readers.values():
            reader.close()
        if self._sender is not None:
            self._sender.finish()
        self._sender = None


def open_sender(cluster: Cluster, name: str | None) -> Sender:
    """Return the faster sender if the listener is unsecured, otherwise librdkafka."""
    if cluster.settings:
        from millstream.sinks.kafka.client_sender import ClientSender

        return ClientSender(cluster, name)
    from millstream.sinks.kafka.wire_sender import WireSender

    return WireSender(cluster, name)


def _metadata(offset: Any) -> str:
    """The metadata of an offset.

    librdkafka copies the text without a terminator and appends whatever follows in memory, which
    may not be text. Ledger entries therefore end with a word that is ignored.
    """
    try:
        return offset.metadata or ""
    except UnicodeDecodeError as error:
        return bytes(error.object[: error.start]).decode()


def _is_temporary(error: Any) -> bool:
    """Whether an error comes from a broker that may come back."""
    from confluent_kafka import KafkaError

    of_transactions = (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.CONCURRENT_TRANSACTIONS)
    return error.code() in TEMPORARY_ERRORS or error.code() in of_transactions
