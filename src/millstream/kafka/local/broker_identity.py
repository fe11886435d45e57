"""Identify the broker at a port of this machine with one request, without a client's threads.

Metadata names the cluster, so a stranger on the port is not mistaken for the expected broker.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass

from millstream.kafka.protocol.connection import Connection
from millstream.kafka.protocol.messages import CLIENT_ID
from millstream.kafka.protocol.metadata import (
    GROUP,
    TRANSACTION,
    find_coordinator_request,
    metadata_request,
    parse_metadata_response,
)


@dataclass(frozen=True)
class Identity:
    """The id of a broker's cluster, and the nodes it lists there."""

    cluster: str
    nodes: tuple[int, ...]


def identify(port: int, *, timeout: float = 1.0) -> Identity | None:
    """What the broker at this port of the loopback replies, or None if none does."""
    try:
        with closing(Connection("127.0.0.1", port, timeout=timeout)) as connection:
            metadata = parse_metadata_response(connection.call(metadata_request()))
    except OSError:
        return None
    return Identity(metadata.cluster_id, tuple(metadata.brokers))


def create_coordinator_topics(port: int, *, timeout: float = 1.0) -> None:
    """Have the broker create its topics for groups and transactions now, in the background.

    By default it creates them when a client first needs a coordinator, and that client waits in
    steps of a second: the first group joins in 3 s instead of 0.2. A broker that does not reply
    is left alone.
    """
    with suppress(OSError), closing(Connection("127.0.0.1", port, timeout=timeout)) as connection:
        for key_type in (GROUP, TRANSACTION):
            connection.call(find_coordinator_request(key_type, CLIENT_ID))
