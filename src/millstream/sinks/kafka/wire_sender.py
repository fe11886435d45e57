"""A sender that uses Kafka's protocol over plain sockets and appends a chunk at a time.

It never resends under the same identity: after any failure the sender is opened again, which
gives it a new epoch and aborts its transaction, and then the whole batch is sent again.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from millstream.kafka.partitioning import partitions_of
from millstream.kafka.protocol import transactions
from millstream.kafka.protocol.connection import Address, Connection, parse_address
from millstream.kafka.protocol.messages import ProtocolError
from millstream.kafka.protocol.metadata import (
    GROUP,
    TRANSACTION,
    find_coordinator_request,
    parse_find_coordinator_response,
    partition_leaders,
)
from millstream.kafka.protocol.transactions import Identity
from millstream.sinks.kafka.record_batches import Batch, Numbers, batches
from millstream.sinks.kafka.sender import CALL_SECONDS, TRANSACTION_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.kafka.protocol.messages import Request
    from millstream.kafka.protocol.transactions import GroupOffset
    from millstream.kafka.settings import Cluster
    from millstream.sinks.kafka.messages import Outgoing

_T = TypeVar("_T")

# Purposes of connections; each kind of coordinator also has its own.
_LEADER, _ANY = -1, -2
_APPEND_MS = 8_000  # less than the timeout of a connection
_MAX_IN_FLIGHT = 4  # requests to leaders without a response
_METADATA_SECONDS = 60.0
_STICKY = 1_000  # messages without a key that go to one partition before the next is used
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.1
_NEW_TOPIC_SECONDS = 5.0
_SEQUENCES = 1 << 31
_COMMITTING = "PrepareCommit"
_TEMPORARY = frozenset({
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
})  # fmt: skip
_NEW_LEADER = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
})  # fmt: skip


class WireSender:
    """One producer for a cluster with an unsecured listener."""

    def __init__(self, cluster: Cluster, name: str | None) -> None:
        self._name = name
        self._servers = deque(parse_address(server) for server in cluster.address.split(","))
        self._connections: dict[tuple[int, Address], Connection] = {}
        self._who = Identity(name, -1, -1)
        self._leaders: dict[str, tuple[float, dict[int, Address | None]]] = {}
        self._coordinators: dict[int, Connection] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._in_transaction: set[tuple[str, int]] = set()
        self._in_flight: deque[Connection] = deque()
        self._next = 0

    def open(self) -> None:
        deadline = time.monotonic() + CALL_SECONDS
        with _as_kafka_errors():
            while not self._init_producer():
                if time.monotonic() > deadline:
                    raise _failed(KafkaError.NOT_COORDINATOR)
                time.sleep(_LONGEST_WAIT)

    def _init_producer(self) -> bool:
        """Get a producer id from the coordinator; False if the coordinator has moved."""
        self.close()
        self._sequences, name = {}, self._name
        broker = self._any_broker() if name is None else self._coordinator(TRANSACTION, name)
        moved, self._who = _call_for(
            broker,
            transactions.init_producer_id_request(name, TRANSACTION_MS),
            lambda response: _allow_move(
                *transactions.parse_init_producer_id_response(response, name)
            ),
        )
        return not moved

    def begin(self) -> None:
        """As `Sender.begin`; the broker is notified with the first partition."""
        self._in_transaction = set()

    def send(self, topic: str, chunk: Outgoing, limit: int | None = None) -> None:
        """As `Sender.send`; returns while the last requests are in flight."""
        if not len(chunk.values):
            return
        with _as_kafka_errors():
            leaders = self._topic_leaders(topic)
            to = self._partitions(chunk, leaders)
            if self._name is not None:
                self._add_partitions(topic, np.unique(to).tolist())
            for batch in batches(chunk, to, limit):
                self._append(topic, batch, self._connection(leaders[batch.partition], _LEADER))

    def _append(self, topic: str, batch: Batch, leader: Connection) -> None:
        """Send a batch to its leader. The response to the first batch of a partition is awaited:
        the leader of a new partition may not know its role yet, and it would also reject the
        batches that follow a rejected one."""
        slot, who = (topic, batch.partition), self._who
        first, sequence = slot not in self._sequences, self._sequences.get(slot, 0)
        self._sequences[slot] = (sequence + batch.count) % _SEQUENCES
        records = batch.encode(who, sequence)
        request = transactions.produce_request(who, topic, batch.partition, records, _APPEND_MS)

        while len(self._in_flight) >= (1 if first else _MAX_IN_FLIGHT):
            self._receive()
        if first:
            _call(leader, request, transactions.parse_produce_response, _NEW_LEADER)
        else:
            leader.send(request)
            self._in_flight.append(leader)

    def commit_offset(self, offset: GroupOffset) -> None:
        with _as_kafka_errors():
            coordinator = self._coordinators[TRANSACTION]
            _call(coordinator, transactions.add_offsets_to_txn_request(self._who, offset.group),
                      transactions.parse_add_offsets_to_txn_response)  # fmt: skip
            while self._in_flight:
                self._receive()
            group = self._coordinator(GROUP, offset.group)
            _call(group, transactions.txn_offset_commit_request(self._who, offset),
                      transactions.parse_txn_offset_commit_response)  # fmt: skip

    def commit(self) -> None:
        with _as_kafka_errors():
            while self._in_flight:
                self._receive()
            if self._name is not None:
                coordinator = self._coordinators[TRANSACTION]
                _call(coordinator, transactions.end_txn_request(self._who),
                          transactions.parse_end_txn_response)  # fmt: skip

    def disconnected(self) -> bool:
        """As `Sender.disconnected`; brokers also close idle connections."""
        return any(connection.is_closed_by_broker() for connection in self._connections.values())

    def finish(self) -> None:
        coordinator, deadline = self._coordinators.get(TRANSACTION), time.monotonic() + CALL_SECONDS
        with suppress(OSError):
            while coordinator and self._name and time.monotonic() < deadline:
                error, state = transactions.parse_describe_transactions_response(
                    coordinator.call(transactions.describe_transactions_request(self._name))
                )
                if error or state != _COMMITTING:
                    break
                time.sleep(_FIRST_WAIT)
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections, self._coordinators, self._leaders = {}, {}, {}
        self._in_flight.clear()

    def _add_partitions(self, topic: str, partitions: list[int]) -> None:
        """Add partitions to the transaction before records are sent to them."""
        new = [p for p in partitions if (topic, p) not in self._in_transaction]
        if new:
            coordinator = self._coordinators[TRANSACTION]
            _call(coordinator, transactions.add_partitions_to_txn_request(self._who, topic, new),
                      transactions.parse_add_partitions_to_txn_response)  # fmt: skip
            self._in_transaction |= {(topic, p) for p in new}

    def _receive(self) -> None:
        response = self._in_flight.popleft().receive()
        if error := transactions.parse_produce_response(response):
            raise _failed(error)

    def _partitions(self, chunk: Outgoing, leaders: dict[int, Address | None]) -> Numbers:
        """The partition of each message: by key, as in every Kafka client, otherwise in turn."""
        count = len(chunk.values)
        if chunk.keys is None or chunk.keys.null_count:
            available = np.array([p for p, leader in leaders.items() if leader is not None])
            slices = self._next + np.arange(count) // _STICKY
            self._next = int(slices[-1] + 1) % len(available)
            to = available[slices % len(available)]
        if chunk.keys is None:
            return to
        by_key = partitions_of(chunk.keys, len(leaders))
        if not chunk.keys.null_count:
            return by_key
        return np.where(chunk.keys.is_valid().to_numpy(zero_copy_only=False), by_key, to)

    def _topic_leaders(self, topic: str) -> dict[int, Address | None]:
        """The leader of each partition of a topic; waits for a topic that was just created."""
        read_at, leaders = self._leaders.get(topic, (-_METADATA_SECONDS, {}))
        began = time.monotonic()
        if began - read_at < _METADATA_SECONDS:
            return leaders
        while not any((leaders := partition_leaders(self._any_broker(), topic)).values()):
            if time.monotonic() - began > _NEW_TOPIC_SECONDS:
                raise _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
            time.sleep(_LONGEST_WAIT)
        self._leaders[topic] = began, leaders
        return leaders

    def _coordinator(self, kind: int, name: str) -> Connection:
        if kind not in self._coordinators:
            broker = self._any_broker()
            address = _call_for(
                broker, find_coordinator_request(kind, name), parse_find_coordinator_response
            )
            self._coordinators[kind] = self._connection(address, kind)
        return self._coordinators[kind]

    def _any_broker(self) -> Connection:
        """A connection to the first reachable broker; unreachable brokers are tried last."""
        problem: OSError = ProtocolError("no broker address")
        for address in tuple(self._servers):
            try:
                return self._connection(address, _ANY)
            except OSError as error:
                problem = error
                self._servers.rotate(-1)
        raise problem

    def _connection(self, address: Address | None, purpose: int) -> Connection:
        if address is None:
            raise _failed(KafkaError.LEADER_NOT_AVAILABLE)
        if (purpose, address) not in self._connections:
            self._connections[purpose, address] = Connection(*address)
        return self._connections[purpose, address]


def _call_for(
    connection: Connection,
    request: Request,
    parse: Callable[[memoryview], tuple[int, _T]],
    temporary: frozenset[int] = _TEMPORARY,
) -> _T:
    """Return the value of a successful response; temporary errors are retried."""
    deadline, pause = time.monotonic() + CALL_SECONDS, _FIRST_WAIT
    while True:
        error, value = parse(connection.call(request))
        if not error:
            return value
        if error not in temporary or time.monotonic() > deadline:
            raise _failed(error)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_WAIT)


def _call(
    connection: Connection,
    request: Request,
    parse: Callable[[memoryview], int],
    temporary: frozenset[int] = _TEMPORARY,
) -> None:
    """As `_call_for`, for a response that is only an error code."""
    _call_for(connection, request, lambda response: (parse(response), None), temporary)


def _allow_move(error: int, found: _T) -> tuple[int, tuple[bool, _T]]:
    """A response, and whether its error is that the coordinator has moved."""
    moved = error == KafkaError.NOT_COORDINATOR
    return (0 if moved else error), (moved, found)


def _failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@contextmanager
def _as_kafka_errors() -> Iterator[None]:
    """Raise socket errors as `KafkaException`, as librdkafka does."""
    try:
        yield
    except OSError as error:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error
