"""A run is idle while it repeatedly looks for work and finds none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from millstream.engine.pace.idle_time import IdleTime

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("millstream.engine.pace.idle_time.time", clock)
    return lambda second: now.__setitem__(0, second)


def test_a_run_without_work_is_idle_since_its_first_look(at: Callable[[float], None]) -> None:
    run = IdleTime()
    assert run.seconds() == 0
    for second in (1.0, 2.0, 3.5):
        at(second)
        run.looked(found=False)
    assert run.seconds() == 2.5
    run.looked(found=True)
    assert run.seconds() == 0


def test_a_run_that_has_not_looked_for_long_is_busy(at: Callable[[float], None]) -> None:
    run = IdleTime()
    for second in (1.0, 2.0):
        at(second)
        run.looked(found=False)
    at(60.0)
    assert run.seconds() == 0
