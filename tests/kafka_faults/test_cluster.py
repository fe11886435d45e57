"""A cluster of three: replicas, leaders and controllers; brokers are added, removed and killed."""

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
    """A topic setting, read with an independent client."""
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    [answer] = admin.describe_configs([resource]).values()
    value: str | None = answer.result()[name].value
    return value


def test_a_topic_is_replicated_to_three_brokers_and_each_leads_a_partition(
    three: ThrowAwayBrokers, topic: str
) -> None:
    info = Log(three.address).topics.create(topic, partitions=3)

    assert {part.leader for part in info.partitions} == {1, 2, 3}
    for part in info.partitions:
        assert set(part.replicas) == set(part.isr) == {1, 2, 3}
    assert setting_of(three.address, topic, "min.insync.replicas") == "2"
    assert Log(three.address).topics.create(f"{topic}-alone", replicas=1).replicas == 1


def test_all_three_nodes_are_controllers_and_one_is_active(three: ThrowAwayBrokers) -> None:
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


def test_a_dead_broker_is_listed_as_down_with_its_replicas_out_of_sync(
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

    def listed_as_down() -> bool:
        dead = brokers.list()[1]
        return (dead.node, dead.address, dead.leads) == (2, None, 0) and dead.behind >= 3

    eventually(listed_as_down, within=60)
    [alone] = log.topics.describe(only).partitions
    assert (alone.leader, alone.replicas, alone.earliest, alone.latest) == (None, (2,), None, None)
    assert {topic, only} <= {info.name for info in log.topics.list()}
    log.fill(topic, [b"while one is down"])
    assert log.values(topic) == [b"while one is down"]
    three.repair()
    assert log.topics.describe(only).partitions[0].leader == 2, "the only replica leads again"


def test_a_broker_is_added_receives_partitions_and_is_removed_without_loss(
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
        eventually(lambda: replicas(log, topic) == [{node, 1, 2}] * 3, within=60)
        again = brokers.move(topic, [node, 1, 2])
    finally:
        brokers.drain(node)
        local.remove(node, three.folder)
        brokers.unregister(node)
        del three.nodes[node]

    assert (moved, again) == (3, 0)
    assert steps[-1] == (3, 3)
    assert sorted(steps) == steps
    eventually(lambda: all(node not in nodes for nodes in replicas(log, topic)), within=60)
    assert sorted(str(value) for value in log.values(topic)) == sorted(map(str, values))
    eventually(lambda: [broker.node for broker in brokers.list()] == [1, 2, 3], within=60)


def replicas(log: Log, topic: str) -> list[set[int]]:
    return [set(part.replicas) for part in log.topics.describe(topic).partitions]


def test_invalid_moves_are_refused(three: ThrowAwayBrokers, topic: str) -> None:
    log, brokers = Log(three.address), Brokers(three.address)
    log.topics.create(topic)

    with pytest.raises(InvalidInput, match="got broker 9; choose one of 1, 2, 3"):
        brokers.move(topic, [1, 9])
    with pytest.raises(InvalidInput, match="as many brokers as replicas, 3; got brokers 1, 2"):
        brokers.move(topic, [1, 2])
    with pytest.raises(InvalidInput, match="each once"):
        brokers.move(topic, [1, 1])
    with pytest.raises(InvalidInput, match="partitions 0 to 0; got 5"):
        brokers.move(topic, [1, 2, 3], partitions=[5])
    with pytest.raises(InvalidInput, match="a broker for each of its 3 replicas"):
        brokers.drain(1)
    with pytest.raises(InvalidInput, match="one of the controllers 1, 2, 3"):
        local.remove(1, three.folder)
    with pytest.raises(NotFound, match=r"no broker 7; choose one of 1, 2, 3"):
        local.remove(7, three.folder)


def test_the_number_of_replicas_can_be_changed(three: ThrowAwayBrokers, topic: str) -> None:
    log, brokers = Log(three.address), Brokers(three.address)
    log.topics.create(topic, replicas=1)

    brokers.move(topic, [3, 1], replicas=2)

    def assigned() -> tuple[int, ...]:
        return tuple(log.topics.describe(topic).partitions[0].replicas)

    assert eventually(lambda: assigned() == (3, 1), within=60)
    assert log.topics.describe(topic).settings == {}
