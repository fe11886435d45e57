"""The facts of one batch: counts, watermarks, lane, times. Stored in its commit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Facts:
    """The facts of one batch: how many `rows` were read, and how many were `late` or `dead`.

    Late changes of a table are counted as late, though they are applied. `read` has the rows per
    source; `steps` has per stage the rows in and out, late and dead rows, rows behind the watermark
    that were still used, seconds and size of state, in total and per instance; `sources` has per
    source the rows, watermark and idleness of its partitions; `held_by` is the partition that holds
    back the watermark; `ahead` counts the rows that were read before the batch started; `alerts`
    are warnings. `where` is what ran the batch: `spark`, the driver while Spark started (`bridge`),
    or the driver alone (`driver`). `checkpoint` has the files and bytes of the checkpoint, the free
    space of its disk, and a warning if that will soon be full, as of the last clean-up.
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
    where: str = "driver"
    checkpoint: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def body(self) -> dict[str, Any]:
        """The facts as JSON, with times as ISO text."""
        body = asdict(self)
        body["watermarks"] = {
            name: None if at is None else at.isoformat() for name, at in self.watermarks.items()
        }
        body["clock"] = None if self.clock is None else self.clock.isoformat()
        return body


def lane_name(stored: str) -> str:
    """The lane of a stored batch. Earlier versions wrote "short" for the narrow lane."""
    return "narrow" if stored == "short" else stored


def place_of(facts: Mapping[str, Any]) -> str:
    """What ran a stored batch: `spark`, `bridge` or `driver`. Commits of earlier versions do not
    say it, and count as the driver's."""
    return str(facts.get("where") or "driver")


def moment_of(micros: int) -> datetime | None:
    """A time in microseconds as a datetime; None for no time, the maximum at the end of time."""
    if micros == MIN_TIME:
        return None
    if micros == END_OF_TIME:
        return datetime.max.replace(tzinfo=UTC)
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if micros > 0 else datetime.min.replace(tzinfo=UTC)
