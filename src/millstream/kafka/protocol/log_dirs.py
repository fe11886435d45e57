"""How many bytes partitions hold on disk: a question that librdkafka cannot ask.

Asked over a plain socket (DescribeLogDirs, version 1), so of listeners without security only.
"""

from __future__ import annotations

import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from millstream.kafka.protocol.wire import Answer, Connection, WireError, leaders, place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.kafka.settings import Cluster

_LOG_DIRS = (35, 1)


def sizes(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes of each partition at its leader; those that nobody tells are left out."""
    if cluster.settings:
        return {}
    found: dict[int, int] = {}
    places = _leaders(cluster, topic)
    for leader in set(places.values()):
        led = [partition for partition, at in places.items() if at == leader]
        with suppress(OSError), closing(Connection(*leader)) as connection:
            found |= _asked(connection, topic, led)
    return found


def _leaders(cluster: Cluster, topic: str) -> dict[int, tuple[str, int]]:
    """Who leads which partition, as the first broker says that answers."""
    for server in cluster.address.split(","):
        with suppress(OSError), closing(Connection(*place(server))) as connection:
            return leaders(connection, topic)
    return {}


def _asked(connection: Connection, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    name, wanted = topic.encode(), sorted(partitions)
    connection.ask(
        _LOG_DIRS,
        struct.pack(">ih", 1, len(name)) + name + struct.pack(f">i{len(wanted)}i", len(wanted),
                                                              *wanted),
    )  # fmt: skip
    told = Answer(connection.answer())
    told.number("i")
    found: dict[int, int] = {}
    for _ in told.count():
        error = told.number("h")
        told.text()
        for _ in told.count():
            told.text()
            for _ in told.count():
                partition, size, _, future = told.numbers("iqq?")
                if not error and not future:
                    found[partition] = size
    if not set(found) <= set(wanted):
        raise WireError("an answer about other partitions")
    return found
