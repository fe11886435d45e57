"""Points in time as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from millstream.errors import InvalidInput
from millstream.viewing.points_in_time import instant, iso, parse_point_in_time, point

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", "start"),
        ("END", "end"),
        ("-1h", NOW - timedelta(hours=1)),
        ("-1h 30min", NOW - timedelta(minutes=90)),
        ("-2 days", NOW - timedelta(days=2)),
        ("2026-01-01T12:00", NOON),
        ("2026-01-01 12:00:00Z", NOON),
        ("2026-01-01T14:00+02:00", NOON),
        ("2026-01-01", NOON - timedelta(hours=12)),
        ("1767268800000", NOON),
        ("@1200", 1200),
    ],
)
def test_a_point_in_time_is_parsed(text: str, expected: object) -> None:
    assert parse_point_in_time(text, what="--from", now=NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-", "--1h", "-1", "-5 parsecs", "2026-13-01", "@", "@-1", "@x",
     "-99999999999 days", "9" * 30, "9" * 5000, "\x1b[2J"],
)  # fmt: skip
def test_text_that_is_not_a_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_point_in_time(text, what="--from", now=NOW)
    assert str(raised.value).startswith("--from needs a point in time; got '")
    assert "\x1b" not in str(raised.value)


def test_a_timestamp_must_be_a_time_not_a_position() -> None:
    assert point("-1h", what="--timestamp", now=NOW) == NOW - timedelta(hours=1)
    with pytest.raises(InvalidInput, match="--timestamp needs a time; got '@5'"):
        point("@5", what="--timestamp")


def test_a_time_round_trips() -> None:
    assert iso(instant("2026-01-01T14:00:00.000001+02:00")) == "2026-01-01T12:00:00.000001Z"
