"""The folder of a cluster, the settings of its nodes, and replica assignment: without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import Damaged, InvalidInput, NotFound
from millstream.kafka.admin.brokers import assign_replicas, drain_plan
from millstream.kafka.admin.topic_info import PartitionInfo, TopicInfo
from millstream.kafka.local import cluster
from millstream.kafka.local.broker_settings import Seat
from millstream.kafka.local.cluster_folder import ClusterFolder, ClusterNote, NodePorts, planned

if TYPE_CHECKING:
    from pathlib import Path


def topic(name: str, *replicas: tuple[int, ...]) -> TopicInfo:
    parts = tuple(
        PartitionInfo(number, nodes[0], nodes, nodes, 0, 0) for number, nodes in enumerate(replicas)
    )
    return TopicInfo(name, "id", internal=False, partitions=parts, settings={})


@pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_one_or_three_nodes_are_controllers(brokers: int, controllers: int) -> None:
    note = planned(brokers)

    assert len(note.nodes) == brokers
    assert sorted(note.controllers) == list(range(1, controllers + 1))
    ports = [port for at in note.nodes.values() for port in (at.port, at.controller) if port]
    assert len(set(ports)) == len(ports)
    assert note.copies == min(brokers, 3)


def test_the_ports_follow_the_first_one() -> None:
    note = planned(3, first_port=9092)

    assert note.address == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_a_cluster_is_stored_and_read_back(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "brokers")
    note = planned(4)

    assert folder.note() is None
    assert folder.create(note) == note
    assert folder.create(planned(3)) == note, "the first writer decides"
    assert folder.existing() == note
    assert [entry.name for entry in folder.path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "nodes": 3}'])
def test_a_damaged_cluster_file_is_named(tmp_path: Path, text: str) -> None:
    folder = ClusterFolder(tmp_path)
    folder.file.write_text(text)

    with pytest.raises(Damaged, match=r"needs a readable .*cluster\.json"):
        folder.note()
    with pytest.raises(Damaged):
        cluster.status(tmp_path)


def test_an_unused_folder_has_no_cluster(tmp_path: Path) -> None:
    assert cluster.status(tmp_path).nodes == {}
    assert cluster.running_address(tmp_path) is None
    assert cluster.stop(tmp_path) is cluster.kill(tmp_path) is cluster.is_chosen(tmp_path) is False
    with pytest.raises(NotFound, match="millstream up --brokers 3"):
        cluster.start_node(1, tmp_path)


@pytest.mark.parametrize("number", [0, -1, 10, True])
def test_an_invalid_number_of_brokers_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(InvalidInput, match="has 1 to 9 brokers"):
        cluster.start(tmp_path, brokers=number)


def test_starting_does_not_change_the_number_of_brokers(tmp_path: Path) -> None:
    ClusterFolder(tmp_path).create(planned(3))

    with pytest.raises(InvalidInput, match=r"has 3 brokers; got 5; .*brokers add"):
        cluster.start(tmp_path, brokers=5)


def test_only_a_controller_has_the_controller_role_and_listener() -> None:
    nodes = {1: NodePorts(9092, 9192), 2: NodePorts(9093)}
    note = ClusterNote("id", 2, nodes)

    controller, other = (note.seat(node).settings(nodes[node].port, {}) for node in (1, 2))

    assert controller["process.roles"] == "broker,controller"
    assert controller["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"
    assert other["process.roles"] == "broker"
    assert other["listeners"] == "BROKER://127.0.0.1:9093"
    assert controller["controller.quorum.voters"] == other["controller.quorum.voters"]


def test_min_insync_replicas_is_two_of_three_and_one_of_one() -> None:
    three, one = Seat({1: 9192}, copies=3), Seat({1: 9192})

    assert three.settings(9092, {})["min.insync.replicas"] == 2
    assert three.settings(9092, {"min.insync.replicas": 1})["min.insync.replicas"] == 1
    assert one.settings(9092, {})["min.insync.replicas"] == 1


def test_the_port_of_a_relay_is_advertised() -> None:
    settings = Seat({1: 9192}, relayed=(9093, 19093)).settings(9092, {})

    assert "RELAYED://127.0.0.1:9093" in str(settings["listeners"])
    assert settings["advertised.listeners"] == "BROKER://127.0.0.1:9092,RELAYED://127.0.0.1:19093"


def test_replicas_are_assigned_round_robin_and_correct_ones_stay() -> None:
    info = topic("t", (1, 2), (2, 3), (1, 2))

    assert assign_replicas(info, [1, 2, 3]) == {("t", 2): (3, 1)}
    assert assign_replicas(info, [4, 5], partitions=[1]) == {("t", 1): (5, 4)}
    assert assign_replicas(info, [4], partitions=[0], replicas=1) == {("t", 0): (4,)}


def test_draining_moves_each_replica_to_the_broker_with_the_fewest() -> None:
    topics = [topic("a", (1, 4), (4, 2)), topic("b", (3, 4), (1, 2))]

    moves = drain_plan(4, topics, [1, 2, 3])

    assert moves == {("a", 0): (1, 3), ("a", 1): (1, 2), ("b", 0): (3, 2)}
    assert drain_plan(9, topics, [1, 2, 3]) == {}
