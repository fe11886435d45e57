"""A console on a port of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.console.serving import Served, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A console over an empty stack."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "home"))
    with served(tmp_path / "home") as serving:
        yield serving
