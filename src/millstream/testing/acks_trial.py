"""What each kind of acknowledgement can lose: tried by killing a leader, and counted.

Four producers write to four topics that the same broker leads and the same two follow. First one
follower is held still, then both, then the leader is killed and the followers go on. So there are
records that only the leader had, and records that a follower had but nobody had acknowledged.
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
    """A way to produce."""

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
    """What became of one producer's records.

    `lost_unseen` were reported as sent and are not there though nobody promised anything
    (acks 0); `acknowledged_and_lost` were promised and are not there; `refused` were reported
    as failed; `twice` are there more than once. Times are of records sent before the fault,
    when everything had warmed up.
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
    """Sends numbers at a steady pace until it is told to end, and notes what is acknowledged."""

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
            on_delivery=self._heard,
            settings={"delivery.timeout.ms": 60_000, "request.timeout.ms": 5_000,
                      "socket.timeout.ms": 10_000, "retry.backoff.ms": 100},
        )  # fmt: skip

    def _heard(self, delivery: Delivery) -> None:
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
                    self._listen(producer)
                producer.flush("90 seconds")
        except MillstreamError:
            return  # what was refused is in `refused`

    def _listen(self, producer: Producer) -> None:
        """Until the next record is due; asking what is acknowledged has the reports served."""
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
    """Kill the leader under these producers, and tell what became of their records.

    `quiet` is for how many seconds all is well before, when everything has warmed up; `pause` the
    time between two records. The killed broker is started again.
    """
    tell = say or (lambda _: None)
    topics = Topics(cluster.address)
    writers = []
    for number, kind in enumerate(kinds):
        name = f"acks-{number}-{time.time_ns()}"
        topics.create(name)
        _put(cluster, name)
        writers.append(_Writer(cluster.address, name, kind, pause))
    for writer in writers:
        writer.start()
    _await(lambda: all(w.answered and len(w.sent) - len(w.answered) < _SOME for w in writers),
           _LEADERLESS)  # fmt: skip
    warm = time.monotonic()
    time.sleep(quiet)
    measured = (warm, time.monotonic())
    tell("the second follower stands still; then both; then the leader is killed")
    _hurt(cluster, writers)
    tell("waiting for another leader")
    _await_leaders(topics, [writer.topic for writer in writers])
    time.sleep(0.5)
    for writer in writers:
        writer.ending.set()
    for writer in writers:
        writer.join()
    cluster[_NODES[0]].start()
    return [_outcome(cluster.address, writer, measured) for writer in writers]


def _put(cluster: ThrowAwayBrokers, topic: str) -> None:
    """Have the topic led by the first node and followed by the others, in that order."""
    from millstream.kafka.admin.brokers import Brokers

    Brokers(cluster.address).move(topic, _NODES)
    _await_leaders(Topics(cluster.address), [topic], leader=_NODES[0])


def _hurt(cluster: ThrowAwayBrokers, writers: Sequence[_Writer]) -> None:
    """Let the heir have records that nobody acknowledged, then the leader ones that nobody has."""
    leader, heir, last = (cluster[node] for node in _NODES)
    last.pause()
    before = [_stored(heir, writer) for writer in writers]
    _await(lambda: all(map(gt, [_stored(heir, writer) for writer in writers], before)))
    heir.pause()
    heard = [len(writer.answered) for writer in writers if writer.kind.acks != "all"]
    enough = [count + _SOME for count in heard]
    _await(lambda: all(map(gt, [len(w.answered) for w in writers if w.kind.acks != "all"], enough)))
    leader.kill()
    heir.resume()
    last.resume()


def _stored(node: ThrowAwayBroker, writer: _Writer) -> int:
    """Bytes of the writer's records on a broker's disk."""
    parts = (node.folder / "data" / f"{writer.topic}-0").glob("*.log")
    return sum(part.stat().st_size for part in parts)


def _await(true: Callable[[], bool], seconds: float = _MOMENT) -> None:
    """Some time for something to hold; a moment is less than it takes to be missed."""
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
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
