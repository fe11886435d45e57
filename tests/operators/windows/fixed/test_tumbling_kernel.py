"""Tumbling windows without Spark: stories, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver, Left
from tests.oracles import windows_oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import aggregation
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows.fixed.tumbling_kernel import TumblingKernel
from millstream.operators.windows.spec import Tumbling

Row = dict[str, Any]
ORDERS = pa.schema([("k", pa.string()), ("v", pa.int64())])
COUNT_AND_SUM: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
}
EVERYTHING: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "known": aggregates.count("s"),
    "i_sum": aggregates.sum("i"),
    "l_sum": aggregates.sum("l"),
    "d_sum": aggregates.sum("d"),
    "f_sum": aggregates.sum("f"),
    "m_sum": aggregates.sum("m"),
    "i_mean": aggregates.mean("i"),
    "l_mean": aggregates.mean("l"),
    "d_mean": aggregates.mean("d"),
    "m_mean": aggregates.mean("m"),
    **{f"{c}_min": aggregates.min(c) for c in tables.VALUES.names},
    **{f"{c}_max": aggregates.max(c) for c in tables.VALUES.names},
}
DECIMAL_SCALES = {"m_sum": 3, "m_mean": 7}


def orders(size: int = 10, offset: int = 0) -> TumblingKernel:
    return TumblingKernel(Tumbling(size, offset), ["k"], COUNT_AND_SUM, ORDERS)


def fed(driver: Driver, rows: list[Row], *, before: int, after: int) -> Left:
    return driver.step(tables.table(rows, ORDERS), before=before, after=after)


def row(time: int, k: str | None = "a", v: int | None = 1, **engine: int) -> Row:
    return {"k": k, "v": v, "_time": time, **engine}


def shown(left: Left) -> list[tuple[Any, ...]]:
    return sorted(
        (r["window_start"], r["window_end"], r["k"], r["n"], r["total"]) for r in left.rows
    )


def test_a_window_is_emitted_when_the_watermark_reaches_its_end_and_not_before() -> None:
    with Driver(orders()) as driver:
        assert shown(fed(driver, [row(0), row(9)], before=MIN_TIME, after=9)) == []
        assert shown(fed(driver, [], before=9, after=10)) == [(0, 10, "a", 2, 2)]
        assert shown(fed(driver, [], before=10, after=END_OF_TIME)) == []


def test_the_end_belongs_to_the_next_window() -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(9), row(10)], before=MIN_TIME, after=END_OF_TIME)

    assert shown(left) == [(0, 10, "a", 1, 1), (10, 20, "a", 1, 1)]


def test_times_before_the_epoch_fall_into_the_window_below_them() -> None:
    with Driver(orders(offset=3)) as driver:
        left = fed(driver, [row(-1), row(-7), row(-8)], before=MIN_TIME, after=END_OF_TIME)

    assert shown(left) == [(-17, -7, "a", 1, 1), (-7, 3, "a", 2, 2)]


def test_a_row_of_a_closed_window_is_late_and_has_its_bounds() -> None:
    with Driver(orders()) as driver:
        fed(driver, [row(5)], before=MIN_TIME, after=10)
        left = fed(driver, [row(9, v=7), row(10)], before=10, after=10)

    assert left.late == [(row(9, v=7), [{"start": 0, "end": 10}])]


def test_a_row_behind_the_watermark_whose_window_is_open_is_added() -> None:
    with Driver(orders()) as driver:
        fed(driver, [row(8)], before=MIN_TIME, after=9)
        left = fed(driver, [row(1)], before=9, after=12)

    assert shown(left) == [(0, 10, "a", 2, 2)]
    assert left.late == []


def test_a_batch_adds_its_rows_before_it_closes_windows() -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(1), row(2), row(99)], before=MIN_TIME, after=99)

    assert shown(left) == [(0, 10, "a", 2, 2)]


def test_a_window_without_rows_emits_nothing_and_nulls_form_a_group() -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(1, None, None)], before=MIN_TIME, after=1000)

    assert shown(left) == [(0, 10, None, 1, None)]


def test_the_event_time_of_a_result_is_the_last_microsecond_of_its_window() -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(1)], before=MIN_TIME, after=10)

    assert [(r["_time"], r["_sign"]) for r in left.rows] == [(9, 1)]
    assert left.tables[0].schema.field("_time").type == pa.int64()
    assert left.tables[0].schema.field("_sign").type == pa.int8()


def test_results_have_the_declared_columns_and_types() -> None:
    made = orders()
    with Driver(made) as driver:
        left = fed(driver, [row(1)], before=MIN_TIME, after=10)

    assert left.tables[0].schema.remove_metadata() == pa.schema(
        [*made.output(), ("_time", pa.int64()), ("_sign", pa.int8())]
    )
    assert made.output().names == ["k", "window_start", "window_end", "n", "total"]


@pytest.mark.parametrize(
    ("after", "held"),
    [(MIN_TIME, MIN_TIME + 7), (0, 9), (9, 9), (10, 19), (END_OF_TIME, END_OF_TIME)],
)
def test_the_hold_is_the_first_open_window_and_never_before_the_watermark(
    after: int, held: int
) -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(100)], before=MIN_TIME, after=after)

    assert left.held == held >= after


@pytest.mark.parametrize(("watermark", "due"), [(9, 0), (10, 10), (END_OF_TIME, END_OF_TIME)])
def test_windows_are_due_below_the_first_that_is_open(watermark: int, due: int) -> None:
    assert orders().due(watermark) == due


def test_only_open_windows_stay_in_the_state() -> None:
    with Driver(orders()) as driver:
        left = fed(driver, [row(1), row(11), row(12), row(25)], before=MIN_TIME, after=11)
        assert (left.gained, left.floor) == (2, 10)
        assert fed(driver, [], before=11, after=30).floor == 30
        assert driver.manifests["rows"].runs == ()


def test_windows_at_the_limits_of_64_bits_do_not_wrap() -> None:
    times = [MIN_TIME, MIN_TIME + 1, END_OF_TIME - 1, END_OF_TIME]
    with Driver(orders(size=1000)) as driver:
        before_the_end = fed(driver, [row(t) for t in times], before=MIN_TIME,
                             after=END_OF_TIME - 1)  # fmt: skip
        rest = fed(driver, [], before=END_OF_TIME - 1, after=END_OF_TIME)

    def bounds(left: Left) -> list[tuple[int, ...]]:
        names = ("window_start", "window_end", "n", "_time")
        return [tuple(r[name] for name in names) for r in left.rows]

    first_end = MIN_TIME + 808
    assert first_end % 1000 == 0
    assert bounds(before_the_end) == [(MIN_TIME, first_end, 2, first_end - 1)]
    assert bounds(rest) == [(END_OF_TIME - 807, END_OF_TIME, 2, END_OF_TIME - 1)]


def test_retracted_rows_are_removed_from_the_count_and_the_sum() -> None:
    with Driver(orders()) as driver:
        fed(driver, [row(1, v=5), row(2, v=7), row(3, "b", 1)], before=MIN_TIME, after=3)
        taken = [row(2, v=7, _sign=-1), row(2, v=9, _sign=1), row(3, "b", 1, _sign=-1)]
        left = fed(driver, taken, before=3, after=10)

    assert shown(left) == [(0, 10, "a", 2, 14)]


def test_unknown_keys_and_columns_and_doubled_names_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"keys of a window .* got city; choose from k, v"):
        TumblingKernel(Tumbling(10), ["city"], {"n": aggregates.count()}, ORDERS)
    with pytest.raises(InvalidSpec, match=r"sum needs a column .* got 'price'; choose"):
        TumblingKernel(Tumbling(10), ["k"], {"n": aggregates.sum("price")}, ORDERS)
    with pytest.raises(InvalidSpec, match=r"different names .* got k twice"):
        TumblingKernel(Tumbling(10), ["k"], {"k": aggregates.count()}, ORDERS)


def everything(kind: str, keys: list[str], size: int, offset: int) -> TumblingKernel:
    return TumblingKernel(Tumbling(size, offset), keys, EVERYTHING, tables.schema(kind))


def expected(
    batches: list[windows_oracle.Batch], keys: list[str], size: int, offset: int
) -> windows_oracle.Expected:
    answers = {
        name: (type(a).__name__.lower(), a.column, DECIMAL_SCALES.get(name))
        for name, a in EVERYTHING.items()
    }
    return windows_oracle.tumbling(
        batches, size=size, offset=offset % size, keys=keys, aggregates=answers
    )


def run_all(driver: Driver, batches: list[windows_oracle.Batch], columns: pa.Schema) -> list[Left]:
    return [
        driver.step(tables.table(b.rows, columns), before=b.before, after=b.after) for b in batches
    ]


def panes(lefts: list[Left], keys: list[str]) -> Counter[Any]:
    return Counter(
        (r["window_start"], r["window_end"], tuple(tables.plain(r[k]) for k in keys),
         *(tables.plain(r[name]) for name in EVERYTHING))
        for left in lefts
        for r in left.rows
    )  # fmt: skip


def oracle_panes(wanted: windows_oracle.Expected) -> Counter[Any]:
    return Counter(
        (start, end, tuple(map(tables.plain, key)), *map(tables.plain, answers.values()))
        for start, end, key, answers in wanted.panes
    )


times = st.integers(-60, 60) | st.sampled_from([MIN_TIME, MIN_TIME + 30, END_OF_TIME - 30,
                                                END_OF_TIME])  # fmt: skip
watermarks = st.integers(-80, 80) | st.sampled_from([MIN_TIME, END_OF_TIME - 1, END_OF_TIME])


def weak_hash(columns: list[pa.Array], count: int) -> Any:
    return np.uint64(2**64 // 3) * (np.arange(count, dtype=np.uint64) * np.uint64(0) + np.uint64(1))


def numbered(rows: list[Row]) -> list[Row]:
    return [{**row, "_offset": place} for place, row in enumerate(rows)]


def late_rows(left: Left) -> list[tuple[int, list[int]]]:
    return sorted(
        (row["_offset"], [w["start"] for w in windows or []]) for row, windows in left.late
    )


@settings(max_examples=120)
@given(data=st.data())
def test_panes_and_late_rows_are_the_oracles_for_any_rows_batches_and_ranges(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(sorted(tables.KEY_TYPES)))
    keys = data.draw(st.sampled_from([["k"], ["k", "k2"], ["k2"]]))
    size, offset = data.draw(st.sampled_from([(10, 0), (7, 3), (1, 0), (50, -20)]))
    marks = [MIN_TIME, *sorted(data.draw(st.lists(watermarks, min_size=1, max_size=4)))]
    batches = [
        windows_oracle.Batch(numbered(data.draw(st.lists(tables.rows(kind, times), max_size=8))),
                             *edge)
        for edge in pairwise(marks)
    ]  # fmt: skip
    cut = {"ranges": data.draw(st.sampled_from([1, 2, 5])), "slices": data.draw(st.integers(1, 3)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(aggregation, "hash_keys", weak_hash)
        with Driver(everything(kind, keys, size, offset), **cut) as driver:
            lefts = run_all(driver, batches, tables.schema(kind))

    wanted = expected(batches, keys, size, offset)
    assert panes(lefts, keys) == oracle_panes(wanted)
    assert [late_rows(left) for left in lefts] == [
        sorted((r["_offset"], [start]) for batch, r, start in wanted.late if batch == number)
        for number in range(len(batches))
    ]


RETRACTABLE = {
    name: aggregate for name, aggregate in EVERYTHING.items() if aggregate.supports_retraction
}


@settings(max_examples=60)
@given(data=st.data())
def test_retracted_rows_are_as_if_they_had_never_arrived(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(tables.rows("text", st.integers(0, 19), specials=False), min_size=1, max_size=12)
    )
    taken_back = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    first = [{**r, "_sign": 1} for r in rows]
    second = [{**rows[place], "_sign": -1} for place in taken_back]
    stayed = [r for place, r in enumerate(rows) if place not in taken_back]
    made = TumblingKernel(Tumbling(10), ["k"], RETRACTABLE, tables.schema("text"))
    with Driver(made, slices=2) as driver:
        driver.step(tables.table(first, tables.schema("text")), before=MIN_TIME, after=0)
        taken = tables.table(second, tables.schema("text"))
        left = driver.step(taken, before=0, after=END_OF_TIME)

    wanted = expected([windows_oracle.Batch(stayed, MIN_TIME, END_OF_TIME)], ["k"], 10, 0)
    assert Counter(
        (r["window_start"], r["k"], *(tables.plain(r[name]) for name in RETRACTABLE))
        for r in left.rows
    ) == Counter(
        (start, *key, *(tables.plain(answers[name]) for name in RETRACTABLE))
        for start, _, key, answers in wanted.panes
    )


def declared_cut(rows: list[Row], delay: int, cuts: list[int]) -> list[windows_oracle.Batch]:
    """Rows in arrival order cut into batches; the watermark is the largest time less the delay."""
    batches, before = [], MIN_TIME
    for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        seen = [row["_time"] for row in rows[:high]]
        after = max(seen) - delay if seen else MIN_TIME
        batches.append(windows_oracle.Batch(rows[low:high], before, after))
        before = after
    return [*batches, windows_oracle.Batch([], before, END_OF_TIME)]


@settings(max_examples=60)
@given(data=st.data())
def test_the_same_rows_give_the_same_results_for_any_batches_when_none_is_later_than_declared(
    data: st.DataObject,
) -> None:
    delay = data.draw(st.integers(0, 12))
    arrived, largest = [], -50
    for r in data.draw(st.lists(tables.rows("text", st.integers(0, 12)), max_size=20)):
        time = largest - delay + r["_time"]
        largest = max(largest, time)
        arrived.append({**r, "_time": time})
    places = st.lists(st.integers(0, len(arrived)), max_size=5).map(sorted)
    found = []
    for cuts in (data.draw(places), data.draw(places)):
        with Driver(
            everything("text", ["k"], 10, 0), ranges=data.draw(st.integers(1, 3))
        ) as driver:
            lefts = run_all(driver, declared_cut(arrived, delay, cuts), tables.schema("text"))
        assert [left.late for left in lefts] == [[]] * len(lefts)
        found.append(panes(lefts, ["k"]))

    assert found[0] == found[1]


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64,
                              min_value=-1e300, max_value=1e300), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4).map(sorted),
)  # fmt: skip
def test_the_error_of_float_sums_is_below_the_precision_of_a_double(
    values: list[float], cuts: list[int]
) -> None:
    columns = pa.schema([("d", pa.float64())])
    made = TumblingKernel(Tumbling(10), [], {"total": aggregates.sum("d")}, columns)
    edges = [0, *(min(c, len(values)) for c in cuts), len(values)]
    with Driver(made) as driver:
        for low, high in pairwise(edges):
            rows = [{"d": value, "_time": 1} for value in values[low:high]]
            driver.step(tables.table(rows, columns), before=MIN_TIME, after=1)
        [answer] = driver.step(tables.table([], columns), before=1, after=10).rows

    exact = windows_oracle.exact_sum(values)
    size = windows_oracle.exact_sum([abs(value) for value in values])
    assert answer["total"] == pytest.approx(exact, rel=2.3e-16, abs=size * 1e-29)


def test_without_keys_all_rows_of_a_window_are_one_group() -> None:
    made = TumblingKernel(Tumbling(10), [], {"n": aggregates.count()}, ORDERS)
    with Driver(made, ranges=5, slices=2) as driver:
        left = fed(driver, [row(1, "a"), row(2, "b"), row(11, "c")], before=MIN_TIME, after=20)

    assert sorted((r["window_start"], r["n"]) for r in left.rows) == [(0, 2), (10, 1)]
