"""`Topic` as a sink, with and without transactions: the suite of all sinks."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.verifier import Log
from tests.sinks.batches import opened, staged

from millstream.errors import MillstreamError
from millstream.kafka.settings import Cluster
from millstream.sinks.kafka.plain_writer import PlainTopicWriter
from millstream.sinks.kafka.writer import TopicWriter
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer
    from millstream.testing.local_broker import ThrowAwayBroker


# A commit is acknowledged before its markers are in the partitions and the rows become visible.
MARKED = 10.0


@dataclass(frozen=True)
class TopicOf:
    """A topic of one cluster, as a sink that can be opened."""

    name: str
    address: str

    @property
    def system(self) -> str:
        return "kafka"

    def writer(self, opening: Opening) -> Writer:
        kind = PlainTopicWriter if opening.delivery == "at_least_once" else TopicWriter
        opening = replace(opening, pipeline=self.name, patience=max(30.0, opening.patience))
        return kind(Cluster.resolve(self.address), opening)


class TestTopic(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, broker: ThrowAwayBroker, topic: str) -> None:
        self.address, self.topic = broker.address, topic

    def sink(self) -> TopicOf:
        return TopicOf(self.topic, self.address)

    def rows(self) -> list[dict[str, Any]]:
        log = Log(self.address)
        count = log.topics()[self.topic]
        deadline = time.monotonic() + MARKED
        while time.monotonic() < deadline and (
            log.ends(self.topic, count, committed=True)
            != log.ends(self.topic, count, committed=False)
        ):
            time.sleep(0.02)
        return [json.loads(r.value()) for r in log.records(self.topic, count)]

    def seen(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if isinstance(value, date | Decimal):
            return str(value)
        if isinstance(value, bytes):
            return "AP9c"
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)


def test_without_transactions_a_row_that_is_too_large_stops_at_once(
    broker: ThrowAwayBroker, topic: str
) -> None:
    sink = TopicOf(topic, broker.address)
    writer = opened(sink, delivery="at_least_once")
    with pytest.raises(MillstreamError, match="needs to fit into one Kafka record"):
        writer.write("one", 1, [staged(sink, n=[random.Random(7).randbytes(1_000_000).hex()])])
    writer.write("two", 2, [staged(sink, n=["y"])])
    writer.close()
    log = Log(broker.address)
    assert len(log.records(topic, log.topics()[topic])) == 1
