"""Session windows without Spark: stories, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver, Left
from tests.oracles import sessions

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows.sessions import kernel as session_kernel
from millstream.operators.windows.sessions import pieces as session_pieces
from millstream.operators.windows.sessions.kernel import SessionKernel
from millstream.operators.windows.sessions.spec import Session

Row = dict[str, Any]
VISITS = pa.schema([("k", pa.string()), ("v", pa.int64())])
ANSWERS: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "least": aggregates.min("v"),
    "most": aggregates.max("v"),
}
GAP = 10


def visits(gap: int = GAP) -> SessionKernel:
    return SessionKernel(Session(gap), ["k"], ANSWERS, VISITS)


def row(time: int, k: str | None = "a", v: int | None = 1, **engine: int) -> Row:
    return {"k": k, "v": v, "_time": time, **engine}


def fed(driver: Driver, rows: list[Row], *, before: int, after: int) -> Left:
    return driver.step(tables.table(rows, VISITS), before=before, after=after)


def shown(left: Left) -> list[tuple[Any, ...]]:
    return sorted((r["k"], r["window_start"], r["window_end"], r["n"]) for r in left.rows)


def test_a_row_exactly_the_gap_after_the_last_belongs_and_one_later_does_not() -> None:
    with Driver(visits()) as driver:
        left = fed(driver, [row(0), row(10), row(21)], before=MIN_TIME, after=END_OF_TIME)

    assert shown(left) == [("a", 0, 20, 2), ("a", 21, 31, 1)]


def test_a_session_is_emitted_when_the_watermark_is_beyond_its_end_and_not_at_it() -> None:
    with Driver(visits()) as driver:
        assert shown(fed(driver, [row(0), row(5)], before=MIN_TIME, after=15)) == []
        assert shown(fed(driver, [], before=15, after=16)) == [("a", 0, 15, 2)]
        assert shown(fed(driver, [], before=16, after=END_OF_TIME)) == []


def test_a_row_that_bridges_two_sessions_makes_them_one() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(0), row(20)], before=MIN_TIME, after=0)
        fed(driver, [row(0, "b"), row(25, "b")], before=0, after=0)
        left = fed(driver, [row(10)], before=0, after=END_OF_TIME)

    assert shown(left) == [("a", 0, 30, 3), ("b", 0, 10, 1), ("b", 25, 35, 1)]


def test_a_row_behind_the_watermark_belongs_to_the_open_session_it_touches() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(t) for t in range(0, 100, 10)], before=MIN_TIME, after=95)
        inside = fed(driver, [row(35)], before=95, after=95)
        before_it = fed(driver, [row(-10)], before=95, after=95)
        left = fed(driver, [], before=95, after=END_OF_TIME)

    assert inside.late == before_it.late == []
    assert shown(left) == [("a", -10, 100, 12)]


def test_a_row_whose_session_would_have_closed_is_late_and_has_its_bounds() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(0), row(90)], before=MIN_TIME, after=95)
        left = fed(driver, [row(84, v=7), row(5), row(79), row(20, "b")], before=95, after=95)

    assert sorted((r["_time"], r["k"], windows) for r, windows in left.late) == [
        (5, "a", [{"start": 5, "end": 15}]),
        (20, "b", [{"start": 20, "end": 30}]),
    ]


def test_a_row_brings_another_of_its_batch_within_reach_of_an_open_session() -> None:
    with Driver(visits()) as driver:
        fed(driver, [row(90)], before=MIN_TIME, after=95)
        left = fed(driver, [row(72), row(81), row(61)], before=95, after=END_OF_TIME)

    assert shown(left) == [("a", 72, 100, 3)]
    assert [r["_time"] for r, _ in left.late] == [61]


def weak_hash(columns: list[pa.Array], count: int) -> Any:
    return np.uint64(2**64 // 3) * (np.arange(count, dtype=np.uint64) * np.uint64(0) + np.uint64(1))


def numbered(rows: list[Row]) -> list[Row]:
    return [{**row, "_offset": place} for place, row in enumerate(rows)]


times = st.integers(-60, 60) | st.sampled_from([MIN_TIME, MIN_TIME + 12, END_OF_TIME - 12,
                                                END_OF_TIME])  # fmt: skip
watermarks = st.integers(-80, 80) | st.sampled_from([MIN_TIME, END_OF_TIME - 1, END_OF_TIME])


def visitors(kind: str, at: st.SearchStrategy[int]) -> st.SearchStrategy[Row]:
    values = st.none() | st.integers(-99, 99)
    return st.fixed_dictionaries({"k": tables.keys(kind), "v": values, "_time": at})


def as_left(left: sessions.Left) -> tuple[Any, Any]:
    panes = sorted(map(repr, ({name: r[name] for name in sorted(r)} for r in left.panes)))
    return panes, sorted(r["_offset"] for r in left.late)


def as_emitted(left: Left) -> tuple[Any, Any]:
    names = sorted({"k", "window_start", "window_end", *ANSWERS})
    rows = [{**r, "k": tables.plain(r["k"])} for r in left.rows]
    panes = sorted(repr({name: r[name] for name in names}) for r in rows)
    assert all((r["_time"], r["_sign"]) == (r["window_end"] - 1, 1) for r in rows)
    return panes, sorted(r["_offset"] for r, _ in left.late)


def with_plain_keys(batches: list[sessions.Batch]) -> list[sessions.Batch]:
    return [
        replace(batch, rows=[{**r, "k": tables.plain(r["k"])} for r in batch.rows])
        for batch in batches
    ]


@settings(max_examples=60)
@given(data=st.data())
def test_sessions_and_late_rows_are_the_oracles_for_any_rows_batches_and_ranges(
    data: st.DataObject,
) -> None:
    gap = data.draw(st.sampled_from([1, 7, 10, 40]))
    kind = data.draw(st.sampled_from(sorted(tables.KEY_TYPES)))
    schema = pa.schema([("k", tables.KEY_TYPES[kind]), ("v", pa.int64())])
    marks = [MIN_TIME, *sorted(data.draw(st.lists(watermarks, min_size=1, max_size=6)))]
    batches = [
        sessions.Batch(numbered(data.draw(st.lists(visitors(kind, times), max_size=8))), *edge)
        for edge in pairwise(marks)
    ]
    cut = {"ranges": data.draw(st.sampled_from([1, 2, 5])), "slices": data.draw(st.integers(1, 3)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(session_pieces, "hash_keys", weak_hash)
        if data.draw(st.booleans()):
            patch.setattr(session_kernel, "CHUNK_BYTES", 1)
        made = SessionKernel(Session(gap), ["k"], ANSWERS, schema)
        with Driver(made, **cut) as driver:
            lefts = [
                driver.step(tables.table(b.rows, schema), before=b.before, after=b.after)
                for b in batches
            ]

    wanted = sessions.once(with_plain_keys(batches), gap=gap, key="k", value="v")
    assert [as_emitted(left) for left in lefts] == [as_left(left) for left in wanted]


@settings(max_examples=30)
@given(data=st.data())
def test_the_same_rows_give_the_same_sessions_for_any_batches_when_none_is_later_than_declared(
    data: st.DataObject,
) -> None:
    delay = data.draw(st.integers(0, 25))
    arrived, largest = [], -50
    for r in data.draw(st.lists(visitors("text", st.integers(0, 30)), max_size=25)):
        time = largest - delay + r["_time"]
        largest = max(largest, time)
        arrived.append({**r, "_time": time})
    places = st.lists(st.integers(0, len(arrived)), max_size=5).map(sorted)
    found = []
    for cuts in (data.draw(places), data.draw(places)):
        shown_rows, before = [], MIN_TIME
        with Driver(visits(), ranges=data.draw(st.integers(1, 3))) as driver:
            for low, high in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
                seen = [r["_time"] for r in arrived[:high]]
                after = max(seen) - delay if seen else MIN_TIME
                left = fed(driver, arrived[low:high], before=before, after=after)
                assert not left.late
                shown_rows += left.rows
                before = after
            shown_rows += fed(driver, [], before=before, after=END_OF_TIME).rows
        found.append(sorted(map(repr, shown_rows)))
    assert found[0] == found[1]


def test_without_keys_all_rows_are_in_one_group() -> None:
    made = SessionKernel(Session(GAP), [], {"n": aggregates.count()}, VISITS)
    with Driver(made, ranges=5, slices=2) as driver:
        fed(driver, [row(1, "a"), row(9, "b")], before=MIN_TIME, after=0)
        left = fed(driver, [row(18, "c"), row(29, "c")], before=0, after=END_OF_TIME)

    assert sorted((r["window_start"], r["n"]) for r in left.rows) == [(1, 3), (29, 1)]


@pytest.mark.parametrize(("after", "held"), [(MIN_TIME, MIN_TIME), (7, 6), (END_OF_TIME,) * 2])
def test_a_session_that_ends_at_the_watermark_may_still_be_emitted(after: int, held: int) -> None:
    with Driver(visits()) as driver:
        assert fed(driver, [row(100)], before=MIN_TIME, after=after).held == held


def test_results_have_the_declared_columns_and_types() -> None:
    made = visits()
    with Driver(made) as driver:
        left = fed(driver, [row(1)], before=MIN_TIME, after=END_OF_TIME)

    assert left.tables[0].schema.remove_metadata() == pa.schema(
        [*made.output(), ("_time", pa.int64()), ("_sign", pa.int8())]
    )
    assert made.output().names == ["k", "window_start", "window_end", *ANSWERS]


def test_unknown_keys_and_columns_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"keys of a window .* got city; choose from k, v"):
        SessionKernel(Session(10), ["city"], {"n": aggregates.count()}, VISITS)
    with pytest.raises(InvalidSpec, match=r"sum needs a column .* got 'price'; choose"):
        SessionKernel(Session(10), ["k"], {"n": aggregates.sum("price")}, VISITS)
