"""Opens librdkafka's clients and converts its errors to Millstream's.

librdkafka's log goes to the logger `millstream.kafka`, which has no handler by default; its last
error is shown as the reason when a call fails.
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
    Refused,
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
"""Seconds after which a cluster that does not answer counts as unavailable."""

LOG = logging.getLogger("millstream.kafka")
LOG.addHandler(logging.NullHandler())

_K = TypeVar("_K")
_T = TypeVar("_T")

_UNAVAILABLE = {
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
_LEADER_CHANGES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
TEMPORARY_ERRORS = frozenset(_UNAVAILABLE | _LEADER_CHANGES)
"""Errors while a broker is down, restarts or takes over: a retry may succeed."""
_STALE_LEADERS = {KafkaError.FENCED_LEADER_EPOCH}  # the client has old leaders: recreate it
_BROKER_SECONDS = 1.0  # for a broker that does not answer, where there are others
_FAILOVER_SECONDS = 30.0  # in which other brokers take over the partitions of a dead one
_CLOSE_SECONDS = 3.0  # for a client that was not closed
_DISCONNECTED = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
NOT_YET_EVERYWHERE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART})
"""A broker's error for a new topic that only other brokers know so far."""
_AUTHENTICATION_FAILED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
_UNAUTHORIZED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_ERROR_CLASSES: dict[int, type[MillstreamError]] = {
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
    """Whether something accepts connections at this address."""
    host, _, port = server.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=0.5).close()
    except OSError:
        return False
    return True


def close_at_exit(owner: object, close: Callable[[], None]) -> weakref.finalize[..., Any]:
    """Close a client that its owner has not closed, at garbage collection or at exit.

    A client that has sent a commit waits for the response when it is destroyed, for minutes if the
    broker is down. Here it may take a few seconds, in a thread that ends with the process.
    """

    def closed() -> None:
        with suppress(TimeoutError, RuntimeError):
            bounded(close, _CLOSE_SECONDS)

    return weakref.finalize(owner, closed)


class ClientErrors:
    """What a client has reported through its error callback.

    It has no reference to the client, which refers to it: a cycle would leave closing the client
    to the garbage collector, in whichever thread that runs.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all but the last error, which the client does not repeat."""
        self.authentication: KafkaError | None = None
        self.all_down = False
        self.any = False

    def on_error(self, error: KafkaError) -> None:
        self.any = True
        if error.code() in _AUTHENTICATION_FAILED:
            self.authentication = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
        else:
            self.last = error


