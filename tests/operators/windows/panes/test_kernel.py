"""Windows with triggers, kept and hopping windows, against an oracle that shares nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver, Left
from tests.oracles import windows as oracle

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as agg
from millstream.operators.windows.fixed import hopping_kernel
from millstream.operators.windows.fixed.hopping_kernel import SlicedKernel
from millstream.operators.windows.fixed.processing_time import ProcessingTime
from millstream.operators.windows.panes import kernel as panes_kernel
from millstream.operators.windows.panes.kernel import PanesKernel
from millstream.operators.windows.spec import DAY, Hopping, Tumbling
from millstream.operators.windows.trigger import (
    AllOf,
    AnyOf,
    Each,
    Every,
    Firing,
    Panes,
    Trigger,
    When,
)

if TYPE_CHECKING:
    from millstream.operators.aggregates.spec import Aggregate

ROWS = pa.schema([("k", pa.string()), ("v", pa.int64())])
AGGREGATES: dict[str, Aggregate] = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "mid": agg.mean("v"),
}
ASKED: oracle.Aggregates = {
    "n": ("count", None),
    "total": ("sum", "v"),
    "least": ("min", "v"),
    "mid": ("mean", "v"),
}
FIRINGS: list[tuple[Firing | None, oracle.Trigger | None]] = [
    (None, None),
    (Every(7), ("every", 7)),
    (Each(1), ("each", 1)),
    (Each(3), ("each", 3)),
    (When("total > 5"), ("when", lambda a: a["total"] is not None and a["total"] > 5)),
    (AnyOf((Every(20), Each(2))), ("any_of", [("every", 20), ("each", 2)])),
    (AllOf((Every(5), Each(2))), ("all_of", [("every", 5), ("each", 2)])),
]
WINDOWS: list[tuple[Tumbling | Hopping, oracle.Fixed]] = [
    (Tumbling(10), oracle.tumbling(10)),
    (Tumbling(7, 3), oracle.tumbling(7, offset=3)),
    (Hopping(10, 5), oracle.hopping(10, every=5)),
    (Hopping(10, 3, 1), oracle.hopping(10, every=3, offset=1)),
    (Hopping(3, 5), oracle.hopping(3, every=5)),
]

FAR = 2**59
times = st.integers(-40, 60) | st.sampled_from([-FAR, FAR - 30])
rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b", "c"]),
        "v": st.none() | st.integers(-3, 9),
        "_time": times,
    }
)
watermarks = st.integers(-50, 70) | st.sampled_from([MIN_TIME, END_OF_TIME])


@st.composite
def batches(draw: st.DrawFn) -> list[oracle.Batch]:
    marks = [MIN_TIME, *sorted(draw(st.lists(watermarks, min_size=1, max_size=5)))]
    clock, made, number = 0, [], 0
    for before, after in pairwise(marks):
        come = draw(st.lists(rows, max_size=6))
        numbered = [{**row, "_offset": number + place} for place, row in enumerate(come)]
        number += len(come)
        clock += draw(st.integers(0, 9))
        made.append(oracle.Batch(numbered, before, after, clock))
    return made


cuts = st.fixed_dictionaries(
    {
        "ranges": st.sampled_from([1, 2, 5]),
        "slices": st.integers(1, 2),
        "merge_every": st.sampled_from([0, 2]),
    }
)


def stepped(driver: Driver, batch: oracle.Batch) -> Left:
    table = tables.table(list(batch.rows), ROWS)
    return driver.step(table, before=batch.before, after=batch.after, clock=batch.clock)


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        str(row["k"]), row["window_start"], row["window_end"], row["n"], row["total"],
        row["least"], row["mid"], row.get("pane"), row.get("pane_index"), row.get("retract", False),
    )  # fmt: skip


def pane_row(pane: oracle.Pane) -> tuple[Any, ...]:
    return (str(pane.key[0]), pane.start, pane.end, *pane.values.values(), pane.name, pane.index,
            pane.retract)  # fmt: skip


def by_window(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In order of key and window; rows of one window as they left."""
    return sorted(rows, key=lambda row: row[:3])


def late(left: Left) -> list[tuple[int, list[tuple[int, int]]]]:
    return sorted(
        (row["_offset"], [(w["start"], w["end"]) for w in windows or []])
        for row, windows in left.late
    )


def check_side_outputs(left: Left, wanted: oracle.Emitted) -> None:
    assert late(left) == sorted((row["_offset"], gone) for row, gone in wanted.late)
    assert left.unplaced == wanted.unplaced


@settings(max_examples=300)
@given(data=st.data(), made=batches(), cut=cuts)
def test_panes_flow_and_late_rows_are_the_oracles(
    data: st.DataObject, made: list[oracle.Batch], cut: dict[str, int]
) -> None:
    window, fixed = data.draw(st.sampled_from(WINDOWS))
    early, when_early = data.draw(st.sampled_from(FIRINGS))
    afterwards, when_late = data.draw(st.sampled_from(FIRINGS))
    keep = data.draw(st.sampled_from([0, 4, 25]))
    panes = data.draw(st.sampled_from(get_args(Panes)))
    trigger = Trigger(early, afterwards, panes)
    wanted = oracle.run(made, window=fixed, keys=["k"], aggregates=ASKED, early=when_early,
                        late=when_late, keep=keep, panes=panes)  # fmt: skip
    kernel = PanesKernel(window, ["k"], AGGREGATES, ROWS, trigger=trigger, keep=keep)
    with pytest.MonkeyPatch.context() as patch, Driver(kernel, **cut) as driver:
        if data.draw(st.booleans()):
            patch.setattr(panes_kernel, "PIECE_BYTES", 100)
        for batch, right in zip(made, wanted, strict=True):
            left = stepped(driver, batch)
            assert by_window([shown(row) for row in left.rows]) == by_window(
                [pane_row(pane) for pane in right.panes]
            )
            assert by_window([(*shown(row)[:-1], row["_sign"]) for row in left.flow]) == by_window(
                [(*pane_row(pane)[:-1], sign) for sign, pane in right.flow]
            )
            check_side_outputs(left, right)


