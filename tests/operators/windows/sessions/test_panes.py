"""Panes of session windows without Spark: stories, then the oracle over random batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver, Left
from tests.operators.windows.sessions.test_kernel import ANSWERS, VISITS, numbered, row
from tests.oracles import session_panes, windows
from tests.oracles.sessions import Batch

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows import trigger
from millstream.operators.windows.sessions import kernel as session_kernel
from millstream.operators.windows.sessions.kernel import SessionKernel
from millstream.operators.windows.sessions.spec import Session

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


@settings(max_examples=50)
@given(data=st.data())
def test_panes_flow_and_late_rows_are_those_of_two_oracles(data: st.DataObject) -> None:
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
            lefts = [compare(driver, b, oracle, mode) for b in batches]

    expected = windows.run(
        [windows.Batch(b.rows, b.before, b.after, b.clock) for b in batches],
        window=windows.session(10),
        keys=["k"],
        aggregates={"n": ("count", None), "total": ("sum", "v"), "least": ("min", "v"),
                    "most": ("max", "v")},
        early=as_windows_say(early_says),
        late=as_windows_say(late_says),
        keep=keep,
        panes=mode,
    )  # fmt: skip
    for left, one in zip(lefts, expected, strict=True):
        assert rows_of(left.rows, mode) == sorted(
            pane_row(-1 if pane.retract else 1, pane) for pane in one.panes
        )
        assert rows_of(left.flow, mode) == sorted(pane_row(*each) for each in one.flow)
        assert lates(left) == sorted(r["_offset"] for r, _ in one.late)


def as_windows_say(firing: Any) -> Any:
    """A trigger in the words of the oracle for all windows."""
    if firing is None or firing[0] not in ("any", "all"):
        return firing
    return f"{firing[0]}_of", list(firing[1:])


def pane_row(sign: int, pane: windows.Pane) -> str:
    about = {"k": pane.key[0], "window_start": pane.start, "window_end": pane.end}
    label = {"pane": pane.name, "pane_index": pane.index, "sign": sign}
    return repr({**about, **{name: pane.values[name] for name in ANSWERS}, **label})


def taken_back(batches: list[Batch], data: st.DataObject) -> None:
    """Let later batches take back rows of earlier ones, each at most once, or correct them.

    A correction differs from the previous result: one that retracted a late row and added the
    same row again could not be distinguished from a row that is added and retracted.
    """
    sent: list[Row] = []
    places: set[tuple[Any, int]] = set()
    for batch in batches:
        new = []
        for r in batch.rows:
            if (r["k"], r["_time"]) not in places:
                places.add((r["k"], r["_time"]))
                new.append({**r, "_sign": 1})
        back = data.draw(st.lists(st.integers(0, 10), max_size=3, unique=True)) if sent else []
        rows = [sent[place] for place in back if place < len(sent)]
        new += [{**r, "v": 8 if r["v"] == 7 else 7, "_sign": 1}
                for r in rows if data.draw(st.booleans())]  # fmt: skip
        sent = [r for r in sent if not any(r is other for other in rows)] + new
        batch.rows = numbered([*new, *({**r, "_sign": -1} for r in rows)])


@settings(max_examples=50)
@given(data=st.data())
def test_sessions_are_divided_and_corrected_when_rows_are_retracted(data: st.DataObject) -> None:
    early, early_says = data.draw(st.sampled_from(FIRINGS))
    late, late_says = data.draw(st.sampled_from(FIRINGS))
    mode = data.draw(st.sampled_from(PANES))
    keep = data.draw(st.sampled_from([0, 15, 1000]))
    batches = batches_of(data)
    taken_back(batches, data)
    made = SessionKernel(Session(10), ["k"], ANSWERS, VISITS, retractable=True, keep=keep,
                         trigger=trigger.trigger(early, late, mode))  # fmt: skip
    oracle = session_panes.Oracle(10, keep, early_says, late_says, mode)
    with Driver(made, slices=2, merge_every=data.draw(st.sampled_from([0, 2]))) as driver:
        for b in batches:
            compare(driver, b, oracle, mode)


@settings(max_examples=30)
@given(data=st.data())
def test_rows_retracted_from_open_sessions_are_as_if_they_had_never_arrived(
    data: st.DataObject,
) -> None:
    batches = batches_of(data)
    taken_back(batches, data)
    made = SessionKernel(Session(10), ["k"], ANSWERS, VISITS, retractable=True)
    oracle = session_panes.Oracle(10, 0, None, None, "accumulating")
    with Driver(made, slices=2) as driver:
        for b in batches:
            left = fed(driver, b.rows, b.before, b.after)
            expected = oracle.take(b)
            names = [name for name in NAMES if not name.startswith("pane")]
            shown = sorted(repr({n: r[n] for n in names}) for r in left.rows)
            assert shown == sorted(repr({n: r[n] for n in names}) for r in expected.results)
            assert lates(left) == sorted(r["_offset"] for r in expected.late)


def compare(driver: Driver, batch: Batch, oracle: session_panes.Oracle, mode: str) -> Left:
    """One batch through both: the same rows in every output."""
    left = fed(driver, batch.rows, batch.before, batch.after, batch.clock)
    expected = oracle.take(batch)
    assert rows_of(left.rows, mode) == wanted_rows(expected.results)
    assert rows_of(left.flow, mode) == wanted_rows(expected.flow)
    assert lates(left) == sorted(r["_offset"] for r in expected.late)
    return left


def lates(left: Left) -> list[int]:
    return sorted(r["_offset"] for r, _ in left.late)


def fed(driver: Driver, rows: list[Row], before: int, after: int, clock: int = 0) -> Left:
    return driver.step(tables.table(rows, VISITS), before=before, after=after, clock=clock)


def visits(
    early: trigger.Firing | None = None,
    late: trigger.Firing | None = None,
    panes: trigger.Panes = "accumulating",
    keep: int = 100,
    *,
    retractable: bool = False,
) -> SessionKernel:
    return SessionKernel(Session(10), ["k"], {"n": aggregates.count()}, VISITS, keep=keep,
                         trigger=trigger.trigger(early, late, panes),
                         retractable=retractable)  # fmt: skip


def panes_of(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Each row as (sign, start, end, n, pane, index), in the order they left."""
    return [
        (r["_sign"], r["window_start"], r["window_end"], r["n"], r["pane"], r["pane_index"])
        for r in rows
    ]


