"""Helpers of the engine's tests: times, a source of bids, and a `Drive` over a pipeline."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import millstream as ms
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.metrics.facts import Facts

PLACES = ("narrow", "wide", "driver")  # the lanes on Spark, and the driver alone
START = datetime(2026, 1, 1, tzinfo=UTC)
MICROS = 1_767_225_600_000_000
SCHEMA = "auction long, name string, price double, n int, ts timestamp"


def at(seconds: float) -> datetime:
    """A time in seconds after the start of 2026."""
    return START + timedelta(seconds=seconds)


def micros(seconds: float) -> int:
    return MICROS + round(seconds * 1_000_000)


def bid(seconds: float, auction: int = 1, **more: Any) -> dict[str, Any]:
    return {"auction": auction, "ts": at(seconds).isoformat(), **more}


def bids(topic: str = "bids", schema: str = SCHEMA, **options: Any) -> ms.Stream:
    return ms.read(ms.Topic(topic, schema=schema), **{"time": "ts", **options})


def counted(stream: ms.Stream, size: str = "10 seconds", **options: Any) -> ms.Stream:
    windowed = stream.by("auction").window(ms.tumbling(size))
    if "rest" in options:
        windowed = windowed.late(rest=options["rest"])
    return windowed.agg(n=ms.count())


def out(*streams: ms.Stream, names: Sequence[str] = ("out",), **options: Any) -> ms.Pipeline:
    outputs = [s.to(ms.Topic(name)) for s, name in zip(streams, names, strict=True)]
    return ms.Pipeline("drive", *outputs, **options)


def drive_in(pipeline: ms.Pipeline, place: Any) -> Drive:
    """A drive in a lane on Spark, or in the driver alone."""
    if place != "driver":
        return Drive(pipeline, lane=place)
    alone = copy.copy(pipeline)
    object.__setattr__(alone, "engine", "driver")
    return Drive(alone)


def ran_in(facts: Facts) -> str:
    """The place of a batch: its lane, if Spark ran it, else the driver."""
    return facts.lane if facts.where == "spark" else facts.where


def drive(*streams: ms.Stream, lane: Any = "narrow", names: Sequence[str] = ("out",)) -> Drive:
    return drive_in(out(*streams, names=names), lane)


def window(auction: int | None, start: float, n: int, size: float = 10) -> dict[str, Any]:
    return {"auction": auction, "window_start": at(start), "window_end": at(start + size), "n": n}
