"""Plays transcripts with the window oracle, to compare its results with the expected ones.

The text of a pipeline is evaluated with names that create the oracle's own windows and triggers.
What the oracle does not support (other windows, chains, SQL) is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.oracles import windows
from tests.oracles.windows_oracle import GREATEST, LEAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.transcripts.reading import Step, Transcript

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"microsecond": 1, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6,
         "day": 86400 * 10**6}  # fmt: skip
Pane = dict[str, Any]


class Unsupported(Exception):
    """A transcript uses something that this oracle does not support."""


def micros(text: str) -> int:
    """A duration in microseconds."""
    number, unit = text.split()
    return int(number) * UNITS[unit.removesuffix("s")]


@dataclass(frozen=True)
class Asked:
    """The options of one window, collected from the calls of a pipeline's text."""

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def by(self, *keys: str) -> Asked:
        """The keys."""
        return self._with(keys=list(keys))

    def window(self, window: Any) -> Asked:
        """The window."""
        return self._with(window=window)

    def trigger(self, early: Any = None, late: Any = None, panes: str = "accumulating") -> Asked:
        """When it fires, and what it shows."""
        more = ("pane", "pane_index", *(["retract"] if panes == "retracting" else []))
        return replace(self._with(early=early, late=late, panes=panes), columns=more)

    def late(self, keep: str = "0 seconds", rest: Any = None) -> Asked:
        """How long it is kept."""
        columns = self.columns or ("pane", "pane_index")
        return replace(self._with(keep=micros(keep)), columns=columns)

    def agg(self, name: str | None = None, **aggregates: tuple[str, str | None]) -> Asked:
        """The aggregates."""
        return self._with(aggregates=aggregates)

    def _with(self, **options: Any) -> Asked:
        return replace(self, options={**self.options, **options})


def _tumbling(size: str, offset: str = "0 seconds", zone: str | None = None) -> windows.Fixed:
    return _hopping(size, every=size, offset=offset, zone=zone)


def _hopping(
    size: str, every: str, offset: str = "0 seconds", zone: str | None = None
) -> windows.Fixed:
    if zone is None:
        return windows.hopping(micros(size), every=micros(every), offset=micros(offset))
    if every != size or offset != "0 seconds":
        raise Unsupported
    return windows.days(micros(size) // UNITS["day"], zone)


def _when(sql: str) -> tuple[str, Any]:
    def true(answers: dict[str, Any]) -> bool:
        try:
            return bool(eval(sql, {"__builtins__": {}}, answers))
        except TypeError:  # a null is neither above nor below
            return False

    return "when", true


NAMES = {
    "tumbling": _tumbling,
    "hopping": _hopping,
    "session": lambda gap: windows.session(micros(gap)),
    "every": lambda period: ("every", micros(period)),
    "each": lambda n=1: ("each", n),
    "when": _when,
    "any_of": lambda *triggers: ("any_of", triggers),
    "all_of": lambda *triggers: ("all_of", triggers),
    "discard": None,
    **{
        kind: lambda column=None, kind=kind: (kind, column)
        for kind in ("count", "sum", "min", "max", "mean")
    },
}


def replay(transcript: Transcript) -> Iterator[tuple[Step, list[Pane], list[Any]]]:
    """Each step with the panes and the late rows (row, windows) that the oracle expects.

    Raises:
        Unsupported: it is not about one window over one source.
    """
    asked, delay = _asked(transcript)
    batches = list(_batches(transcript, delay))
    emitted = windows.run(batches, **asked.options)
    for step, batch in zip(transcript.steps, emitted, strict=True):
        panes = [_pane(asked, pane) for pane in batch.panes]
        yield step, panes, [(row, [_bounds(w) for w in gone]) for row, gone in batch.late]


def _asked(transcript: Transcript) -> tuple[Asked, int]:
    if len(transcript.sources) > 1 or len(transcript.outputs) > 1:
        raise Unsupported
    [(source, options)] = transcript.sources.items()
    if re.search(r"idle|ahead", str(options)) and options.get("idle", "null") is not None:
        raise Unsupported
    if "decimal" in str(options):
        raise Unsupported
    names = {**NAMES, source: Asked(source)}
    try:
        asked = eval(f"({transcript.outputs['out']})", {"__builtins__": {}}, names)
    except (NameError, TypeError, AttributeError) as error:
        raise Unsupported from error
    return asked, micros(options.get("watermark") or "0 seconds")


def _batches(transcript: Transcript, delay: int) -> Iterator[windows.Batch]:
    largest: dict[int, int] = {}
    before, declared, clock = LEAST, LEAST, 0
    for step in transcript.steps:
        rows = []
        for feed in step.feeds:
            if step.dead or not feed.rows:
                raise Unsupported
            for row in feed.rows:
                at = _micros(datetime.fromisoformat(row["ts"]))
                largest[feed.partition] = max(largest.get(feed.partition, LEAST), at)
                rows.append({"v": None, **row, "_time": at})
        for at_least in step.watermarks.values():
            declared = _micros(at_least)
        if step.clock is not None:
            clock = _micros(step.clock)
        after = max(before, declared, min(largest.values(), default=LEAST) - delay)
        after = GREATEST if step.finish else after
        yield windows.Batch(rows, before, after, clock)
        before = after


def _micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def _bounds(window: tuple[int, int]) -> tuple[datetime, datetime]:
    start, end = (EPOCH + timedelta(microseconds=at) for at in window)
    return start, end


def _pane(asked: Asked, pane: windows.Pane) -> Pane:
    start, end = _bounds((pane.start, pane.end))
    more = {"pane": pane.name, "pane_index": pane.index, "retract": pane.retract}
    return {**dict(zip(asked.options["keys"], pane.key, strict=True)),
            "window_start": start, "window_end": end, **pane.values,
            **{name: more[name] for name in asked.columns}}  # fmt: skip
