"""A console on a free port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.console.serving import Served, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A console over an empty stack."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    with served(tmp_path / "home") as serving:
        yield serving


@pytest.fixture(scope="module")
def kafka_console(
    tmp_path_factory: pytest.TempPathFactory, broker: ThrowAwayBroker
) -> Iterator[Served]:
    """A console whose stack has the real Kafka of this run; one for all tests of a file."""
    home = tmp_path_factory.mktemp("home")
    with served(home, kafka=broker.address) as serving:
        yield serving
