"""Pipelines that continuous mode cannot run are refused while building, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "auction long, price double, sent timestamp, ts timestamp"


def bids(topic: str = "bids", **options: Any) -> ms.Stream:
    return ms.read(ms.Topic(topic, schema=SCHEMA, **options), time="ts")


def passing(stream: ms.Stream, sink: Any = None, **options: Any) -> ms.Pipeline:
    given = {"mode": "continuous", "delivery": "at_least_once", **options}
    return ms.Pipeline("p", stream.to(sink or ms.Topic("out")), **given)


def windows() -> ms.Stream:
    return bids().by("auction").window(ms.tumbling("1 s")).agg(n=ms.count())


CASES: list[tuple[str, Callable[[], object], str, str]] = [
    ("the default delivery", lambda: ms.Pipeline("p", bids().to(ms.Topic("out")),
                                                 mode="continuous"),
     'needs delivery="at_least_once"; got delivery="exactly_once"', "or leave mode= out"),
    ("at most once", lambda: passing(bids(), delivery="at_most_once"),
     'got delivery="at_most_once"', "leave mode= out"),
    ("another mode", lambda: passing(bids(), mode="streaming"), "got 'streaming'", "continuous"),
    ("a batch", lambda: passing(bids(), batch="2 seconds"), "needs batch= left out", "no batches"),
    ("history and buckets", lambda: passing(bids(), history="2 days", buckets=16),
     "needs history= and buckets= left out", "no state"),
    ("a window", lambda: passing(windows()), "got tumbling(auction)", "micro-batch"),
    ("rows behind a window", lambda: passing(windows().where("n > 1")), "tumbling", "micro-batch"),
    ("distinct", lambda: passing(bids().distinct(by="auction")), "distinct(auction)", "mode="),
    ("ordered", lambda: passing(bids().ordered()), "got ordered", "needs steps without state"),
    ("a source of memory", lambda: passing(ms.read(ms.Memory("rows", schema="x long"))),
     "needs topics as sources", "Memory"),
    ("files", lambda: passing(ms.read(ms.Files("in", format="json", schema="x long"))),
     "needs topics as sources", "Files"),
    ("a source of CSV", lambda: passing(bids(format="csv")), "'bids' as csv", "JSON"),
    ("a database", lambda: passing(bids(), ms.Postgres("out")), "needs topics as sinks",
     "Postgres"),
    ("a sink of CSV", lambda: passing(bids(), ms.Topic("out", format="csv")), "'out' as csv",
     "JSON"),
    ("a stream twice", lambda: passing(bids().union(bids())), "'bids' on two sides",
     "two outputs"),
    ("the parts of a split together", lambda: passing(_parted()), "'bids' on two sides",
     "two outputs"),
    ("the batch clock", lambda: passing(bids().with_columns(late="now() - ts")),
     "SQL without now()", "_timestamp"),
    ("a corrected clock", lambda: passing(bids().correct_clock(event="ts", sent="sent")),
     "needs uncorrected times", "correct_clock"),
]  # fmt: skip


def _parted() -> ms.Stream:
    parts = bids().split(cheap="price < 10")
    return parts["cheap"].union(parts["rest"])


@pytest.mark.parametrize(("build", "words", "more"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_an_unsupported_pipeline_is_refused_with_a_reason(
    build: Callable[[], object], words: str, more: str
) -> None:
    with pytest.raises(InvalidSpec) as raised:
        build()
    assert words in str(raised.value)
    assert more in str(raised.value)


def test_a_supported_pipeline_is_built() -> None:
    both = bids().union(bids("more")).where("price > 0").drop("sent")
    opened = both.transform(lambda frame: frame.withColumn("twice", frame["price"] * 2))
    assert passing(opened, bad_above=0.5, on_bad="stop").mode == "continuous"
    parts = bids().split(cheap="price < 10")
    two = [parts[name].to(ms.Topic("out"), name=name) for name in ("cheap", "rest")]
    assert ms.Pipeline("p", *two, mode="continuous", delivery="at_least_once").mode == "continuous"
    assert ms.Pipeline("p", bids().to(ms.Topic("out"))).mode == "micro_batch"


@pytest.mark.parametrize(("option", "words"), [({"until": "finished"}, "caught_up"),
                                               ({"lane": "narrow"}, "leave it out")])  # fmt: skip
def test_a_run_accepts_neither_lane_nor_finished(option: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        passing(bids()).run(**option)
