"""Brokers are killed, paused and restarted while a job runs: nothing is lost or duplicated."""

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


def leaderless_seconds(stage: Stage, dead: int) -> float:
    """Seconds until other brokers lead all partitions that the dead one led."""
    began = time.monotonic()

    def failed_over() -> bool:
        leaders = {part.leader for part in Topics(stage.kafka).describe(stage.topic).partitions}
        return not leaders & {dead, None}

    stage.until(failed_over, "another leader")
    return time.monotonic() - began


def kill_two(three: ThrowAwayBrokers, stage: Stage) -> None:
    """Kill two at once; restart them when the job reports that it waits; it then continues."""
    stage.phases.clear()
    for node in (1, 2):
        three[node].kill()
    stage.until(
        lambda: any(f"waiting for Kafka at {stage.kafka}" in phase for phase in stage.phases),
        "a report that it waits",
    )
    seen = len(stage.rows)
    three.revive()
    stage.until(lambda: len(stage.rows) > seen + 1, "batches after the outage")


def test_killing_a_leader_loses_and_duplicates_nothing(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        dead = leader_of(stage)
        three[dead].kill()
        print(f"\nwithout a leader for {leaderless_seconds(stage, dead):.1f} s")
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_while_two_of_three_are_down_the_job_reports_it_waits_and_continues(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        kill_two(three, stage)
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_a_job_switches_from_a_paused_leader_to_another(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        paused = leader_of(stage)
        three[paused].pause()
        try:
            stage.more()
        finally:
            three[paused].resume()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_without_a_timeout_the_job_is_stuck_while_the_broker_is_paused(
    three: ThrowAwayBrokers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the timeout makes the test above pass. Prefetching is switched off, because it
    has separate connections and might not need the one to the paused broker."""
    monkeypatch.setattr(connection, "TIMEOUT", 1000.0)
    monkeypatch.setattr(Prefetcher, "take", lambda _self, _name, ranges, _: Prefetched((), ranges))
    with stage.writing(), stage.working():
        stage.more()
        paused = leader_of(stage)
        three[paused].pause()
        try:
            time.sleep(30)
            seen = len(stage.rows)
            time.sleep(10)
            stuck = len(stage.rows) == seen
        finally:
            three[paused].resume()
        stage.more()
    stage.assert_right()
    assert stuck


@pytest.mark.soak
def test_killing_the_active_controller_does_not_stop_the_job(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
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
def test_without_retries_the_job_fails_with_a_broker(
    three: ThrowAwayBrokers, stage: Stage, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the tests of dying brokers depend on retries."""
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
    """Limit the size of that broker's files, so that writes fail."""
    pid = three[node].pid
    assert pid is not None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))


@pytest.mark.soak
def test_a_broker_with_a_full_disk_exits_and_the_job_continues_with_the_others(
    three: ThrowAwayBrokers, stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        leader = leader_of(stage)
        fill_the_disk(three, leader)
        stage.until(lambda: not three[leader].status().running, "the exit of that broker")
        stage.more()
        three[leader].start()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_all_brokers_are_killed_one_after_another(three: ThrowAwayBrokers, stage: Stage) -> None:
    with stage.writing(), stage.working():
        for node in (1, 2, 3, 1):
            three[node].kill()
            stage.more()
            three.repair()
            stage.more()
    stage.assert_right()
