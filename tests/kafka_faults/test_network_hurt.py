"""The network between a job and its broker is cut, stalled and slowed: the job continues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.running import until
from tests.kafka_faults.relay import Relay
from tests.kafka_faults.stage import Stage, give_up

from millstream.errors import Unavailable
from millstream.kafka.local.broker_folder import free_port
from millstream.sources.kafka.wire_fetch import WireFetcher
from millstream.testing import broker as started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def relay(own_home: None) -> Iterator[tuple[Relay, str]]:
    """A relay to a broker, and the broker's own address, for the writer and the check."""
    ports = {free_port() for _ in range(20)}
    behind, public = list(ports)[:2]
    with started(relayed=(behind, public)) as broker, Relay(public, behind).running() as relay:
        yield relay, broker.address


@pytest.fixture
def stage(relay: tuple[Relay, str], topic: str, tmp_path: Path) -> Iterator[Stage]:
    found = Stage(relay[0].address, topic, tmp_path, writes_to=relay[1])
    found.make_topic(copies=1)
    yield found
    relay[0].restore()


def test_a_network_that_is_cut_repeatedly_loses_and_duplicates_nothing(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing(), stage.working():
        for pause in (0.0, 0.3, 1.5):
            stage.more(100)
            relay[0].cut()
            time.sleep(pause)
            relay[0].restore()
        stage.more()
    assert relay[0].passed, "all traffic goes through the relay"
    stage.assert_right()


def test_a_job_that_waits_for_the_network_can_be_stopped_and_continued(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing():
        with stage.working():
            stage.more(100)
            relay[0].cut()
            stage.until(
                lambda: any("waiting for Kafka" in phase for phase in stage.phases),
                "a report that it waits",
            )
            began = time.monotonic()
        seconds = time.monotonic() - began
        relay[0].restore()

    assert stage.error is None
    assert seconds < 30, "the wait itself would be two minutes"
    stage.assert_right()


@pytest.mark.soak
def test_without_reconnecting_a_cut_network_fails_the_job(
    relay: tuple[Relay, str], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above depends on reconnecting."""
    monkeypatch.setattr(WireFetcher, "_again", give_up)
    with stage.writing(), stage.working():
        stage.more(100)
        relay[0].cut()
        relay[0].restore()
        until(lambda: stage.error is not None, "the end of the job", 60)

    assert isinstance(stage.error, Unavailable)


@pytest.mark.soak
def test_a_job_waits_while_the_network_stalls(relay: tuple[Relay, str], stage: Stage) -> None:
    with stage.writing(), stage.working():
        stage.more()
        relay[0].stall()
        time.sleep(15)
        relay[0].restore()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_a_slow_network_only_slows_the_job_down(relay: tuple[Relay, str], stage: Stage) -> None:
    with stage.writing(), stage.working():
        stage.more()
        relay[0].slow(0.1)
        stage.more()
        relay[0].restore()
        stage.more()
    stage.assert_right()
