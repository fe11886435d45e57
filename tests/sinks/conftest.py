"""A receiver of webhooks, and a home of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sinks.receiving import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what the test writes down stays apart from others."""
    home = tmp_path / "home"
    monkeypatch.setenv("MILLSTREAM_HOME", str(home))
    return home


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Somebody who wants to be told."""
    with Receiver() as running:
        yield running
