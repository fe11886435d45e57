"""Panes of session windows without Spark: stories, then the oracle over random batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import session_panes
from tests.oracles.sessions import Batch
from tests.windows import tables
from tests.windows.driving import Driver, Left
from tests.windows.test_session_kernel import ANSWERS, VISITS, numbered, row

from millstream.eventtime.moment import END_OF_TIME, MIN_TIME
from millstream.windows import session_kernel, trigger
from millstream.windows.session import Session
from millstream.windows.session_kernel import SessionKernel

Row = dict[str, Any]
NAMES = ["k", "window_start", "window_end", *ANSWERS, "pane", "pane_index"]

FIRINGS: list[tuple[Any, Any]] = [
    (None, None),
    (trigger.each(), ("each", 1)),
    (trigger.each(3), ("each", 3)),
    (trigger.every("10 us"), ("every", 10)),
    (trigger.when("total > 20"), ("when", lambda a: (a["total"] or 0) > 20)),
    (
        trigger.any_of(trigger.each(4), trigger.every("15 us")),
        ("any", ("each", 4), ("every", 15)),
    ),
    (
        trigger.all_of(trigger.each(2), trigger.every("5 us")),
        ("all", ("each", 2), ("every", 5)),
    ),
]
PANES: list[trigger.Panes] = ["accumulating", "discarding", "retracting"]



def batches_of(data: st.DataObject) -> list[Batch]:
    """Batches of few rows of few keys, around a watermark that goes on by less than a gap."""
    batches: list[Batch] = []
    before, clock = MIN_TIME, 0
    around = 0
    for _ in range(data.draw(st.integers(2, 9))):
        visit = st.fixed_dictionaries({"k": st.sampled_from(["a", "a", "a", None]),
                                       "v": st.none() | st.integers(-99, 99),
                                       "_time": st.integers(around - 35, around + 15)})  # fmt: skip
        rows = numbered(data.draw(st.lists(visit, max_size=4)))
        after = max(before, around + data.draw(st.integers(-20, 12)))
        batches.append(Batch(rows, before, after, clock))
        before, clock = after, clock + data.draw(st.sampled_from([0, 1, 5, 12]))
        around += data.draw(st.integers(0, 12))
    if data.draw(st.booleans()):
        batches.append(Batch([], before, END_OF_TIME, clock))
    return batches


def rows_of(found: list[Row], mode: str) -> list[str]:
    for r in found:
        assert r["_time"] == r["window_end"] - 1
        assert r.get("retract", r["_sign"] < 0) == (r["_sign"] < 0)
        assert ("retract" in r) == (mode == "retracting")
    return sorted(repr({**{n: r[n] for n in NAMES}, "sign": r["_sign"]}) for r in found)


def wanted_rows(found: list[Row]) -> list[str]:
    return sorted(repr({n: r[n] for n in [*NAMES, "sign"]}) for r in found)


@settings(max_examples=150)
@given(data=st.data())
def test_panes_flow_and_late_rows_are_the_oracles(data: st.DataObject) -> None:
    early, early_says = data.draw(st.sampled_from(FIRINGS))
    late, late_says = data.draw(st.sampled_from(FIRINGS))
    mode = data.draw(st.sampled_from(PANES))
    keep = data.draw(st.sampled_from([0, 1, 15, 60]))
    batches = batches_of(data)
    made = SessionKernel(Session(10), ["k"], ANSWERS, VISITS,
                         trigger=trigger.trigger(early, late, mode), keep=keep)  # fmt: skip
    oracle = session_panes.Oracle(10, keep, early_says, late_says, mode)
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(session_kernel, "CHUNK_BYTES", 1)
        with Driver(made, slices=2, merge_every=data.draw(st.sampled_from([0, 2]))) as driver:
            for b in batches:
                left = driver.step(tables.table(b.rows, VISITS), before=b.before, after=b.after,
                                   clock=b.clock)  # fmt: skip
                told = oracle.take(b)
                assert rows_of(left.rows, mode) == wanted_rows(told.results)
                assert rows_of(left.flow, mode) == wanted_rows(told.flow)
                late_ones = sorted(r["_offset"] for r, _ in left.late)
                assert late_ones == sorted(r["_offset"] for r in told.late)


def fed(driver: Driver, rows: list[Row], before: int, after: int, clock: int = 0) -> Left:
    return driver.step(tables.table(rows, VISITS), before=before, after=after, clock=clock)