def test_a_kept_session_is_corrected_by_a_late_row_and_dropped_when_keep_is_over() -> None:
    with Driver(visits(keep=5)) as driver:
        on_time = fed(driver, [row(0)], MIN_TIME, 11)
        corrected = fed(driver, [row(0)], 11, 14)
        gone = fed(driver, [], 14, 15)
        late = fed(driver, [row(0)], 15, 15)

    assert panes_of(on_time.rows) == panes_of(on_time.flow) == [(1, 0, 10, 1, "on_time", 0)]
    assert panes_of(corrected.rows) == [(1, 0, 10, 2, "late", 1)]
    assert panes_of(corrected.flow) == [(-1, 0, 10, 1, "on_time", 0), (1, 0, 10, 2, "late", 1)]
    assert gone.rows == []
    assert [windows for _, windows in late.late] == [[{"start": 0, "end": 10}]]


def test_sessions_absorbed_by_a_merge_are_retracted_if_their_panes_were_emitted() -> None:
    with Driver(visits(early=trigger.each(3))) as driver:
        fed(driver, [row(0), row(15)], MIN_TIME, 30)
        merged = fed(driver, [row(7)], 30, 30)

    assert panes_of(merged.rows) == [(-1, 15, 25, 1, "on_time", 0), (1, 0, 25, 3, "late", 1)]
    assert panes_of(merged.flow) == [
        (-1, 15, 25, 1, "on_time", 0),
        (-1, 0, 10, 1, "on_time", 0),
        (1, 0, 25, 3, "late", 1),
    ]


def test_a_row_before_the_first_moves_the_start_and_retracts_the_old_window() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(20)], MIN_TIME, 31)
        moved = fed(driver, [row(12)], 31, 31)

    assert panes_of(moved.rows) == [(-1, 20, 30, 1, "on_time", 0), (1, 12, 30, 2, "late", 1)]


def test_a_kept_session_that_a_row_reopens_is_emitted_on_time_again() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(0)], MIN_TIME, 11)
        reopened = fed(driver, [row(9)], 11, 12)
        left = fed(driver, [], 12, 20)

    assert reopened.rows == []
    assert panes_of(left.rows) == [(1, 0, 19, 2, "on_time", 1)]
    assert panes_of(left.flow) == [(-1, 0, 10, 1, "on_time", 0), (1, 0, 19, 2, "on_time", 1)]


