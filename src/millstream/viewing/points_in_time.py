"""Points in time as people write them: `-1h`, `2026-01-01T12:00`, `beginning`, `end`, `@1200`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from millstream.duration import micros
from millstream.errors import InvalidInput, InvalidSpec
from millstream.viewing.escape import shortened

PointInTime = Literal["start", "end"] | datetime | int

_NAMED: dict[str, Literal["start", "end"]] = {
    "beginning": "start",
    "start": "start",
    "earliest": "start",
    "end": "end",
    "now": "end",
    "latest": "end",
}
_OFFSET = re.compile(r"@[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_point_in_time(text: str, *, what: str, now: datetime | None = None) -> PointInTime:
    """A position in a log: start or end, a time, or (as an `int`) an offset.

    Raises:
        InvalidInput: the text is none of these.
    """
    trimmed = text.strip()
    if trimmed.lower() in _NAMED:
        return _NAMED[trimmed.lower()]
    if _OFFSET.fullmatch(trimmed):
        return int(trimmed[1:])
    try:
        if trimmed.startswith("-"):
            return _ago(trimmed[1:], now or datetime.now(UTC))
        return instant(trimmed)
    except (InvalidInput, InvalidSpec, OverflowError):
        raise InvalidInput(
            f"{what} needs a point in time",
            got=shortened(text),
            do="write beginning, end, a time ago (-1h, -30min), a time (2026-01-01T12:00, in "
            "UTC by default) or an offset (@1200)",
        ) from None


def instant(text: str) -> datetime:
    """A point in time: ISO text (no zone means UTC) or epoch milliseconds.

    Raises:
        InvalidInput: the text is neither.
    """
    trimmed = text.strip()
    try:
        if trimmed.isascii() and trimmed.isdigit() and len(trimmed) > 8:
            return _EPOCH + timedelta(milliseconds=int(trimmed))
        parsed = datetime.fromisoformat(trimmed)
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "this is not a time",
            got=shortened(text),
            do="write it like 2026-01-01T12:00 or as milliseconds since 1970",
        ) from None


def point(text: str, *, what: str, now: datetime | None = None) -> datetime:
    """A time, or a time ago.

    Raises:
        InvalidInput: the text is neither.
    """
    found = parse_point_in_time(text, what=what, now=now)
    if isinstance(found, datetime):
        return found
    raise InvalidInput(
        f"{what} needs a time",
        got=shortened(text),
        do="write a time (2026-01-01T12:00) or a time ago (-1h)",
    )


def iso(point: datetime) -> str:
    """A time for programs: ISO, UTC, microseconds, `Z`."""
    return point.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _ago(length: str, now: datetime) -> datetime:
    back = micros(length)
    if back < 0:
        raise InvalidSpec("a time ago has one minus", got=length)
    return now - timedelta(microseconds=back)
