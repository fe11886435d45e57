"""A cluster that changes while it is changed: each trouble at its worst moment, by a script."""

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
    """A time that passes by sleeping."""

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
    """The brokers that are up, as a cluster without any tells it."""
    nodes = {node: f"127.0.0.1:{node}" for node in (1, 2, 3, 4)}
    monkeypatch.setattr(Brokers, "_alive", lambda _: dict(nodes))
    monkeypatch.setattr(requests, "elect_leaders", lambda *_: None)
    return nodes


@pytest.mark.usefixtures("alive", "clock")
def test_what_is_made_on_a_broker_while_it_is_emptied_is_moved_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there: dict[str, tuple[int, ...]] = {"old": (1, 4), "new": (4, 2)}
    seen = ["old"]

    def move(_: Cluster, wanted: dict[tuple[str, int], tuple[int, ...]]) -> None:
        there.update({name: nodes for (name, _), nodes in wanted.items()})
        seen[:] = ["old", "new"]

    monkeypatch.setattr(Topics, "list", lambda *_, **__: [topic(n, there[n]) for n in seen])
    monkeypatch.setattr(requests, "alter_reassignments", move)
    monkeypatch.setattr(requests, "list_reassignments", lambda _: {})

    assert Brokers(ADDRESS).drain(4) == 2
    assert not [name for name, nodes in there.items() if 4 in nodes]


@pytest.mark.usefixtures("clock")
def kept(*nodes: int) -> PartitionMetadata:
    part = PartitionMetadata()
    part.replicas = list(nodes)
    return part


def test_a_broker_that_holds_something_after_all_is_started_again_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterFolder(tmp_path)
    place.begin(planned(4))
    place.node(4).mkdir()
    started: list[int] = []
    monkeypatch.setattr(broker, "stop", lambda _: True)
    monkeypatch.setattr(cluster, "start_node", lambda node, *_, **__: started.append(node))
    monkeypatch.setattr(
        Link, "partitions", lambda _: {("new", 0): kept(4, 2), ("old", 0): kept(1, 2)}
    )

    with pytest.raises(InvalidInput, match=r"hold nothing; got broker 4, which holds new/0;"):
        cluster.remove(4, tmp_path)

    assert started == [4]
    assert 4 in place.known().nodes
    assert place.node(4).is_dir()


def test_a_move_to_a_broker_that_stays_away_ends_and_says_that_it_goes_on(
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


def test_a_broker_that_is_away_for_a_moment_is_waited_for(
    alive: dict[int, str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moving(_: Cluster) -> dict[tuple[str, int], None]:
        """Away for 20 seconds, there for one, away for 20: never for 30."""
        alive.pop(4, None)
        if 20 < clock.now < 21:
            alive[4] = "127.0.0.1:4"
        return {("bids", 0): None} if clock.now < 41 else {}

    monkeypatch.setattr(Topics, "describe", lambda *_: topic("bids", (1, 2)))
    monkeypatch.setattr(requests, "alter_reassignments", lambda *_: None)
    monkeypatch.setattr(requests, "list_reassignments", moving)

    assert Brokers(ADDRESS).move("bids", [1, 4]) == 1


def answering(monkeypatch: pytest.MonkeyPatch, *errors: int) -> list[int]:
    """Brokers that answer by these errors in turn, the last for ever; gives what was said."""
    said: list[int] = []

    class Wire:
        def __init__(self, host: str, port: int) -> None: ...

        def close(self) -> None: ...

        def call(self, request: Request) -> memoryview:
            said.append(errors[min(len(said), len(errors) - 1)])
            return memoryview(b"\0" + struct.pack(">ih", 0, said[-1]) + b"\0\1\0")

    monkeypatch.setattr(requests, "Connection", Wire)
    return said


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("error", [6, 7, 41])
def test_controllers_that_elect_another_leader_are_asked_again(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answering(monkeypatch, error, error, 0)

    assert requests.list_reassignments(Cluster(ADDRESS)) == {}
    assert said == [error, error, 0]


def test_controllers_that_never_agree_are_given_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, 41)
    with pytest.raises(MillstreamError, match="a broker that is not the controller"):
        requests.list_reassignments(Cluster(ADDRESS))
    assert 10 < clock.now < 20


def test_a_refusal_is_told_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    said = answering(monkeypatch, 39)
    with pytest.raises(MillstreamError, match="a broker that does not exist"):
        requests.list_reassignments(Cluster(ADDRESS))
    assert (said, clock.now) == ([39], 0)


def test_a_start_that_failed_ends_all_it_started_and_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterFolder(tmp_path)
    note = place.begin(planned(3))
    running = {place.node(3)}
    second_taken, first_kill = threading.Event(), threading.Event()

    def start(folder: Path, *, taken: Callable[[], None], **_: object) -> None:
        """The first fails; the second is launched only after that; the third is another's."""
        if folder == place.node(3):
            raise AlreadyRunning("one broker", got="another")
        taken()
        if folder == place.node(1):
            second_taken.wait(60)
            raise Unavailable("a port", got="none")
        second_taken.set()
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
        cluster._together(place, note, (1, 2, 3), timeout=1, settings=None, say=None)

    assert running == {place.node(3)}


class Forgetful:
    """An admin client whose first answer is lost on the way, though the request was done."""

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
def test_a_change_whose_answer_was_lost_is_found_done_when_made_again(
    change: Callable[[Topics], Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Forgetful(code)
    monkeypatch.setattr(Link, "_open", lambda *_: client)
    monkeypatch.setattr("millstream.kafka.admin.topics.find_topic", lambda *_: None)
    monkeypatch.setattr("millstream.kafka.admin.topics.described", lambda *_: None)
    monkeypatch.setattr(Topics, "describe", lambda *_: topic("t", (1,)))
    monkeypatch.setattr(Topics, "_await", lambda *_: None)

    change(Topics(ADDRESS))

    assert client._codes == []


def test_a_new_leader_that_is_not_caught_up_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE]

    def ask(_admin: object) -> dict[str, Future[int]]:
        future: Future[int] = Future()
        if answers:
            future.set_exception(KafkaException(KafkaError(answers.pop(0))))
        else:
            future.set_result(7)
        return {"t": future}

    monkeypatch.setattr(Link, "_open", lambda *_: Forgetful(0))

    assert Link(Cluster.resolve(ADDRESS)).call_all("asking for offsets", ask) == {"t": 7}


def test_a_client_that_knows_leaders_of_before_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would ask with the same old epoch for as long as it lives."""
    made: list[Forgetful] = []

    def ask(admin: object) -> dict[str, Future[int]]:
        future: Future[int] = Future()
        if admin is made[0]:
            future.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        else:
            future.set_result(7)
        return {"t": future}

    def opened(*_: object) -> Forgetful:
        made.append(Forgetful(0))
        return made[-1]

    monkeypatch.setattr(Link, "_open", opened)

    assert Link(Cluster.resolve(ADDRESS)).call_all("asking for offsets", ask) == {"t": 7}
    assert len(made) == 2


def test_a_refusal_without_a_repeat_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Forgetful(KafkaError.TOPIC_ALREADY_EXISTS)
    client._codes.pop(0)
    monkeypatch.setattr(Link, "_open", lambda *_: client)
    monkeypatch.setattr("millstream.kafka.admin.topics.find_topic", lambda *_: None)

    with pytest.raises(MillstreamError, match="creating the topic t failed"):
        Topics(ADDRESS).create("t")
