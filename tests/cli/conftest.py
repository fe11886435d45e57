"""The command on the shared broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.command import Command

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def millstream(broker: ThrowAwayBroker) -> Command:
    """The command on the shared broker."""
    return Command(broker.address)


@pytest.fixture
def offline() -> Command:
    """The command with no Kafka named and none running."""
    return Command(None)


@pytest.fixture
def clicks(millstream: Command, topic: str) -> str:
    """A topic with two partitions and nothing in it."""
    millstream.ok("topics", "create", topic, "--partitions", "2")
    return topic
