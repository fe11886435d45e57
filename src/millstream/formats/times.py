"""Parses times as in JSON: ISO text, or integer milliseconds since the epoch.

Results are microseconds (days for dates) since 1970 in UTC, within the years 1 to 9999, the range
that Python's `datetime` and Spark share.
"""

from __future__ import annotations

import re
from datetime import date

LEAST = -62_135_596_800_000_000
GREATEST = 253_402_300_799_999_999
_EPOCH = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class InvalidTime(ValueError):
    """The text or number is not a valid time; the message completes "got …"."""


def parse_date(text: str) -> int:
    """Days since the epoch of `YYYY-MM-DD`."""
    if _DAY.fullmatch(text) is None:
        raise InvalidTime("text that is not YYYY-MM-DD")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH
    except ValueError:
        raise InvalidTime("a day that does not exist") from None


def parse_timestamp(text: str, *, zoned: bool) -> int:
    """Microseconds since the epoch of ISO text; text without a zone is UTC.

    With `zoned=False` (a wall-clock time) the text must not have a zone.
    """
    found = _ISO.fullmatch(text)
    if found is None:
        raise InvalidTime("text that is not an ISO time")
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidTime("an hour, minute or second that does not exist")
    clock = ((parse_date(found["day"]) * 24 + hour) * 60 + minute) * 60 + second
    zone = found["zone"]
    if zone is not None and not zoned:
        raise InvalidTime("a time with a zone")
    return check_range((clock - _offset(zone)) * 1_000_000 + _fraction(found["part"] or ""))


def from_millis(number: int) -> int:
    """Microseconds since the epoch of integer milliseconds."""
    return check_range(number * 1_000)


def check_range(instant: int) -> int:
    """Return the instant if it is within the years 1 to 9999."""
    if not LEAST <= instant <= GREATEST:
        raise InvalidTime("a time outside the years 1 to 9999")
    return instant


def _fraction(digits: str) -> int:
    padded = digits.ljust(9, "0")
    if padded[6:] != "000":
        raise InvalidTime("a time finer than a microsecond")
    return int(padded[:6])


def _offset(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise InvalidTime("a zone that does not exist")
    return (-1 if zone[0] == "-" else 1) * (hours * 60 + minutes) * 60
