"""A receiver of webhooks, and a separate MILLSTREAM_HOME."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sinks.receiving import Receiver

from millstream.sinks.alerts import writer as alert_writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate MILLSTREAM_HOME. Closing a writer waits until everything is sent, however busy
    the machine is."""
    home = tmp_path / "home"
    monkeypatch.setenv("MILLSTREAM_HOME", str(home))
    monkeypatch.setattr(alert_writer, "_CLOSE_SECONDS", 300.0)
    return home


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
