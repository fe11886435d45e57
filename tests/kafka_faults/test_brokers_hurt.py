"""Brokers die, stand still and come back under a running job: nothing is lost or doubled."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import pytest
from tests.kafka_faults.stage import Stage, give_up

from millstream.engine.lanes.prefetch import Prefetched, Prefetcher
from millstream.errors import Unavailable
from millstream.kafka.admin.brokers import Brokers
from millstream.kafka.admin.topics import Topics
from millstream.kafka.protocol import connection
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_brokers import ThrowAwayBrokers

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def stage(three: ThrowAwayBrokers, topic: str, tmp_path: Path) -> Stage:
    found = Stage(three.address, topic, tmp_path)
    found.make_topic()
    return found


def leader_of(stage: Stage) -> int:
    leader = Topics(stage.kafka).describe(stage.topic).partitions[0].leader
    assert leader is not None
    return leader


def without_a_leader(stage: Stage, dead: int) -> float:
    """Seconds until every partition the dead one led is led by another."""
    began = time.monotonic()

    def taken_over() -> bool:
        leaders = {part.leader for part in Topics(stage.kafka).describe(stage.topic).partitions}
        return not leaders & {dead, None}

    stage.until(taken_over, "another leader")
    return time.monotonic() - began


def kill_two(three: ThrowAwayBrokers, stage: Stage) -> None:
    """Two die at once; when the job has said that it waits they come back, and it goes on."""
    stage.phases.clear()
    for node in (1, 2):
        three[node].kill()
    stage.until(
        lambda: any(f"waiting for Kafka at {stage.kafka}" in said for said in stage.phases),
        "a word about it",
    )
    seen = len(stage.rows)
    three.revive()
    stage.until(lambda: len(stage.rows) > seen + 1, "batches after the outage")


def test_the_death_of_a_leader_loses_and_doubles_nothing(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        dead = leader_of(stage)
        three[dead].kill()
        print(f"\nwithout a leader for {without_a_leader(stage, dead):.1f} s")
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_while_two_of_three_are_down_the_job_waits_and_says_so_and_goes_on_by_itself(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        kill_two(three, stage)
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_a_leader_that_stands_still_is_left_for_another(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        still = leader_of(stage)
        three[still].pause()
        try:
            stage.more()
        finally:
            three[still].resume()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_without_a_limit_on_silence_the_job_stands_as_still_as_the_broker(
    three: ThrowAwayBrokers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above, switched off. (What is read ahead has connections of its own,
    and might never need the one that stands still.)"""
    monkeypatch.setattr(connection, "TIMEOUT", 1000.0)
    monkeypatch.setattr(Prefetcher, "take", lambda _self, _name, ranges, _: Prefetched((), ranges))
    with stage.writing(), stage.working():
        stage.more()
        still = leader_of(stage)
        three[still].pause()
        try:
            time.sleep(30)
            seen = len(stage.rows)
            time.sleep(10)
            stood = len(stage.rows) == seen
        finally:
            three[still].resume()
        stage.more()
    stage.assert_right()
    assert stood


@pytest.mark.soak
def test_the_death_of_the_controller_holds_nobody_up(three: ThrowAwayBrokers, stage: Stage) -> None:
    with stage.writing(), stage.working():
        stage.more()
        dead = Brokers(three.address).quorum().leader
        three[dead].kill()
        stage.more(1000)
        assert Brokers(three.address).quorum().leader != dead
        three[dead].start()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
@pytest.mark.parametrize("who", ["a leader", "the controller", "two of three", "a full disk"])
def test_without_trying_again_the_job_ends_with_a_broker(
    three: ThrowAwayBrokers, stage: Stage, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the tests of dying brokers, switched off."""
    monkeypatch.setattr(WireFetcher, "_again", give_up)
    with stage.writing(), stage.working():
        stage.more()
        if who == "a full disk":
            fill_the_disk(three, leader_of(stage))
        elif who == "two of three":
            three[1].kill()
            three[2].kill()
        else:
            leads = (
                leader_of(stage) if who == "a leader" else Brokers(three.address).quorum().leader
            )
            three[leads].kill()
        with pytest.raises(AssertionError, match="the job ended instead"):
            stage.more(2000)
        three.revive()

    assert isinstance(stage.error, Unavailable)


def fill_the_disk(three: ThrowAwayBrokers, node: int) -> None:
    """No file of that broker can grow any more."""
    pid = three[node].pid
    assert pid is not None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))


@pytest.mark.soak
def test_a_broker_whose_disk_is_full_ends_and_the_others_go_on(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        leader = leader_of(stage)
        fill_the_disk(three, leader)
        stage.until(lambda: not three[leader].status().running, "the end of that broker")
        stage.more()
        three[leader].start()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_every_broker_dies_in_turn(three: ThrowAwayBrokers, stage: Stage) -> None:
    with stage.writing(), stage.working():
        for node in (1, 2, 3, 1):
            three[node].kill()
            stage.more()
            three.repair()
            stage.more()
    stage.assert_right()
