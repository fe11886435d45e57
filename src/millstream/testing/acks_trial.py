"""Measures what each kind of acknowledgement can lose, by killing a leader.

Four producers write to four topics with the same leader and the same two followers. First one
follower is paused, then both, then the leader is killed and the followers resume. So there are
records that only the leader had, and records that a follower had but that were not acknowledged.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from operator import gt
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.kafka.clients.producing.delivery_reports import Delivery
    from millstream.kafka.clients.producing.producer_options import Acks
    from millstream.testing.local_broker import ThrowAwayBroker
    from millstream.testing.local_brokers import ThrowAwayBrokers

_NODES = (1, 2, 3)
_LEADERLESS = 60.0
_MOMENT = 1.2
_SOME = 20


@dataclass(frozen=True)
class Kind:
    """The settings of a producer."""

    title: str
    acks: Acks
    idempotent: bool


KINDS = (
    Kind("0", 0, idempotent=False),
    Kind("1", 1, idempotent=False),
    Kind("all, not idempotent", "all", idempotent=False),
    Kind("all", "all", idempotent=True),
)


@dataclass(frozen=True)
class Outcome:
    """What happened to one producer's records.

    `lost_unseen` were reported as sent and are missing, which acks=0 allows;
    `acknowledged_and_lost` were acknowledged and are missing; `refused` were reported as failed;
    `twice` are stored more than once. Times are of records sent between warm-up and fault.
    """

    acks: str
    sent: int
    lost_unseen: int
    acknowledged_and_lost: int
    refused: int
    twice: int
    p50_ms: float
    p99_ms: float


class _Writer(threading.Thread):
    """Sends numbers at a steady pace until `ending` is set, and records acknowledgements."""

    def __init__(self, address: str, topic: str, kind: Kind, pause: float) -> None:
        super().__init__(name=topic, daemon=True)
        self.kind, self.topic = kind, topic
        self.sent: dict[bytes, float] = {}
        self.answered: dict[bytes, float] = {}
        self.refused: set[bytes] = set()
        self.ending = threading.Event()
        self._pause = pause
        self._producer = Producer(
            address, acks=kind.acks, idempotent=kind.idempotent, linger="0 ms",
            on_delivery=self._delivered,
            settings={"delivery.timeout.ms": 60_000, "request.timeout.ms": 5_000,
                      "socket.timeout.ms": 10_000, "retry.backoff.ms": 100},
        )  # fmt: skip

    def _delivered(self, delivery: Delivery) -> None:
        value = delivery.value or b""
        if delivery.error is None:
            self.answered[value] = time.monotonic()
        else:
            self.refused.add(value)

    def run(self) -> None:
        try:
            with self._producer as producer:
                while not self.ending.is_set():
                    value = str(len(self.sent)).encode()
                    self.sent[value] = time.monotonic()
                    producer.send(self.topic, value, partition=0)
                    self._wait(producer)
                producer.flush("90 seconds")
        except MillstreamError:
            return  # `refused` has the records

    def _wait(self, producer: Producer) -> None:
        """Wait until the next record is due; reading `acknowledged` serves delivery reports."""
        until = time.monotonic() + self._pause
        while time.monotonic() < until:
            _ = producer.acknowledged
            time.sleep(0.002)


def trial(
    cluster: ThrowAwayBrokers,
    *,
    kinds: Sequence[Kind] = KINDS,
    quiet: float = 2.0,
    pause: float = 0.01,
    say: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Kill the leader under these producers, and count what happened to tsuccessor records.

    `quiet` is the time in seconds between warm-up and fault, `pause` the time between two records.
    The killed broker is started again.
    """
    report = say or (lambda _: None)
    topics = Topics(cluster.address)
    writers = []
    for number, kind in enumerate(kinds):
        name = f"acks-{number}-{time.time_ns()}"
        topics.create(name)
        _assign(cluster, name)
        writers.append(_Writer(cluster.address, name, kind, pause))
    for writer in writers:
        writer.start()
    _await(lambda: all(w.answered and len(w.sent) - len(w.answered) < _SOME for w in writers),
           _LEADERLESS)  # fmt: skip
    warm = time.monotonic()
    time.sleep(quiet)
    measured = (warm, time.monotonic())
    report("pausing the second follower, then both, then killing the leader")
    _inject_fault(cluster, writers)
    report("waiting for another leader")
    _await_leaders(topics, [writer.topic for writer in writers])
    time.sleep(0.5)
    for writer in writers:
        writer.ending.set()
    for writer in writers:
        writer.join()
    cluster[_NODES[0]].start()
    return [_outcome(cluster.address, writer, measured) for writer in writers]


def _assign(cluster: ThrowAwayBrokers, topic: str) -> None:
    """Make the first node the topic's leader and the others its followers, in that order."""
    from millstream.kafka.admin.brokers import Brokers

    Brokers(cluster.address).move(topic, _NODES)
    _await_leaders(Topics(cluster.address), [topic], leader=_NODES[0])


def _inject_fault(cluster: ThrowAwayBrokers, writers: Sequence[_Writer]) -> None:
    """Create records that only the leader has, and unacknowledged ones on its successor."""
    leader, successor, last = (cluster[node] for node in _NODES)
    last.pause()
    before = [_stored(successor, writer) for writer in writers]
    _await(lambda: all(map(gt, [_stored(successor, writer) for writer in writers], before)))
    successor.pause()
    acknowledged = [len(writer.answered) for writer in writers if writer.kind.acks != "all"]
    enough = [count + _SOME for count in acknowledged]
    _await(lambda: all(map(gt, [len(w.answered) for w in writers if w.kind.acks != "all"], enough)))
    leader.kill()
    successor.resume()
    last.resume()


def _stored(node: ThrowAwayBroker, writer: _Writer) -> int:
    """Bytes of the writer's records on a broker's disk."""
    parts = (node.folder / "data" / f"{writer.topic}-0").glob("*.log")
    return sum(part.stat().st_size for part in parts)


def _await(condition: Callable[[], bool], seconds: float = _MOMENT) -> None:
    """Wait a while for a condition; by default less than the session timeout of a broker."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)


def _await_leaders(topics: Topics, names: Sequence[str], leader: int | None = None) -> None:
    until = time.monotonic() + _LEADERLESS
    while time.monotonic() < until:
        try:
            leads = [topics.describe(name).partitions[0].leader for name in names]
        except MillstreamError:
            leads = [None]
        wanted = _NODES[1:] if leader is None else (leader,)
        if all(node in wanted for node in leads):
            return
        time.sleep(0.1)
    raise TimeoutError(f"no leader of {', '.join(names)} within {_LEADERLESS:g} s")


def _outcome(address: str, writer: _Writer, measured: tuple[float, float]) -> Outcome:
    there: dict[bytes, int] = {}
    with Consumer(writer.topic, kafka=address, until_end=True) as consumer:
        for record in consumer:
            there[record.value or b""] = there.get(record.value or b"", 0) + 1
    missing = [value for value in writer.answered if value not in there]
    promised = writer.kind.acks != 0
    waits = sorted(
        1000 * (at - writer.sent[value])
        for value, at in writer.answered.items()
        if measured[0] < writer.sent[value] and at < measured[1]
    )
    return Outcome(
        acks=writer.kind.title,
        sent=len(writer.sent),
        lost_unseen=0 if promised else len(missing),
        acknowledged_and_lost=len(missing) if promised else 0,
        refused=len(writer.refused),
        twice=sum(count > 1 for count in there.values()),
        p50_ms=_quantile(waits, 0.5),
        p99_ms=_quantile(waits, 0.99),
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(share * len(values)))], 2) if values else 0.0
