"""Messages appended by Kafka's own protocol over plain sockets, a chunk at a time.

Nothing is sent twice under one identity: whatever fails, the sender is opened again, which
gives it another epoch and ends what it had begun, and the whole batch is sent anew.
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

# What a connection is for; coordinators have one of their own, by their kind.
_LEADER, _ANYONE = -1, -2
_APPEND_MS = 8_000  # less than a connection waits for an answer
_UNDER_WAY = 4  # questions to a leader that are not answered yet
_KNOWN_SECONDS = 60.0
_TOGETHER = 1_000  # messages without a key that go to one partition before the next has its turn
_AGAIN, _LONGEST = 0.002, 0.1
_NEW_TOPIC_SECONDS = 5.0
_SEQUENCES = 1 << 31
_ENDING = "PrepareCommit"
_SETTLING = frozenset({
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
    """One producer at a cluster with an open listener."""

    def __init__(self, cluster: Cluster, name: str | None) -> None:
        self._name = name
        self._servers = deque(parse_address(server) for server in cluster.address.split(","))
        self._connections: dict[tuple[int, Address], Connection] = {}
        self._who = Identity(name, -1, -1)
        self._led: dict[str, tuple[float, dict[int, Address | None]]] = {}
        self._coordinators: dict[int, Connection] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._taken_in: set[tuple[str, int]] = set()
        self._open: deque[Connection] = deque()
        self._turn = 0

    def open(self) -> None:
        """As `Sender.open`."""
        until = time.monotonic() + CALL_SECONDS
        with _told():
            while not self._introduced():
                if time.monotonic() > until:
                    raise _failed(KafkaError.NOT_COORDINATOR)
                time.sleep(_LONGEST)

    def _introduced(self) -> bool:
        """Whether the coordinator has given us a number; if not, another coordinates by now."""
        self.close()
        self._sequences, name = {}, self._name
        asked = self._anyone() if name is None else self._coordinator(TRANSACTION, name)
        moved, self._who = _settled(
            asked,
            transactions.init_producer_id_request(name, TRANSACTION_MS),
            lambda response: _unless_moved(
                *transactions.parse_init_producer_id_response(response, name)
            ),
        )
        return not moved

    def begin(self) -> None:
        """As `Sender.begin`: the broker hears of it with the first partition."""
        self._taken_in = set()

    def send(self, topic: str, some: Outgoing, most: int | None = None) -> None:
        """As `Sender.send`; returns while the last of it is under way."""
        if not len(some.values):
            return
        with _told():
            led = self._places(topic)
            to = self._partitions(some, led)
            if self._name is not None:
                self._take_in(topic, np.unique(to).tolist())
            for batch in batches(some, to, most):
                self._append(topic, batch, self._connection(led[batch.partition], _LEADER))

    def _append(self, topic: str, batch: Batch, leader: Connection) -> None:
        """Ask a leader to append a batch. The first of a partition is waited for: who leads one
        that is new may not know it yet, and what follows a refused batch is refused as well."""
        slot, who = (topic, batch.partition), self._who
        first, sequence = slot not in self._sequences, self._sequences.get(slot, 0)
        self._sequences[slot] = (sequence + batch.count) % _SEQUENCES
        whole = batch.signed(who, sequence)
        request = transactions.produce_request(who, topic, batch.partition, whole, _APPEND_MS)

        while len(self._open) >= (1 if first else _UNDER_WAY):
            self._hear()
        if first:
            _accepted(leader, request, transactions.parse_produce_response, _NEW_LEADER)
        else:
            leader.send(request)
            self._open.append(leader)

    def sign(self, offset: GroupOffset) -> None:
        """As `Sender.sign`."""
        with _told():
            keeper = self._coordinators[TRANSACTION]
            _accepted(keeper, transactions.add_offsets_to_txn_request(self._who, offset.group),
                      transactions.parse_add_offsets_to_txn_response)  # fmt: skip
            while self._open:
                self._hear()
            group = self._coordinator(GROUP, offset.group)
            _accepted(group, transactions.txn_offset_commit_request(self._who, offset),
                      transactions.parse_txn_offset_commit_response)  # fmt: skip

    def commit(self) -> None:
        """As `Sender.commit`."""
        with _told():
            while self._open:
                self._hear()
            if self._name is not None:
                keeper = self._coordinators[TRANSACTION]
                _accepted(keeper, transactions.end_txn_request(self._who),
                          transactions.parse_end_txn_response)  # fmt: skip

    def lost_sight(self) -> bool:
        """As `Sender.lost_sight`: brokers end connections that have been idle for long, too."""
        return any(connection.is_closed_by_broker() for connection in self._connections.values())

    def finish(self) -> None:
        """As `Sender.finish`."""
        keeper, until = self._coordinators.get(TRANSACTION), time.monotonic() + CALL_SECONDS
        with suppress(OSError):
            while keeper and self._name and time.monotonic() < until:
                error, state = transactions.parse_describe_transactions_response(
                    keeper.call(transactions.describe_transactions_request(self._name))
                )
                if error or state != _ENDING:
                    break
                time.sleep(_AGAIN)
        self.close()

    def close(self) -> None:
        """As `Sender.close`."""
        for connection in self._connections.values():
            connection.close()
        self._connections, self._coordinators, self._led = {}, {}, {}
        self._open.clear()

    def _take_in(self, topic: str, partitions: list[int]) -> None:
        """A transaction's partitions are told to its coordinator before records go there."""
        new = [p for p in partitions if (topic, p) not in self._taken_in]
        if new:
            keeper = self._coordinators[TRANSACTION]
            _accepted(keeper, transactions.add_partitions_to_txn_request(self._who, topic, new),
                      transactions.parse_add_partitions_to_txn_response)  # fmt: skip
            self._taken_in |= {(topic, p) for p in new}

    def _hear(self) -> None:
        response = self._open.popleft().receive()
        if error := transactions.parse_produce_response(response):
            raise _failed(error)

    def _partitions(self, some: Outgoing, led: dict[int, Address | None]) -> Numbers:
        """Where each message goes: by its key as every Kafka client does it, else in turn."""
        count = len(some.values)
        if some.keys is None or some.keys.null_count:
            there = np.array([p for p, leader in led.items() if leader is not None])
            pieces = self._turn + np.arange(count) // _TOGETHER
            self._turn = int(pieces[-1] + 1) % len(there)
            to = there[pieces % len(there)]
        if some.keys is None:
            return to
        by_key = partitions_of(some.keys, len(led))
        if not some.keys.null_count:
            return by_key
        return np.where(some.keys.is_valid().to_numpy(zero_copy_only=False), by_key, to)

    def _places(self, topic: str) -> dict[int, Address | None]:
        """Who leads each partition of a topic; one that has just been made is waited for."""
        asked, led = self._led.get(topic, (-_KNOWN_SECONDS, {}))
        began = time.monotonic()
        if began - asked < _KNOWN_SECONDS:
            return led
        while not any((led := partition_leaders(self._anyone(), topic)).values()):
            if time.monotonic() - began > _NEW_TOPIC_SECONDS:
                raise _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
            time.sleep(_LONGEST)
        self._led[topic] = began, led
        return led

    def _coordinator(self, kind: int, name: str) -> Connection:
        if kind not in self._coordinators:
            anyone = self._anyone()
            place = _settled(
                anyone, find_coordinator_request(kind, name), parse_find_coordinator_response
            )
            self._coordinators[kind] = self._connection(place, kind)
        return self._coordinators[kind]

    def _anyone(self) -> Connection:
        """A connection to the first broker that can be reached; one that cannot is tried last."""
        trouble: OSError = ProtocolError("no broker is named")
        for place in tuple(self._servers):
            try:
                return self._connection(place, _ANYONE)
            except OSError as error:
                trouble = error
                self._servers.rotate(-1)
        raise trouble

    def _connection(self, place: Address | None, purpose: int) -> Connection:
        if place is None:
            raise _failed(KafkaError.LEADER_NOT_AVAILABLE)
        if (purpose, place) not in self._connections:
            self._connections[purpose, place] = Connection(*place)
        return self._connections[purpose, place]


def _settled(
    connection: Connection,
    request: Request,
    parse: Callable[[memoryview], tuple[int, _T]],
    passing: frozenset[int] = _SETTLING,
) -> _T:
    """An answer without an error; one that only needs a moment is asked for again."""
    until, pause = time.monotonic() + CALL_SECONDS, _AGAIN
    while True:
        error, value = parse(connection.call(request))
        if not error:
            return value
        if error not in passing or time.monotonic() > until:
            raise _failed(error)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)


def _accepted(
    connection: Connection,
    request: Request,
    parse: Callable[[memoryview], int],
    passing: frozenset[int] = _SETTLING,
) -> None:
    """The same for a response that is an error code and nothing else."""
    _settled(connection, request, lambda response: (parse(response), None), passing)


def _unless_moved(error: int, found: _T) -> tuple[int, tuple[bool, _T]]:
    """An answer whose error may be that another broker coordinates."""
    moved = error == KafkaError.NOT_COORDINATOR
    return (0 if moved else error), (moved, found)


def _failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@contextmanager
def _told() -> Iterator[None]:
    """A broker that is away is told as librdkafka tells it."""
    try:
        yield
    except OSError as error:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error))) from error