class Link:
    """The clients of one cluster, and their errors."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.errors = ClientErrors()
        self.fatal: KafkaError | None = None
        self._hidden: tuple[str, ...] = ()
        self._admin: AdminClient | None = None
        self._several = "," in cluster.address

    @property
    def admin(self) -> AdminClient:
        """The admin client, opened at first use."""
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
        """Return if the cluster answers within `timeout`; raise at once if it refuses."""
        self.call("this", lambda admin: admin.describe_cluster(request_timeout=timeout))

    def topic_names(self) -> list[str]:
        """The names of all topics, internal ones included."""
        return sorted(self.metadata())

    def metadata(self) -> dict[str, list[int]]:
        """The partitions of every topic."""
        topics = self._cluster_metadata().topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def partitions(self) -> dict[tuple[str, int], PartitionMetadata]:
        """The replicas, in-sync replicas and leader (-1: none) of each partition."""
        return {
            (name, number): part
            for name, topic in self._cluster_metadata().topics.items()
            for number, part in topic.partitions.items()
        }

    def brokers(self) -> int:
        """How many brokers answer now."""
        return len(self._cluster_metadata().brokers)

    def _cluster_metadata(self) -> ClusterMetadata:
        self.ping()
        try:
            return self.admin.list_topics(timeout=ANSWER_TIME)
        except KafkaException as failed:
            raise self.failure(failed, "listing the topics") from None

    def call(self, doing: str, ask: Callable[[AdminClient], Future[_T]]) -> _T:
        """The response to one request; `doing` is the subject of the message if it fails."""
        return self.call_all(doing, lambda admin: {"": ask(admin)})[""]

    def call_all(
        self,
        doing: str,
        ask: Callable[[AdminClient], Mapping[_K, Future[_T]]],
        *,
        retry: frozenset[int] = frozenset(),
        already_done: frozenset[int] = frozenset(),
    ) -> dict[_K, _T]:
        """The responses to one request about several things; the first failure is raised.

        The request is retried while leaders change, and after the errors in `retry`. If a broker
        fails and the address names several, the client is recreated with that address; as long as
        one of them listens, the others have time to take over from the failed one. A request
        that is repeated because its response was lost may already have been carried out: the
        errors in `already_done` mean this, and then the result is empty.
        """
        if self._admin is not None:
            self._admin.poll(0)
            self.errors.reset()
        began, repeated = time.monotonic(), False
        while True:
            try:
                return {name: self._await(future) for name, future in ask(self.admin).items()}
            except KafkaException as failed:
                self.admin.poll(0)
                code = failed.args[0].code()
                if repeated and code in already_done:
                    return {}
                lost = self._several and code in _DISCONNECTED
                if not (lost or code in _LEADER_CHANGES | retry) or self._should_give_up(began):
                    raise self.failure(failed, doing) from None
                repeated = repeated or lost
                if lost or code in _STALE_LEADERS:
                    self._admin = None
                    self.errors.reset()
                time.sleep(0.05)

    def _should_give_up(self, began: float) -> bool:
        waited = time.monotonic() - began
        if waited < ANSWER_TIME:
            return False
        any_listens = any(map(_listens, self.cluster.address.split(",")))
        return not self._several or waited > _FAILOVER_SECONDS or not any_listens

    def _await(self, future: Future[_T]) -> _T:
        deadline = time.monotonic() + _BROKER_SECONDS
        while True:
            try:
                return future.result(timeout=0.1)
            except TimeoutError:
                if future.done():
                    raise
            self.admin.poll(0)
            if self.errors.all_down or self.errors.authentication is not None:
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            if self._several and self.errors.any and time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def failure(self, problem: KafkaException | KafkaError, doing: str) -> MillstreamError:
        """An error of librdkafka or the broker as one of Millstream's."""
        error = problem.args[0] if isinstance(problem, KafkaException) else problem
        if error.fatal():
            self.fatal = error
        if self.errors.authentication is not None and error.code() in _UNAVAILABLE:
            error = self.errors.authentication
        text = self._message(error)
        if error.code() in _UNAVAILABLE:
            if self.errors.last is not None:
                text = self._message(self.errors.last)
            return Unavailable(
                f"{doing} needs Kafka at {self.cluster.address} to answer",
                got=text,
                do="check the address, start a local one with `millstream up`, or try again later",
            )
        if error.code() in _AUTHENTICATION_FAILED:
            return Refused(
                f"{doing} needs Kafka at {self.cluster.address} to accept its credentials",
                got=text,
                do="check security.protocol, sasl.* and ssl.* in the MILLSTREAM_KAFKA_ settings",
            )
        if error.code() == KafkaError.INVALID_CONFIG:
            return topic_settings.refused(text)
        if error.code() in _UNAUTHORIZED:
            return MillstreamError(
                f"{doing} needs permission", got=text, do="ask the cluster's administrator"
            )
        do = _TOO_LARGE if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else None
        return _ERROR_CLASSES.get(error.code(), MillstreamError)(f"{doing} failed", got=text, do=do)

    def _open(self, kind: Callable[..., _T], settings: Mapping[str, str], **callbacks: Any) -> _T:
        config = self.cluster.client(**settings)
        self._hidden = config.hidden
        try:
            return kind({**config, "error_cb": self.errors.on_error, **callbacks}, logger=LOG)
        except KafkaException as refused:
            raise self._invalid_setting(str(refused.args[0].str()), config) from None

    def _message(self, error: KafkaError) -> str:
        text = error.str() or error.name()
        text = re.sub(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ", "", text)
        text = re.sub(r" \(after \d+ms in state \w+[^)]*\)", "", text)
        return scrub(text.rstrip("."), self._hidden)

    def _invalid_setting(self, text: str, config: Mapping[str, str]) -> MillstreamError:
        found = _PROPERTY.search(text)
        if found is None:
            return InvalidSpec(
                "the Kafka client needs consistent settings",
                got=scrub(text, self._hidden),
                do="correct the settings",
            )
        name = found.group(1)
        if text.startswith("No such"):
            return InvalidInput(
                "a Kafka client setting needs a name that librdkafka knows",
                got=repr(name),
                do="correct the name",
            )
        value = masked(name, scrub(str(config.get(name, "")), self._hidden))
        return InvalidInput(
            f"the Kafka client setting {name} needs another value", got=repr(value), do=text
        )
