"""Cluster changes with failures at the worst moment, scripted."""

from __future__ import annotations

import struct
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import PartitionMetadata
from tests.kafka.local.test_cluster_folder import topic

from millstream.errors import AlreadyRunning, InvalidInput, MillstreamError, Unavailable
from millstream.kafka.admin.brokers import Brokers
from millstream.kafka.admin.topics import Topics
from millstream.kafka.librdkafka import Link
from millstream.kafka.local import broker, cluster
from millstream.kafka.local.cluster_folder import ClusterFolder, planned
from millstream.kafka.protocol import cluster as requests
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.kafka.protocol.messages import Request

    Responses = dict[str, Future[None]]

ADDRESS = "127.0.0.1:1,127.0.0.1:2"


class Clock:
    """A clock that only advances in `sleep`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("admin.brokers", "local.cluster", "protocol.cluster"):
        monkeypatch.setattr(f"millstream.kafka.{module}.time", clock)
    return clock


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The brokers that are up, without a real cluster."""
    nodes = {node: f"127.0.0.1:{node}" for node in (1, 2, 3, 4)}
    monkeypatch.setattr(Brokers, "_alive", lambda _: dict(nodes))
    monkeypatch.setattr(requests, "elect_leaders", lambda *_: None)
    return nodes


@pytest.mark.usefixtures("alive", "clock")
def test_draining_moves_partitions_created_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas: dict[str, tuple[int, ...]] = {"old": (1, 4), "new": (4, 2)}
    listed = ["old"]

    def move(_: Cluster, wanted: dict[tuple[str, int], tuple[int, ...]]) -> None:
        replicas.update({name: nodes for (name, _), nodes in wanted.items()})
        listed[:] = ["old", "new"]

    monkeypatch.setattr(Topics, "list", lambda *_, **__: [topic(n, replicas[n]) for n in listed])
    monkeypatch.setattr(requests, "alter_reassignments", move)
    monkeypatch.setattr(requests, "list_reassignments", lambda _: {})

    assert Brokers(ADDRESS).drain(4) == 2
    assert not [name for name, nodes in replicas.items() if 4 in nodes]


@pytest.mark.usefixtures("clock")
def partition(*nodes: int) -> PartitionMetadata:
    part = PartitionMetadata()
    part.replicas = list(nodes)
    return part


def test_removing_a_broker_that_still_has_replicas_restarts_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterFolder(tmp_path)
    place.create(planned(4))
    place.node(4).mkdir()
    started: list[int] = []
    monkeypatch.setattr(broker, "stop", lambda _: True)
    monkeypatch.setattr(cluster, "start_node", lambda node, *_, **__: started.append(node))
    monkeypatch.setattr(
        Link, "partitions", lambda _: {("new", 0): partition(4, 2), ("old", 0): partition(1, 2)}
    )

    with pytest.raises(
        InvalidInput, match=r"only without replicas; got broker 4, which has new/0;"
    ):
        cluster.remove(4, tmp_path)

    assert started == [4]
    assert 4 in place.existing().nodes
    assert place.node(4).is_dir()


