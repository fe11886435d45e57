"""The network between a job and its broker is cut, held up and slowed: the job goes on."""

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
    """A relay before a broker, and the broker's own address, for whoever writes and judges."""
    ports = {free_port() for _ in range(20)}
    behind, told = list(ports)[:2]
    with started(relayed=(behind, told)) as broker, Relay(told, behind).running() as relay:
        yield relay, broker.address


@pytest.fixture
def stage(relay: tuple[Relay, str], topic: str, tmp_path: Path) -> Iterator[Stage]:
    found = Stage(relay[0].address, topic, tmp_path, writes_to=relay[1])
    found.make_topic(copies=1)
    yield found
    relay[0].mend()


def test_a_network_that_is_cut_again_and_again_loses_and_doubles_nothing(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing(), stage.working():
        for pause in (0.0, 0.3, 1.5):
            stage.more(100)
            relay[0].cut()
            time.sleep(pause)
            relay[0].mend()
        stage.more()
    assert relay[0].passed, "everything goes through the relay"
    stage.assert_right()


def test_a_job_that_waits_for_its_network_hears_stop_and_goes_on_later(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing():
        with stage.working():
            stage.more(100)
            relay[0].cut()
            stage.until(lambda: any("waiting for Kafka" in said for said in stage.phases), "a word")
            began = time.monotonic()
        seconds = time.monotonic() - began
        relay[0].mend()

    assert stage.error is None
    assert seconds < 30, "the wait itself would be two minutes"
    stage.assert_right()


@pytest.mark.soak
def test_without_connecting_again_a_cut_network_ends_the_job(
    relay: tuple[Relay, str], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above, switched off."""
    monkeypatch.setattr(WireFetcher, "_again", give_up)
    with stage.writing(), stage.working():
        stage.more(100)
        relay[0].cut()
        relay[0].mend()
        until(lambda: stage.error is not None, "the end of the job", 60)

    assert isinstance(stage.error, Unavailable)


@pytest.mark.soak
def test_a_network_that_passes_nothing_for_a_while_is_waited_for(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        relay[0].hold()
        time.sleep(15)
        relay[0].mend()
        stage.more()
    stage.assert_right()


@pytest.mark.soak
def test_a_slow_network_makes_the_job_slow_and_no_more(
    relay: tuple[Relay, str], stage: Stage
) -> None:
    with stage.writing(), stage.working():
        stage.more()
        relay[0].slow(0.1)
        stage.more()
        relay[0].mend()
        stage.more()
    stage.assert_right()
