"""Appends record batches to a real broker unchanged, including ones no client would send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.batch_writing import Whole, Written

from millstream.kafka.protocol.connection import Connection, parse_address
from millstream.kafka.protocol.transactions import (
    Identity,
    parse_produce_response,
    produce_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.testing.local_broker import ThrowAwayBroker


def append(broker: ThrowAwayBroker, topic: str, batch: Whole, partition: int = 0) -> None:
    """Append one batch, which the leader checks and acknowledges."""
    connection = Connection(*parse_address(broker.address))
    try:
        request = produce_request(Identity(None, -1, -1), topic, partition, batch.bytes(), 30_000)
        assert parse_produce_response(connection.call(request)) == 0
    finally:
        connection.close()


def large(count: int, value: Callable[[int], bytes]) -> Whole:
    """Records that compress to almost nothing."""
    return Whole(0, tuple(Written(n, value(n)) for n in range(count)), "zstd",
                 first_stamp=1_767_225_600_000)  # fmt: skip