def test_a_move_to_a_broker_that_stays_down_raises_and_continues_later(
    alive: dict[int, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(*_: object) -> None:
        del alive[4]

    monkeypatch.setattr(Topics, "describe", lambda *_: topic("bids", (1, 2)))
    monkeypatch.setattr(requests, "alter_reassignments", move)
    monkeypatch.setattr(requests, "list_reassignments", lambda _: {("bids", 0): None})

    with pytest.raises(Unavailable, match=r"broker 4 needs it to be up; .* the move continues"):
        Brokers(ADDRESS).move("bids", [1, 4])

    assert 30 < clock.now < 32


def test_a_move_waits_for_a_broker_that_is_down_briefly(
    alive: dict[int, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moving(_: Cluster) -> dict[tuple[str, int], None]:
        """Down for 20 seconds, up for one, down for 20: never for 30."""
        alive.pop(4, None)
        if 20 < clock.now < 21:
            alive[4] = "127.0.0.1:4"
        return {("bids", 0): None} if clock.now < 41 else {}

    monkeypatch.setattr(Topics, "describe", lambda *_: topic("bids", (1, 2)))
    monkeypatch.setattr(requests, "alter_reassignments", lambda *_: None)
    monkeypatch.setattr(requests, "list_reassignments", moving)

    assert Brokers(ADDRESS).move("bids", [1, 4]) == 1


def answering(monkeypatch: pytest.MonkeyPatch, *errors: int) -> list[int]:
    """Brokers that answer with these errors, then with the last one; returns the answers."""
    answers: list[int] = []

    class Wire:
        def __init__(self, host: str, port: int) -> None: ...

        def close(self) -> None: ...

        def call(self, request: Request) -> memoryview:
            answers.append(errors[min(len(answers), len(errors) - 1)])
            return memoryview(b"\0" + struct.pack(">ih", 0, answers[-1]) + b"\0\1\0")

    monkeypatch.setattr(requests, "Connection", Wire)
    return answers


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("error", [6, 7, 41])
def test_a_request_is_retried_while_controllers_elect_a_leader(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = answering(monkeypatch, error, error, 0)

    assert requests.list_reassignments(Cluster(ADDRESS)) == {}
    assert answers == [error, error, 0]


def test_retries_end_if_controllers_never_elect_a_leader(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, 41)
    with pytest.raises(MillstreamError, match="a broker that is not the controller"):
        requests.list_reassignments(Cluster(ADDRESS))
    assert 10 < clock.now < 20


def test_a_refusal_is_raised_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = answering(monkeypatch, 39)
    with pytest.raises(MillstreamError, match="a broker that does not exist"):
        requests.list_reassignments(Cluster(ADDRESS))
    assert (answers, clock.now) == ([39], 0)


def test_a_failed_start_kills_only_the_nodes_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterFolder(tmp_path)
    note = place.create(planned(3))
    running = {place.node(3)}
    second_locked, first_kill = threading.Event(), threading.Event()

    def start(folder: Path, *, on_lock: Callable[[], None], **_: object) -> None:
        """The first fails, the second is launched after that, another process has the third."""
        if folder == place.node(3):
            raise AlreadyRunning("one broker", got="another")
        on_lock()
        if folder == place.node(1):
            second_locked.wait(60)
            raise Unavailable("a port", got="none")
        second_locked.set()
        first_kill.wait(60)
        running.add(folder)

    def kill(folder: Path) -> bool:
        was_running = folder in running
        running.discard(folder)
        first_kill.set()
        return was_running

    monkeypatch.setattr(broker, "start", start)
    monkeypatch.setattr(broker, "kill", kill)

    with pytest.raises(Unavailable, match="a port"):
        cluster._start_nodes(place, note, (1, 2, 3), timeout=1, settings=None, say=None)

    assert running == {place.node(3)}


class LosesFirstResponse:
    """An admin client whose first response is lost, although the request was carried out."""

    def __init__(self, then: int) -> None:
        self._codes = [KafkaError._TRANSPORT, then]

    def poll(self, _: float) -> None: ...

    def answer(self, *_: object, validate_only: bool = False, **__: object) -> Responses:
        future: Future[None] = Future()
        if validate_only:
            future.set_result(None)
        else:
            future.set_exception(KafkaException(KafkaError(self._codes.pop(0))))
        return {"t": future}

    create_topics = delete_topics = create_partitions = answer


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda topics: topics.create("t"), KafkaError.TOPIC_ALREADY_EXISTS),
        (lambda topics: topics.delete("t"), KafkaError.UNKNOWN_TOPIC_OR_PART),
        (lambda topics: topics.alter("t", partitions=2), KafkaError.INVALID_PARTITIONS),
    ],
)
def test_a_repeated_change_whose_response_was_lost_counts_as_done(
    change: Callable[[Topics], Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LosesFirstResponse(code)
    monkeypatch.setattr(Link, "_open", lambda *_: client)
    monkeypatch.setattr("millstream.kafka.admin.topics.find_topic", lambda *_: None)
    monkeypatch.setattr("millstream.kafka.admin.topics.described", lambda *_: None)
    monkeypatch.setattr(Topics, "describe", lambda *_: topic("t", (1,)))
    monkeypatch.setattr(Topics, "_await", lambda *_: None)

    change(Topics(ADDRESS))

    assert client._codes == []


def test_a_request_is_retried_until_a_new_leader_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE]

    def ask(_admin: object) -> dict[str, Future[int]]:
        future: Future[int] = Future()
        if answers:
            future.set_exception(KafkaException(KafkaError(answers.pop(0))))
        else:
            future.set_result(7)
        return {"t": future}

    monkeypatch.setattr(Link, "_open", lambda *_: LosesFirstResponse(0))

    assert Link(Cluster.resolve(ADDRESS)).call_all("asking for offsets", ask) == {"t": 7}


def test_a_client_with_stale_leaders_is_recreated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would send the same stale epoch forever."""
    clients: list[LosesFirstResponse] = []

    def ask(admin: object) -> dict[str, Future[int]]:
        future: Future[int] = Future()
        if admin is clients[0]:
            future.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        else:
            future.set_result(7)
        return {"t": future}

    def opened(*_: object) -> LosesFirstResponse:
        clients.append(LosesFirstResponse(0))
        return clients[-1]

    monkeypatch.setattr(Link, "_open", opened)

    assert Link(Cluster.resolve(ADDRESS)).call_all("asking for offsets", ask) == {"t": 7}
    assert len(clients) == 2


def test_a_refusal_of_the_first_request_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LosesFirstResponse(KafkaError.TOPIC_ALREADY_EXISTS)
    client._codes.pop(0)
    monkeypatch.setattr(Link, "_open", lambda *_: client)
    monkeypatch.setattr("millstream.kafka.admin.topics.find_topic", lambda *_: None)

    with pytest.raises(MillstreamError, match="creating the topic t failed"):
        Topics(ADDRESS).create("t")
