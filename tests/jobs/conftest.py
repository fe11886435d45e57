"""A stack per test, on the shared broker; no process is left afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.jobs.stacks import Stack, new_stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def stack(broker: ThrowAwayBroker, tmp_path: Path) -> Iterator[Stack]:
    """A new stack, not started."""
    with new_stack(tmp_path / "home", broker.address) as stack:
        yield stack
