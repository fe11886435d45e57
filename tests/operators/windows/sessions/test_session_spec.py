"""The spec of session windows: a value that compares, prints, and refuses what means nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream.errors import InvalidSpec
from millstream.operators.windows.sessions.spec import LONGEST, Session, session


def test_a_session_is_its_gap_in_microseconds() -> None:
    assert session(gap="30 minutes") == session(gap=timedelta(minutes=30)) == Session(1_800_000_000)


def test_a_session_prints_as_it_is_written() -> None:
    assert str(session(gap="90 seconds")) == 'session(gap="1 minute 30 seconds")'


@pytest.mark.parametrize("gap", ["0 seconds", "-1 second", "soon", 10, None])
def test_a_gap_that_is_not_a_length_is_refused(gap: Any) -> None:
    with pytest.raises(InvalidSpec, match="the gap of session needs a duration"):
        session(gap=gap)


@pytest.mark.parametrize("gap", [0, -1, LONGEST])
def test_a_gap_out_of_range_is_refused_however_it_is_made(gap: int) -> None:
    with pytest.raises(InvalidSpec, match="session needs a gap above zero and below"):
        Session(gap)
