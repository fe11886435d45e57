"""The specs of tumbling and hopping windows and of everything(): validated frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from millstream.duration import Duration, micros, positive_micros, text
from millstream.errors import InvalidSpec

LONGEST = 2**62  # microseconds, 146 000 years: sums of two stay within 64 bits
DAY = 86_400_000_000
Clock = Literal["event", "processing"]


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows `[start, start + size)`, one after the other, aligned to the epoch + `offset`.

    Both are microseconds. The offset is normalised to less than one size, so equal windows
    compare equal: `Tumbling(10, 12) == Tumbling(10, 2)`. With a `zone`, days are that zone's.
    """

    size: int
    offset: int = 0
    zone: str | None = None
    clock: Clock = "event"

    def __post_init__(self) -> None:
        _check_length("tumbling", "size", self.size, 'write tumbling("10 seconds")')
        object.__setattr__(self, "offset", self.offset % self.size)
        _check_zone("tumbling", self.zone, self.size)
        _check_clock("tumbling", self.clock)

    @property
    def every(self) -> int:
        """The distance from one start to the next."""
        return self.size

    def __str__(self) -> str:
        return f'tumbling("{text(self.size)}"{_more(self.offset, self.zone, self.clock)})'


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows `[start, start + size)`, one every `every`, aligned to the epoch + `offset`.

    With `every` below the size they overlap; above it they sample, and rows between two
    windows are in none.
    """

    size: int
    every: int
    offset: int = 0
    zone: str | None = None
    clock: Clock = "event"

    def __post_init__(self) -> None:
        _check_length("hopping", "size", self.size, _HOPPING)
        _check_length("hopping", "every", self.every, _HOPPING)
        if self.size // gcd(self.size, self.every) > MOST_SLICES:
            raise InvalidSpec(
                f"hopping needs a size of at most {MOST_SLICES} slices (of the largest length "
                "that divides both)",
                got=f"size {text(self.size)}, every {text(self.every)}",
                do="choose an `every` that divides the size, or is larger",
            )
        object.__setattr__(self, "offset", self.offset % self.every)
        _check_zone("hopping", self.zone, gcd(self.size, self.every))
        _check_clock("hopping", self.clock)

    def __str__(self) -> str:
        more = _more(self.offset, self.zone, self.clock)
        return f'hopping("{text(self.size)}", every="{text(self.every)}"{more})'


@dataclass(frozen=True, slots=True)
class Everything:
    """One window per key, which never ends: emitted by a trigger and at the finish."""

    def __str__(self) -> str:
        return "everything()"


MOST_SLICES = 100_000
_HOPPING = 'write hopping("10 seconds", every="1 second")'


def tumbling(
    size: Duration,
    *,
    offset: Duration = "0 seconds",
    zone: str | None = None,
    clock: Clock = "event",
) -> Tumbling:
    """Windows of one size without overlap; every row is in exactly one.

    With `zone`, windows of whole days follow the days of a time zone, with 23 or 25 hours when
    its clocks change. `clock="processing"` uses the batch clock instead of the row's time.

    >>> print(tumbling("1 hour", offset="-15 minutes"))
    tumbling("1 hour", offset="45 minutes")

    Raises:
        InvalidSpec: the size is not above zero, not a duration, or the zone is unknown.
    """
    return Tumbling(
        positive_micros(size, what="the size of tumbling"),
        micros(offset, what="the offset of tumbling"),
        zone,
        clock,
    )


def hopping(
    size: Duration,
    *,
    every: Duration,
    offset: Duration = "0 seconds",
    zone: str | None = None,
    clock: Clock = "event",
) -> Hopping:
    """Windows of one size, one every `every`: a row is in size ÷ every of them.

    >>> print(hopping("1 minute", every="10 seconds"))
    hopping("1 minute", every="10 seconds")
    """
    return Hopping(
        positive_micros(size, what="the size of hopping"),
        positive_micros(every, what="the `every` of hopping"),
        micros(offset, what="the offset of hopping"),
        zone,
        clock,
    )


def everything() -> Everything:
    """One window over all rows of a key; it needs a trigger, or a run that finishes."""
    return Everything()


def _check_length(window: str, word: str, length: int, do: str) -> None:
    if not 0 < length < LONGEST:
        raise InvalidSpec(
            f"{window} needs a {word} above zero and below {text(LONGEST)}",
            got=text(length),
            do=do,
        )


def _check_zone(window: str, zone: str | None, unit: int) -> None:
    if zone is None:
        return
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError):
        raise InvalidSpec(f"{window}(zone=…) needs the name of a time zone", got=repr(zone),
                          do='write zone="Europe/Berlin"') from None  # fmt: skip
    if unit % DAY:
        raise InvalidSpec(f"{window}(zone=…) needs windows of whole days", got=text(unit),
                          do="leave zone= out: shorter ones are the same everywhere")  # fmt: skip


def _check_clock(window: str, clock: str) -> None:
    if clock not in get_args(Clock):
        raise InvalidSpec(f'{window}(clock=…) needs "event" or "processing"', got=repr(clock),
                          do="leave it out for event time")  # fmt: skip


def _more(offset: int, zone: str | None, clock: str) -> str:
    parts = [f', offset="{text(offset)}"'] if offset else []
    parts += [f', zone="{zone}"'] if zone else []
    parts += [f', clock="{clock}"'] if clock != "event" else []
    return "".join(parts)
