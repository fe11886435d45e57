"""A broker expires the offsets of inactive groups, and with them the ledger of an idle job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from tests.faults import marks
from tests.kafka_faults.stage import Stage

from millstream.errors import DataGone
from millstream.sinks.kafka import writer as topic_writer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.marks import Mark

    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def stage(broker: ThrowAwayBroker, topic: str, tmp_path: Path) -> Stage:
    """A job that has written rows and ended."""
    found = Stage(broker.address, topic, tmp_path)
    found.make_topic(copies=1)
    with found.writing(), found.working():
        found.more()
    return found


def mark(stage: Stage) -> Mark | None:
    return marks.mark(stage.kafka, stage.name)


def forget(stage: Stage) -> None:
    """Delete the ledger, as a broker does after `offsets.retention.minutes`."""
    admin = AdminClient({"bootstrap.servers": stage.kafka, "log_level": 0})
    ledger = f"millstream.ledger.{stage.name}"
    admin.delete_consumer_groups([ledger])[ledger].result(30)


def test_an_idle_job_rewrites_its_ledger_entry(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_writer, "_REFRESH_SECONDS", 2.0)
    stage.job(until="caught_up").run()
    before = mark(stage)
    assert before is not None
    stage.phases.clear()
    with stage.working():
        stage.until(lambda: "running" in stage.phases, "a job that is open")
        forget(stage)
        assert mark(stage) is None
        stage.until(lambda: mark(stage) is not None, "the mark")

    assert mark(stage) == before
    stage.assert_right()


def test_an_expired_ledger_stops_the_job(stage: Stage) -> None:
    forget(stage)

    assert mark(stage) is None
    with pytest.raises(DataGone, match="none, though an earlier batch wrote one"):
        stage.job(until="caught_up").run()
