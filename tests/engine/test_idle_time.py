"""A run is calm while it looks for work again and again and finds none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from millstream.engine.idle_time import IdleTime

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("millstream.engine.idle_time.time", clock)
    return lambda second: now.__setitem__(0, second)


def test_a_run_that_finds_nothing_is_calm_since_its_first_look(at: Callable[[float], None]) -> None:
    run = IdleTime()
    assert run.seconds() == 0
    for second in (1.0, 2.0, 3.5):
        at(second)
        run.looked(found=False)
    assert run.seconds() == 2.5
    run.looked(found=True)
    assert run.seconds() == 0


def test_a_run_that_does_not_come_round_is_slow_and_not_calm(at: Callable[[float], None]) -> None:
    run = IdleTime()
    for second in (1.0, 2.0):
        at(second)
        run.looked(found=False)
    at(60.0)
    assert run.seconds() == 0