def test_the_clock_fires_only_sessions_with_new_rows() -> None:
    with Driver(visits(early=trigger.every("10 us"))) as driver:
        opened = fed(driver, [row(0), row(0, "b")], MIN_TIME, 0, clock=100)
        assert (opened.rows, opened.wake) == ([], 110)
        soon = fed(driver, [row(1, "b")], 0, 0, clock=109)
        assert (soon.rows, soon.wake) == ([], 110)
        fired = fed(driver, [], 0, 0, clock=112)
        assert sorted((r["k"], r["n"]) for r in fired.rows) == [("a", 1), ("b", 2)]
        assert fired.wake == END_OF_TIME
        assert fed(driver, [row(2)], 0, 0, clock=113).wake == 122


def test_late_rows_not_yet_emitted_are_emitted_when_keep_ends() -> None:
    with Driver(visits(late=trigger.each(5), keep=20)) as driver:
        fed(driver, [row(0)], MIN_TIME, 11)
        assert fed(driver, [row(0)], 11, 29).rows == []
        assert panes_of(fed(driver, [], 29, 30).rows) == [(1, 0, 10, 2, "late", 1)]


def test_retracting_a_row_divides_an_emitted_session() -> None:
    with Driver(visits(retractable=True)) as driver:
        fed(driver, [row(0), row(8), row(16)], MIN_TIME, 27)
        parted = fed(driver, [row(8, _sign=-1)], 27, 27)
        emptied = fed(driver, [row(16, _sign=-1)], 27, 27)

    assert panes_of(parted.flow) == [
        (-1, 0, 26, 3, "on_time", 0),
        (1, 0, 10, 1, "late", 1),
        (1, 16, 26, 1, "late", 0),
    ]
    assert panes_of(emptied.flow) == [(-1, 16, 26, 1, "late", 0)]


def test_the_retraction_of_an_unknown_row_is_late() -> None:
    with Driver(visits(keep=0, retractable=True)) as driver:
        fed(driver, [row(0)], MIN_TIME, 11)
        left = fed(driver, [row(0, _sign=-1)], 11, 11)

    assert [(r["_time"], r["_sign"]) for r, _ in left.late] == [(0, -1)]


def test_an_on_time_pane_with_nothing_new_has_the_empty_aggregates() -> None:
    every_kind: dict[str, aggregates.Aggregate] = {
        "n": aggregates.count(),
        "known": aggregates.count("v"),
        "total": aggregates.sum("v"),
        "mean": aggregates.mean("v"),
        "least": aggregates.min("v"),
        "first": aggregates.first("v"),
        "last": aggregates.last("v"),
        "spread": aggregates.stddev("v"),
        "all": aggregates.collect("v"),
        "different": aggregates.count_distinct("v"),
        "half": aggregates.quantile("v", 0.5),
        "top": aggregates.largest("v", 2),
    }
    discarding = trigger.trigger(early=trigger.each(), panes="discarding")
    made = SessionKernel(Session(10), ["k"], every_kind, VISITS, trigger=discarding)
    origin = {"_source": 0, "_partition": 0, "_offset": 0, "_sub": 0}
    with Driver(made) as driver:
        [early] = fed(driver, [row(0, v=4) | origin], MIN_TIME, 0).rows
        [empty] = fed(driver, [], 0, END_OF_TIME).rows

    assert (early["n"], early["all"], early["first"], early["half"]) == (1, [4], 4, 4.0)
    found_empty = {name: empty[name] for name in every_kind}
    expected = dict.fromkeys(every_kind) | {"n": 0, "known": 0, "all": [], "different": 0}
    assert found_empty == expected


def test_a_session_that_vanishes_does_not_affect_the_next_one_of_its_key() -> None:
    with Driver(visits(retractable=True)) as driver:
        fed(driver, [row(0), row(30)], MIN_TIME, 11)
        vanished = fed(driver, [row(0, _sign=-1), row(31, _sign=1)], 11, 11)
        left = fed(driver, [], 11, 42)

    assert panes_of(vanished.flow) == [(-1, 0, 10, 1, "on_time", 0)]
    assert panes_of(left.rows) == [(1, 30, 41, 2, "on_time", 0)]
