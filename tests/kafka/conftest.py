"""The shared broker, with helpers that read and write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.shortly import Log

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def log(broker: ThrowAwayBroker) -> Log:
    return Log(broker.address)