@st.composite
def corrected(draw: st.DrawFn) -> list[oracle.Batch]:
    """Batches in which rows of earlier ones, or of their own, are retracted."""
    given_so_far: list[dict[str, Any]] = []
    made = []
    for batch in draw(batches()):
        come = [{**row, "_sign": 1} for row in batch.rows]
        given_so_far += come
        for _ in range(draw(st.integers(0, 3)) if given_so_far else 0):
            place = draw(st.integers(0, len(given_so_far) - 1))
            come.append({**given_so_far.pop(place), "_sign": -1})
            if not given_so_far:
                break
        made.append(oracle.Batch(come, batch.before, batch.after, batch.clock))
    return made


@settings(max_examples=60)
@given(data=st.data(), made=corrected(), cut=cuts)
def test_a_window_that_loses_all_its_rows_retracts_its_last_pane(
    data: st.DataObject, made: list[oracle.Batch], cut: dict[str, int]
) -> None:
    window, fixed = data.draw(st.sampled_from(WINDOWS))
    early, when_early = data.draw(st.sampled_from(FIRINGS))
    keep = data.draw(st.sampled_from([0, 25]))
    panes = data.draw(st.sampled_from(get_args(Panes)))
    wanted = oracle.run(made, window=fixed, keys=["k"], aggregates=ASKED, early=when_early,
                        keep=keep, panes=panes)  # fmt: skip
    kernel = PanesKernel(window, ["k"], AGGREGATES, ROWS, trigger=Trigger(early, None, panes),
                         keep=keep, retractable=True)  # fmt: skip
    with Driver(kernel, **cut) as driver:
        for batch, right in zip(made, wanted, strict=True):
            left = stepped(driver, batch)
            assert by_window([(*shown(row)[:-1], row["_sign"] < 0) for row in left.rows]) == (
                by_window([pane_row(pane) for pane in right.panes])
            )


@settings(max_examples=200)
@given(data=st.data(), made=batches(), cut=cuts)
def test_overlapping_windows_are_emitted_on_time_like_the_oracles(
    data: st.DataObject, made: list[oracle.Batch], cut: dict[str, int]
) -> None:
    window, fixed = data.draw(st.sampled_from(WINDOWS))
    wanted = oracle.run(made, window=fixed, keys=["k"], aggregates=ASKED)
    kernel = SlicedKernel(window, ["k"], AGGREGATES, ROWS)
    with pytest.MonkeyPatch.context() as patch, Driver(kernel, **cut) as driver:
        if data.draw(st.booleans()):
            patch.setattr(hopping_kernel, "PIECE_BYTES", 100)
        for batch, right in zip(made, wanted, strict=True):
            left = stepped(driver, batch)
            assert by_window([shown(row)[:7] for row in left.rows]) == by_window(
                [pane_row(pane)[:7] for pane in right.panes]
            )
            check_side_outputs(left, right)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "UTC"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_days_of_a_zone_are_the_calendars(zone: str, data: st.DataObject) -> None:
    near_changes = st.sampled_from([1774745999999999, 1792889999999999, 1508036400000000])
    moments = near_changes.flatmap(lambda at: st.integers(at - 2 * DAY, at + 2 * DAY))
    count = data.draw(st.sampled_from([1, 7]))
    come = [{"k": "a", "v": 1, "_time": at, "_offset": place}
            for place, at in enumerate(data.draw(st.lists(moments, max_size=5)))]  # fmt: skip
    made = [oracle.Batch(come, MIN_TIME, END_OF_TIME)]
    wanted = oracle.run(made, window=oracle.days(count, zone), keys=["k"], aggregates=ASKED)
    with Driver(SlicedKernel(Tumbling(count * DAY, zone=zone), ["k"], AGGREGATES, ROWS)) as driver:
        left = stepped(driver, made[0])
    assert by_window([shown(row)[:7] for row in left.rows]) == by_window(
        [pane_row(pane)[:7] for pane in wanted[0].panes]
    )


@settings(max_examples=60)
@given(cut=cuts, clocks=st.lists(st.integers(0, 12), min_size=1, max_size=8), data=st.data())
def test_windows_of_processing_time_are_event_time_windows_of_the_batch_clock(
    cut: dict[str, int], clocks: list[int], data: st.DataObject
) -> None:
    window, fixed = data.draw(st.sampled_from(WINDOWS[:4]))
    now, before = 0, MIN_TIME
    with Driver(ProcessingTime(SlicedKernel(window, ["k"], AGGREGATES, ROWS), window),
                **cut) as driver:  # fmt: skip
        emitted, batches_seen = [], []
        for passed in clocks:
            now += passed
            come = data.draw(st.lists(rows, max_size=3))
            left = driver.step(tables.table(come, ROWS), before=MIN_TIME, after=MIN_TIME, clock=now)
            emitted.append(by_window([shown(row)[:7] for row in left.rows]))
            at_clock = [{**row, "_time": now} for row in come]
            batches_seen.append(oracle.Batch(at_clock, before, now, now))
            before = now
            assert left.late == []
    wanted = oracle.run(batches_seen, window=fixed, keys=["k"], aggregates=ASKED)
    assert emitted == [by_window([pane_row(pane)[:7] for pane in one.panes]) for one in wanted]
