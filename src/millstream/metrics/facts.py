"""What one batch was: counts, watermarks, lane, times. Kept in its commit, shown to people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Facts:
    """The facts of one batch: `rows` were read, `late` and `dead` left by those doors.

    Changes of a table that were late were applied all the same; they count as late.
    `read` has the rows per source; `steps` per stage the rows in and out, late and dead, those
    behind the watermark that were used all the same, the seconds it took, what it remembers
    afterwards, and all that per instance; `sources` per source what its partitions gave, how far
    each has come, and which are idle; `held_by` the partition that holds its watermark back;
    `ahead` how many rows had been read before the batch began; `alerts` what is worth a warning.
    """

    batch: int
    rows: int
    late: int
    dead: int
    lane: str
    watermarks: dict[str, datetime | None] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    extra: int = 0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    state_rows: int = 0
    state_bytes: int = 0
    read: dict[str, int] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    held_by: dict[str, int | None] = field(default_factory=dict)
    alerts: tuple[str, ...] = ()
    clock: datetime | None = None
    behind: int = 0
    ahead: int = 0
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def body(self) -> dict[str, Any]:
        """As JSON: times as ISO text."""
        body = asdict(self)
        body["watermarks"] = {
            name: None if at is None else at.isoformat() for name, at in self.watermarks.items()
        }
        body["clock"] = None if self.clock is None else self.clock.isoformat()
        return body


def lane_name(stored: str) -> str:
    """The lane of a stored batch. Earlier versions wrote "short" for the narrow lane."""
    return "narrow" if stored == "short" else stored


def moment_of(micros: int) -> datetime | None:
    """A time as people read it; None before the beginning, the last one at the end of time."""
    if micros == MIN_TIME:
        return None
    if micros == END_OF_TIME:
        return datetime.max.replace(tzinfo=UTC)
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)
