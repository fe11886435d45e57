"""Kafka, one transaction per batch: all topics of a cluster, late and dead rows included.

The intent's id is written beside the rows, as the metadata of a group offset on the
topic `millstream.ledger`, in the same transaction: a batch is there with its mark, or
neither is. After a crash the ledger is asked, never guessed.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from millstream.errors import AlreadyRunning, DataGone, Fenced, MillstreamError, Unavailable
from millstream.kafka.librdkafka import LOG, PASSING
from millstream.kafka.protocol.transactions import GroupOffset
from millstream.sinks.kafka.messages import messages
from millstream.sinks.kafka.oversized import TopicLimit
from millstream.sinks.kafka.record_limits import ROOMY, TopicLimits
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from millstream.kafka.settings import Cluster
    from millstream.sinks.kafka.sender import Sender
    from millstream.sinks.spec import Check, Sink, Staged

LEDGER = "millstream.ledger"
NOTHING = "-"
_END = "."
_REFRESH_SECONDS = 86_400.0
_ANSWER_SECONDS = 10.0
_COMMITTED, _OPEN_TOO = "read_committed", "read_uncommitted"


class TopicWriter:
    """One cluster opened for one run of one job."""

    def __init__(
        self,
        cluster: Cluster,
        pipeline: str,
        job: str,
        *,
        take_over: bool = False,
        told: Callable[[str], None] = lambda point: None,
        owned: Callable[[], None] = lambda: None,
        waiting: Callable[[str], None] = lambda why: None,
        patience: float = 120.0,
    ) -> None:
        self._cluster, self._pipeline, self._job = cluster, pipeline, job
        self._take_over, self._told, self._patience = take_over, told, patience
        self._owned, self._waiting = owned, waiting
        self._group = f"millstream.ledger.{pipeline}"
        self._topics: set[str] = set()
        self._limits = TopicLimits(cluster)
        self._sender: Sender | None = None
        self._readers: dict[str, Any] = {}
        self._marked, self._batch = -math.inf, 0
        self._sure = False
        self._last: str | None = None
        self._why = ""

    def recover(self, expected: str | None) -> str | None:
        """Fence earlier runs of this job, then read what the ledger says was written last.

        A job that comes first puts its name into the ledger at once: a second one with the
        same pipeline's name is refused even before a row has been written. A run that is no
        longer the job's owner fences nobody.
        """
        self._owned()
        self._make_topics({LEDGER})
        owner = self._owner()
        if owner not in (None, self._job):
            self._take_over_from(str(owner))
        self._connect()
        owner, intent = self._mark()
        if expected is not None and (owner != self._job or intent is None):
            raise self._lost(owner)
        if owner != self._job:
            self._claim()
        else:
            self._last = intent
        return self._last

    def _owner(self) -> str | None:
        """Whose the last finished mark is.

        A mark that a dead run left in an open transaction is not waited for: fencing that
        run, which comes next, is what ends it.
        """
        owner, _ = self._mark(_OPEN_TOO)
        self._readers.pop(_OPEN_TOO).close()
        return owner

    def _claim(self) -> None:
        """Make this job the one that writes for the pipeline, before it has written."""
        self._put(NOTHING, 0, ())
        self._last = None

    def _lost(self, owner: str | None) -> DataGone:
        if owner in (None, self._job):
            return DataGone(
                f"the job needs its ledger entry for {self._pipeline!r} on {LEDGER}",
                got="none, though an earlier batch wrote one",
                do="the cluster was made anew or the group deleted: begin anew with another "
                "--checkpoint",
            )
        return DataGone(
            f"the job needs its ledger entry for {self._pipeline!r} on {LEDGER}",
            got=f"that of job {str(owner)[:8]}, which has taken the writing over since",
            do="let that one go on, or begin anew with another --checkpoint",
        )

    def _take_over_from(self, owner: str) -> None:
        if not self._take_over:
            raise AlreadyRunning(
                f"one job at a time writes for the pipeline {self._pipeline!r} at "
                f"{self._cluster.address}",
                got=f"job {owner[:8]}, with another checkpoint",
                do="give this pipeline another name, or say --take-over to end that job's writing",
            )
        zombie = self._made(owner)
        self._ask(zombie.open)
        zombie.close()

    def _connect(self) -> None:
        """Another sender, which ends what the one before it had begun."""
        if self._sender is not None:
            self._sender.close()
        self._sender = self._made(self._job)
        self._ask(self._sender.open)

    def _made(self, job: str) -> Sender:
        return open_sender(self._cluster, f"millstream.{self._pipeline}.{job}")

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """All rows of a batch and its mark, in one transaction; tried again until it is in."""
        self._make_topics_of(outputs)
        if not self._sure and self._mark()[0] != self._job:
            raise self._fenced()
        self._sure = True
        if self._ask(self._opened_sender().lost_sight) and self._anew() != (self._job, self._last):
            raise self._fenced()
        self._put(intent, batch, outputs)

    def _make_topics_of(self, outputs: Sequence[Staged]) -> None:
        roomy = {staged.sink.name for staged in outputs if staged.kind != "result"}
        self._make_topics({staged.sink.name for staged in outputs}, roomy)

    def _put(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        deadline = time.monotonic() + self._patience
        while not self._attempt(intent, batch, outputs):
            if time.monotonic() > deadline:
                raise self._no_success(f"batch {batch}")
            time.sleep(0.2)

    def _no_success(self, what: str) -> Unavailable:
        return Unavailable(
            f"{what} needs Kafka at {self._cluster.address} to take all of it",
            got=f"no success in {self._patience:.0f} s: {self._why}",
            do="look at the broker; the job goes on from here when it is started again",
        )

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        """One try: True when the batch is in, False when it surely is not."""
        from confluent_kafka import KafkaException

        try:
            sending = self._opened_sender()
            sending.begin()
            self._send(sending, outputs)
            self._sign(sending, intent, batch)
            if outputs:
                self._told("before a sink's commit")
            sending.commit()
        except KafkaException as raised:
            if not self._is_in(raised, intent, outputs):
                return False
        if outputs:
            self._told("after a sink's commit")
        self._last = intent
        return True

    def _wait_for(self, why: str) -> None:
        self._waiting(f"waiting for Kafka at {self._cluster.address}: {why}")

    def _is_in(self, raised: Any, intent: str, outputs: Sequence[Staged]) -> bool:
        """Whether a transaction that ended with an error is in after all: the ledger is asked.

        Raises:
            Fenced: another run has taken over; asking begins with shutting others out, so
                a run that is no longer the owner must not even ask.
        """
        from confluent_kafka import KafkaError

        error = raised.args[0]
        self._why = error.str()
        if error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
                            KafkaError.PRODUCER_FENCED):  # fmt: skip
            raise self._fenced() from raised
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(outputs) from raised
        self._wait_for(self._why)
        owner, found = self._anew()
        if intent == NOTHING:
            return owner == self._job
        if owner != self._job or found not in (self._last, intent):
            raise self._fenced() from raised
        return found == intent

    def _anew(self) -> tuple[str | None, str | None]:
        """Another sender, which ends what the old one had begun; then the ledger's mark."""
        self._owned()
        self._connect()
        return self._mark()

    def _sign(self, sending: Sender, intent: str, batch: int) -> None:
        """The mark."""
        sending.sign(GroupOffset(self._group, LEDGER, batch, f"{self._job} {intent} {_END}"))
        self._marked, self._batch = time.monotonic(), batch

    def refresh(self) -> None:
        """Write the last mark again once a day: a broker forgets offsets of silent groups."""
        if time.monotonic() - self._marked > _REFRESH_SECONDS:
            last = self._last
            self.write(last or NOTHING, self._batch, ())
            self._last = last

    def _mark(self, isolation: str = _COMMITTED) -> tuple[str | None, str | None]:
        """Whose the last mark is, and for which intent."""
        place = self._ask(lambda: self._place(isolation))
        text = _text_of(place)
        if place.offset < 0 or not text:
            return None, None
        self._batch = place.offset
        owner, intent = text.split(" ")[:2]
        return owner, None if intent == NOTHING else intent

    def _place(self, isolation: str) -> Any:
        """The ledger's offset. A reader that fails is not asked again: one whose coordinator was
        away may not find it any more."""
        from confluent_kafka import TopicPartition

        reader = self._readers.pop(isolation, None) or self._opened(isolation)
        (place,) = reader.committed([TopicPartition(LEDGER, 0)], timeout=_ANSWER_SECONDS)
        self._readers[isolation] = reader
        return place

    def _opened(self, isolation: str) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            self._cluster.client(
                **{"group.id": self._group, "enable.auto.commit": "false",
                   "isolation.level": isolation}
            ),
            logger=LOG,
        )  # fmt: skip

    def _opened_sender(self) -> Sender:
        assert self._sender is not None
        return self._sender

    def _send(self, sending: Sender, outputs: Sequence[Staged]) -> None:
        for staged in outputs:
            most = self._limits.of(staged.sink.name)
            for some in messages(staged):
                sending.send(staged.sink.name, some, most)

    def check(self, sink: Sink, keys: tuple[str, ...]) -> Check | None:
        """As `RejectsRows.check`: records over the topic's limit."""
        assert isinstance(sink, Topic)
        most = self._limits.of(sink.name)
        return None if most is None else TopicLimit(sink, keys, most)

    def _make_topics(self, names: set[str], roomy: Collection[str] = ()) -> None:
        """Make what is missing; `roomy` are those for late and dead rows, which hold rows in an
        envelope, and rows that other topics do not take."""
        missing = names - self._topics
        if not missing:
            return
        admin = self._limits.admin()
        known = set(self._ask(lambda: admin.list_topics(timeout=30)).topics)
        new = sorted(missing - known)
        refused = self._made_topics(admin, new, roomy)
        self._made_topics(admin, [name for name in new if name in refused], ())
        self._topics |= missing

    def _made_topics(self, admin: Any, names: Sequence[str], roomy: Collection[str]) -> set[str]:
        """Those of the roomy ones that the cluster does not allow so much room."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = [NewTopic(n, 1 if n == LEDGER else -1, -1, config=ROOMY if n in roomy else {})
               for n in names]  # fmt: skip
        refused = set()
        for name, future in (admin.create_topics(new) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if name not in roomy:
                    raise Unavailable(f"the output needs the topic {name!r}",
                                      got=error.args[0].str()) from error  # fmt: skip
                refused.add(name)
        return refused

    def _ask(self, call: Callable[[], Any]) -> Any:
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except KafkaException as raised:
                error = raised.args[0]
                if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED):
                    raise self._fenced() from raised
                if time.monotonic() > deadline or not (error.retriable() or _passing(error)):
                    raise Unavailable(
                        f"the pipeline {self._pipeline!r} needs Kafka at {self._cluster.address}",
                        got=error.str(),
                        do="start it, or name another with --kafka",
                    ) from raised
                self._wait_for(error.str())
                time.sleep(0.2)

    def _fenced(self) -> Fenced:
        return Fenced(
            f"the job {self._job[:8]} needs to be the only one writing for {self._pipeline!r}",
            got="a newer run has fenced this one",
            do="let that one work; this one stops, and nothing it had begun is visible",
        )

    def _too_large(self, outputs: Sequence[Staged]) -> MillstreamError:
        """Late and dead rows, or a limit that was lowered since the rows were checked."""
        names = {one.sink.name for one in outputs} or self._topics
        limits = {name: self._limits.of(name) for name in names}
        told = ", ".join(f"{name} takes {most or 0:,}" for name, most in sorted(limits.items()))
        return MillstreamError(
            f"every row of {self._pipeline!r} needs to fit into one Kafka record",
            got=f"a larger one ({self._why}; {told} bytes)",
            do="raise it with `millstream topics alter TOPIC --set max.message.bytes=…`; the job "
            "goes on from here when it is started again",
        )

    def close(self) -> None:
        """Let go of connections; an open transaction is aborted by the next run or the broker."""
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


def _text_of(place: Any) -> str:
    """The text beside an offset.

    librdkafka copies it without its end, so that what lies behind it in memory, text or not,
    comes along: marks have a last word that is not looked at.
    """
    try:
        return place.metadata or ""
    except UnicodeDecodeError as error:
        return bytes(error.object[: error.start]).decode()


def _passing(error: Any) -> bool:
    """Whether an error tells of a broker that may come back."""
    from confluent_kafka import KafkaError

    of_transactions = (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.CONCURRENT_TRANSACTIONS)
    return error.code() in PASSING or error.code() in of_transactions
