"""A cluster of three: who keeps what, who leads, who votes; brokers that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.kafka.shortly import Log, eventually

from millstream.errors import InvalidInput, NotFound
from millstream.kafka.admin.brokers import Brokers
from millstream.kafka.local import cluster as local

if TYPE_CHECKING:
    from millstream.testing.local_brokers import ThrowAwayBrokers


def setting_of(address: str, topic: str, name: str) -> str | None:
    """A setting as the cluster has it, asked for by a client of our own."""
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    [answer] = admin.describe_configs([resource]).values()
    value: str | None = answer.result()[name].value
    return value


def test_a_topic_is_kept_on_three_brokers_and_each_leads_a_part(
    three: ThrowAwayBrokers, topic: str
) -> None:
    info = Log(three.address).topics.create(topic, partitions=3)

    assert {part.leader for part in info.partitions} == {1, 2, 3}
    for part in info.partitions:
        assert set(part.replicas) == set(part.isr) == {1, 2, 3}
    assert setting_of(three.address, topic, "min.insync.replicas") == "2"
    assert Log(three.address).topics.create(f"{topic}-alone", replicas=1).replicas == 1


def test_three_controllers_vote_and_one_is_in_charge(three: ThrowAwayBrokers) -> None:
    brokers = Brokers(three.address)

    def all_agree() -> bool:
        quorum, listed = brokers.quorum(), brokers.list()
        return (
            set(quorum.voters) == {1, 2, 3}
            and [broker.node for broker in listed if broker.controls] == [quorum.leader]
            and all(broker.address in three.address.split(",") for broker in listed)
            and all(broker.holds and not broker.behind for broker in listed)
        )

    assert eventually(all_agree, within=60)


def test_a_broker_that_dies_is_told_and_what_it_lacks_is_counted(
    three: ThrowAwayBrokers, topic: str
) -> None:
    log = Log(three.address)
    brokers = Brokers(three.address)
    log.topics.create(topic, partitions=3)
    only = f"{topic}-only"
    assert log.topics.create(only).replicas == 3
    brokers.move(only, [2], replicas=1)
    three[2].kill()

    assert local.status(three.folder).down == (2,)
    eventually(lambda: 2 not in log.topics.describe(topic).partitions[0].isr, within=60)

    def is_told() -> bool:
        dead = brokers.list()[1]
        return (dead.node, dead.address, dead.leads) == (2, None, 0) and dead.behind >= 3

    eventually(is_told, within=60)
    [alone] = log.topics.describe(only).partitions
    assert (alone.leader, alone.replicas, alone.earliest, alone.latest) == (None, (2,), None, None)
    assert {topic, only} <= {info.name for info in log.topics.list()}
    log.fill(topic, [b"while one is down"])
    assert log.values(topic) == [b"while one is down"]
    three.repair()
    assert log.topics.describe(only).partitions[0].leader == 2, "what had one copy is led again"


def test_a_broker_is_added_takes_partitions_over_and_is_removed_without_a_loss(
    three: ThrowAwayBrokers, topic: str
) -> None:
    log, brokers = Log(three.address), Brokers(three.address)
    log.topics.create(topic, partitions=3)
    values = [f"{number}".encode() for number in range(3000)]
    log.fill(topic, values)
    steps: list[tuple[int, int]] = []

    node = three.add().number
    try:
        moved = brokers.move(topic, [node, 1, 2], on_progress=lambda *step: steps.append(step))
        eventually(lambda: where(log, topic) == [{node, 1, 2}] * 3, within=60)
        again = brokers.move(topic, [node, 1, 2])
    finally:
        brokers.drain(node)
        local.remove(node, three.folder)
        brokers.unregister(node)
        del three.nodes[node]

    assert (moved, again) == (3, 0)
    assert steps[-1] == (3, 3)
    assert sorted(steps) == steps
    eventually(lambda: all(node not in held for held in where(log, topic)), within=60)
    assert sorted(str(value) for value in log.values(topic)) == sorted(map(str, values))
    eventually(lambda: [broker.node for broker in brokers.list()] == [1, 2, 3], within=60)


def where(log: Log, topic: str) -> list[set[int]]:
    return [set(part.replicas) for part in log.topics.describe(topic).partitions]


def test_moves_that_cannot_be_are_refused_in_a_sentence(
    three: ThrowAwayBrokers, topic: str
) -> None:
    log, brokers = Log(three.address), Brokers(three.address)
    log.topics.create(topic)

    with pytest.raises(InvalidInput, match="got broker 9; choose one of 1, 2, 3"):
        brokers.move(topic, [1, 9])
    with pytest.raises(InvalidInput, match="as many brokers as copies, 3; got brokers 1, 2"):
        brokers.move(topic, [1, 2])
    with pytest.raises(InvalidInput, match="each once"):
        brokers.move(topic, [1, 1])
    with pytest.raises(InvalidInput, match="partitions 0 to 0; got 5"):
        brokers.move(topic, [1, 2, 3], partitions=[5])
    with pytest.raises(InvalidInput, match="a broker for each of its 3 copies"):
        brokers.drain(1)
    with pytest.raises(InvalidInput, match="one of the controllers 1, 2, 3"):
        local.remove(1, three.folder)
    with pytest.raises(NotFound, match=r"no broker 7; choose one of 1, 2, 3"):
        local.remove(7, three.folder)


def test_the_number_of_copies_can_be_changed(three: ThrowAwayBrokers, topic: str) -> None:
    log, brokers = Log(three.address), Brokers(three.address)
    log.topics.create(topic, replicas=1)

    brokers.move(topic, [3, 1], replicas=2)

    def copies() -> tuple[int, ...]:
        return tuple(log.topics.describe(topic).partitions[0].replicas)

    assert eventually(lambda: copies() == (3, 1), within=60)
    assert log.topics.describe(topic).settings == {}
