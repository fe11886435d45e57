"""Between us and librdkafka: clients are opened here, and what it reports becomes a sentence.

librdkafka's own lines go to the logger `millstream.kafka`, silent unless someone listens;
its last complaint is kept as the reason told when a call fails.
"""

from __future__ import annotations

import logging
import re
import socket
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

from millstream.errors import (
    DataGone,
    Fenced,
    InvalidInput,
    InvalidSpec,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.kafka import topic_settings
from millstream.kafka.secrets import masked, scrub
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from millstream.kafka.settings import Cluster

ANSWER_TIME = 4.0
"""Seconds after which a cluster that has not answered is called unavailable."""

LOG = logging.getLogger("millstream.kafka")
LOG.addHandler(logging.NullHandler())

_K = TypeVar("_K")
_T = TypeVar("_T")

_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
_SETTLING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
TEMPORARY_ERRORS = frozenset(_AWAY | _SETTLING)
"""What is said while a broker is away, comes back or takes over: the next try may go well."""
_OUTDATED = {KafkaError.FENCED_LEADER_EPOCH}  # the client knows leaders of before: one anew
_ONE_BROKER = 1.0  # seconds a client may try for one that has gone, where there are others
_TAKING_OVER = 30.0  # seconds in which other brokers take over what one that died led
_LETTING_GO = 3.0  # seconds for a client that was not closed
_LOST = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
NOT_EVERYWHERE_YET = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
"""What a broker says of a new topic that another broker knows already."""
_LOCKED_OUT = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_KINDS: dict[int, type[MillstreamError]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: NotFound,
    KafkaError._UNKNOWN_TOPIC: NotFound,
    KafkaError._UNKNOWN_PARTITION: NotFound,
    KafkaError.GROUP_ID_NOT_FOUND: NotFound,
    KafkaError._FENCED: Fenced,
    KafkaError.INVALID_PRODUCER_EPOCH: Fenced,
    KafkaError.FENCED_INSTANCE_ID: Fenced,
    KafkaError.OFFSET_OUT_OF_RANGE: DataGone,
    KafkaError.INVALID_PARTITIONS: InvalidInput,
    KafkaError.INVALID_REPLICATION_FACTOR: InvalidInput,
    KafkaError.INVALID_REQUEST: InvalidInput,
    KafkaError.INVALID_TIMESTAMP: InvalidInput,
    KafkaError.POLICY_VIOLATION: InvalidInput,
    KafkaError.MSG_SIZE_TOO_LARGE: InvalidInput,
    KafkaError._INVALID_ARG: InvalidInput,
}
_TOO_LARGE = "send less at once, or raise the topic's max.message.bytes"
_PROPERTY = re.compile(r'configuration property:? "([^"]+)"')


def _listens(server: str) -> bool:
    """Whether somebody takes connections there."""
    host, _, port = server.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=0.5).close()
    except OSError:
        return False
    return True


def let_go(owner: object, close: Callable[[], None]) -> weakref.finalize[..., Any]:
    """Close a client when its owner is gone, or the process ends, without having closed it.

    A client that has sent a commit waits for the answer when it is destroyed, for minutes if the
    broker is away; here it is waited for only a moment, in a thread that ends with the process.
    """

    def closed() -> None:
        with suppress(TimeoutError, RuntimeError):
            bounded(close, _LETTING_GO)

    return weakref.finalize(owner, closed)


