"""Reading the ledger is retried while brokers come and go, never with a reader that has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.faults.writer_stage import Stage

from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker


class Failing:
    """A reader that always raises the same error."""

    def __init__(self, code: int) -> None:
        self._code, self.calls = code, 0

    def committed(self, *_: object, timeout: float) -> None:
        assert timeout > 0
        self.calls += 1
        raise KafkaException(KafkaError(self._code))


@pytest.fixture
def stage(broker: ThrowAwayBroker, topic: str) -> Iterator[Stage]:
    made = Stage(broker.address, topic)
    yield made
    made.close()


@pytest.mark.parametrize("code", [
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT_QUEUE, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_COORDINATOR, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.UNSTABLE_OFFSET_COMMIT,
])  # fmt: skip
def test_a_reader_is_recreated_after_its_brokers_were_unavailable(stage: Stage, code: int) -> None:
    writer = stage.writer()
    writer.recover(None)
    writer.write("one", 1, stage.rows(1))
    failing = Failing(code)
    writer._readers["read_committed"] = failing

    assert writer._ledger_entry() == ("job", "one")
    assert failing.calls == 1


def test_a_reader_without_authorization_fails_at_once(stage: Stage) -> None:
    writer = stage.writer()
    writer._readers["read_committed"] = Failing(KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(Unavailable, match="needs Kafka at"):
        writer._ledger_entry()