class Complaints:
    """What a client has complained of: the last words, and whether all hope is lost for now.

    It knows no client: clients hold it by their callbacks, and a cycle with one would leave
    the client's end to the garbage collector, in whatever thread that happens to run.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.hope()

    def hope(self) -> None:
        """Begin anew; the last words stay, for the client does not repeat them."""
        self.locked_out: KafkaError | None = None
        self.all_down = False
        self.heard = False

    def hear(self, error: KafkaError) -> None:
        self.heard = True
        if error.code() in _LOCKED_OUT:
            self.locked_out = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
        else:
            self.last = error


class Link:
    """One cluster as one client sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.complaints = Complaints()
        self.fatal: KafkaError | None = None
        self._hidden: tuple[str, ...] = ()
        self._admin: AdminClient | None = None
        self._several = "," in cluster.address

    @property
    def admin(self) -> AdminClient:
        """The client for questions and changes, opened at the first need."""
        if self._admin is None:
            self._admin = self._open(AdminClient, {})
        return self._admin

    def producer(self, settings: Mapping[str, str], **callbacks: Any) -> Producer:
        return self._open(Producer, settings, **callbacks)

    def consumer(self, settings: Mapping[str, str]) -> Consumer:
        return self._open(Consumer, settings)

    def share_consumer(self, settings: Mapping[str, str]) -> ShareConsumer:
        return self._open(ShareConsumer, settings)

    def ping(self, timeout: float = ANSWER_TIME) -> None:
        """Return if the cluster answers within `timeout`; raise as soon as it refuses."""
        self.call("this", lambda admin: admin.describe_cluster(request_timeout=timeout))

    def topic_names(self) -> list[str]:
        """The names of all topics, internal ones included."""
        return sorted(self.metadata())

    def metadata(self) -> dict[str, list[int]]:
        """The partitions of every topic."""
        topics = self._told().topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def partitions(self) -> dict[tuple[str, int], PartitionMetadata]:
        """Who keeps each partition, who of them is in sync, and who leads it (-1 is nobody)."""
        return {
            (name, number): part
            for name, topic in self._told().topics.items()
            for number, part in topic.partitions.items()
        }

    def brokers(self) -> int:
        """How many brokers answer now."""
        return len(self._told().brokers)

    def _told(self) -> ClusterMetadata:
        self.ping()
        try:
            return self.admin.list_topics(timeout=ANSWER_TIME)
        except KafkaException as failed:
            raise self.failure(failed, "listing the topics") from None

    def call(self, doing: str, ask: Callable[[AdminClient], Future[_T]]) -> _T:
        """The answer to one question; `doing` opens the sentence when there is none."""
        return self.call_all(doing, lambda admin: {"": ask(admin)})[""]

    def call_all(
        self,
        doing: str,
        ask: Callable[[AdminClient], Mapping[_K, Future[_T]]],
        *,
        settling: frozenset[int] = frozenset(),
        done: frozenset[int] = frozenset(),
    ) -> dict[_K, _T]:
        """The answers to one request about several things; the first failure is raised.

        While a cluster changes its mind about leaders it is asked again, and so for the
        errors in `settling`. Where several brokers are named, one that goes away is no reason
        to give up: a client that knew no other begins anew with those that were named, and as
        long as one of them listens, the others get the time to take over what that one led.
        A request that was made again because its answer was lost may find itself done: the
        errors in `done` say so, and then there is no answer.
        """
        if self._admin is not None:
            self._admin.poll(0)
            self.complaints.hope()
        began, again = time.monotonic(), False
        while True:
            try:
                return {name: self._answer(future) for name, future in ask(self.admin).items()}
            except KafkaException as failed:
                self.admin.poll(0)
                code = failed.args[0].code()
                if again and code in done:
                    return {}
                lost = self._several and code in _LOST
                if not (lost or code in _SETTLING | settling) or self._is_over(began):
                    raise self.failure(failed, doing) from None
                again = again or lost
                if lost or code in _OUTDATED:
                    self._admin = None
                    self.complaints.hope()
                time.sleep(0.05)

    def _is_over(self, began: float) -> bool:
        """Whether a question asked since then is to be given up."""
        waited = time.monotonic() - began
        if waited < ANSWER_TIME:
            return False
        someone = any(map(_listens, self.cluster.address.split(",")))
        return not self._several or waited > _TAKING_OVER or not someone

    def _answer(self, future: Future[_T]) -> _T:
        stuck = time.monotonic() + _ONE_BROKER
        while True:
            try:
                return future.result(timeout=0.1)
            except TimeoutError:
                if future.done():
                    raise
            self.admin.poll(0)
            if self.complaints.all_down or self.complaints.locked_out is not None:
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            if self._several and self.complaints.heard and time.monotonic() > stuck:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def failure(self, problem: KafkaException | KafkaError, doing: str) -> MillstreamError:
        """What librdkafka or the broker says, as an error of ours."""
        error = problem.args[0] if isinstance(problem, KafkaException) else problem
        if error.fatal():
            self.fatal = error
        if self.complaints.locked_out is not None and error.code() in _AWAY:
            error = self.complaints.locked_out
        said = self._plain(error)
        if error.code() in _AWAY:
            if self.complaints.last is not None:
                said = self._plain(self.complaints.last)
            return Unavailable(
                f"{doing} needs Kafka at {self.cluster.address} to answer",
                got=said,
                do="check the address, start a local one with `millstream up`, or try again later",
            )
        if error.code() in _LOCKED_OUT:
            return Unavailable(
                f"{doing} needs Kafka at {self.cluster.address} to let us in",
                got=said,
                do="check security.protocol, sasl.* and ssl.* in the MILLSTREAM_KAFKA_ settings",
            )
        if error.code() == KafkaError.INVALID_CONFIG:
            return topic_settings.refused(said)
        if error.code() in _FORBIDDEN:
            return MillstreamError(
                f"{doing} needs the right to do so", got=said, do="ask the cluster's owner"
            )
        do = _TOO_LARGE if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else None
        return _KINDS.get(error.code(), MillstreamError)(f"{doing} failed", got=said, do=do)

    def _open(self, kind: Callable[..., _T], settings: Mapping[str, str], **callbacks: Any) -> _T:
        config = self.cluster.client(**settings)
        self._hidden = config.hidden
        try:
            return kind({**config, "error_cb": self.complaints.hear, **callbacks}, logger=LOG)
        except KafkaException as refused:
            raise self._bad_setting(str(refused.args[0].str()), config) from None

    def _plain(self, error: KafkaError) -> str:
        text = error.str() or error.name()
        text = re.sub(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ", "", text)
        text = re.sub(r" \(after \d+ms in state \w+[^)]*\)", "", text)
        return scrub(text.rstrip("."), self._hidden)

    def _bad_setting(self, said: str, config: Mapping[str, str]) -> MillstreamError:
        found = _PROPERTY.search(said)
        if found is None:
            return InvalidSpec(
                "the Kafka client needs settings that fit together",
                got=scrub(said, self._hidden),
                do="correct the settings",
            )
        name = found.group(1)
        if said.startswith("No such"):
            return InvalidInput(
                "a Kafka client setting needs a name that librdkafka knows",
                got=repr(name),
                do="correct the name",
            )
        value = masked(name, scrub(str(config.get(name, "")), self._hidden))
        return InvalidInput(
            f"the Kafka client setting {name} needs another value", got=repr(value), do=said
        )
