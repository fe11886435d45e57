"""The join with a table's versions without Spark: stories, then the oracle."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.joins import delayed
from tests.operators.windows import tables
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver, Left
from tests.oracles import joins_as_of as oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.joins import sides as sides_module
from millstream.operators.joins.stream_table import enriched
from millstream.operators.joins.stream_table import versions as versions_module
from millstream.operators.joins.stream_table.as_of_kernel import AsOfKernel
from millstream.operators.joins.stream_table.spec import AsOf

Row = dict[str, Any]
Marks = tuple[tuple[int, int], tuple[int, int]]
SALES = pa.schema([("country", pa.string()), ("sale", pa.int64())])
RATES = pa.schema([("country", pa.string()), ("rate", pa.int64())])
POSITION = pa.field("_position", pa.int64())
TIMES = (("ts", 0), ("_time", 0))
ON = (("country", "country"),)
DAY = 86_400_000_000


def kernel(how: Any = "inner") -> AsOfKernel:
    return AsOfKernel(AsOf(ON, how), (SALES, RATES), TIMES)


def sale(number: int, at: int, country: str | None = "fr") -> Row:
    return {"country": country, "sale": number, **engine(number, at, 0)}


def rate(value: int, at: int, country: str = "fr", *, offset: int = 0, sign: int = 1) -> Row:
    return {"country": country, "rate": value if sign > 0 else None, **engine(offset, at, 1),
            "_sign": sign}  # fmt: skip


def engine(offset: int, at: int, source: int) -> Row:
    return {"_time": at, "_source": source, "_partition": 0, "_offset": offset, "_sub": 0}


def step(driver: Driver, sales: list[Row], rates: list[Row], marks: Marks) -> Left:
    before, after = (min(side[place] for side in marks) for place in (0, 1))
    rows = [tables.table(sales, SALES), tables.table(rates, RATES)]
    return driver.step(rows, before=before, after=after, marks=marks)


def answers(left: Left) -> list[tuple[int, int | None]]:
    return sorted(((row["sale"], row["rate"]) for row in left.rows), key=str)


def test_an_event_takes_the_version_valid_at_its_own_time_once_the_table_has_passed_it() -> None:
    with Driver(kernel()) as driver:
        first = step(driver, [sale(1, 100), sale(2, 99)], [rate(10, 50)], ((0, 100), (0, 100)))
        assert answers(first) == [(2, 10)]
        later = step(driver, [sale(3, 100)], [rate(20, 100, offset=1)], ((100, 200), (100, 101)))
        assert answers(later) == [(1, 20), (3, 20)]
        assert [row["_time"] for row in later.rows] == [100, 100]
        assert {row["_offset"] for row in later.rows} == {1, 3}


def test_versions_out_of_order_are_sorted_by_time_then_position_then_offset() -> None:
    placed = pa.schema([*RATES, POSITION])
    rates = [
        {**rate(1, 50, offset=5), "_position": None},
        {**rate(2, 50, offset=1), "_position": 7},
        {**rate(3, 50, offset=0), "_position": 9},
        {**rate(4, 60, offset=0), "_position": 0},
        {**rate(5, 40, offset=9), "_position": 99},
    ]
    with Driver(kernel()) as driver:
        rows = [tables.table([sale(n, 39 + n) for n in range(23)], SALES),
                tables.table(rates, placed)]  # fmt: skip
        left = driver.step(rows, before=MIN_TIME, after=100)
    found = {row["sale"]: row["rate"] for row in left.rows}
    assert found == {n: 5 if n < 11 else 3 if n < 21 else 4 for n in range(1, 23)}


def test_a_deleted_key_matches_nothing_and_left_keeps_the_event() -> None:
    rates = [rate(10, 50), rate(0, 60, offset=1, sign=-1), rate(30, 70, offset=2)]
    sales = [sale(1, 55), sale(2, 60), sale(3, 70), sale(4, 55, "it"), sale(5, 55, None)]
    for how, wanted in (
        ("inner", [(1, 10), (3, 30)]),
        ("left", [(1, 10), (2, None), (3, 30), (4, None), (5, None)]),
    ):
        with Driver(kernel(how)) as driver:
            assert answers(step(driver, sales, rates, ((0, 99), (0, 99)))) == wanted


def test_an_event_is_late_when_both_watermarks_are_beyond_its_time() -> None:
    with Driver(kernel("left")) as driver:
        left = step(driver, [sale(1, 49), sale(2, 50)], [], ((90, 90), (50, 60)))
    assert [row["sale"] for row, _ in left.late] == [1]
    assert answers(left) == [(2, None)]


def test_a_late_change_applies_to_later_events_and_corrects_no_emitted_one() -> None:
    with Driver(kernel("left")) as driver:
        assert answers(step(driver, [sale(1, 50)], [rate(1, 10)], ((0, 0), (0, 90)))) == [(1, 1)]
        later = step(driver, [sale(2, 50)], [rate(2, 40, offset=1)], ((0, 0), (90, 90)))
        assert answers(later) == [(2, 2)]


def test_a_row_retracted_and_added_at_one_position_is_the_new_one() -> None:
    rates = [rate(9, 50, sign=-1), rate(10, 50)]
    for order in (rates, rates[::-1]):
        with Driver(kernel("left")) as driver:
            assert answers(step(driver, [sale(1, 55)], order, ((0, 99), (0, 99)))) == [(1, 10)]
            assert answers(step(driver, [sale(2, 100)], [], ((99, 101), (99, 101)))) == [(2, 10)]


def kept(driver: Driver) -> list[tuple[str, int, bool]]:
    view = driver._view("versions", (0, 16))
    rows = [row for piece in view.scan(MIN_TIME, None) for row in piece.to_pylist()]
    return sorted((row["country"], row["_at"], row["_alive"]) for row in rows)


def test_versions_are_kept_as_long_as_an_event_may_need_them_and_no_longer() -> None:
    rates = [rate(n, 10 * n, offset=n) for n in range(1, 6)]
    with Driver(kernel()) as driver:
        step(driver, [], [*rates, rate(1, 10, "it")], ((0, 25), (0, 60)))
        assert [at for country, at, _ in kept(driver) if country == "fr"] == [20, 30, 40, 50]
        step(driver, [], [], ((25, 39), (60, 60)))
        assert [at for country, at, _ in kept(driver) if country == "fr"] == [30, 40, 50]
        step(driver, [], [], ((39, 90), (60, 60)))
        assert kept(driver) == [("fr", 50, True), ("it", 10, True)]
        step(driver, [], [rate(7, 30, offset=9)], ((90, 90), (60, 61)))
        assert kept(driver) == [("fr", 50, True), ("it", 10, True)]
        assert driver.manifests["timers"].runs == ()


def test_a_version_just_ahead_of_the_watermarks_ends_its_predecessor_when_they_reach_it() -> None:
    with Driver(kernel()) as driver:
        step(driver, [], [rate(1, 10), rate(2, 26, offset=1)], ((0, 25), (0, 25)))
        assert [at for _, at, _ in kept(driver)] == [10, 26]
        step(driver, [], [], ((25, 26), (25, 26)))
        assert [at for _, at, _ in kept(driver)] == [26]


def test_a_delete_is_kept_for_a_day_so_that_no_older_change_restores_the_key() -> None:
    with Driver(kernel()) as driver:
        step(driver, [], [rate(1, 10)], ((0, 20), (0, 20)))
        step(driver, [], [rate(0, 30, offset=1, sign=-1)], ((20, 90), (20, 90)))
        assert kept(driver) == [("fr", 30, False)]
        again = step(driver, [sale(1, 99)], [rate(1, 10, offset=2)], ((90, 100), (90, 100)))
        assert answers(again) == []
        step(driver, [], [], ((100, DAY + 29), (100, DAY + 29)))
        assert kept(driver) == [("fr", 30, False)]
        step(driver, [], [], ((DAY + 29, DAY + 30), (DAY + 29, DAY + 30)))
        assert kept(driver) == []


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="as_of needs a stream with an event time"):
        AsOfKernel(AsOf(ON), (SALES, RATES), (None, ("_time", 0)))
    with pytest.raises(InvalidSpec, match="as_of needs names that only one side has"):
        AsOfKernel(AsOf(ON), (SALES, SALES), TIMES)
    taken_back = tables.table([{**sale(0, 0), "_sign": -1}], SALES)
    with pytest.raises(InvalidSpec, match="as_of needs rows that are never retracted"):
        kernel().prepare(taken_back, BatchTime(0, 0, 0))
    with pytest.raises(InvalidSpec, match="how` of as_of needs one of inner, left; got 'full'"):
        AsOf(ON, "full")  # type: ignore[arg-type]


def weak_hash(_columns: Any, count: int) -> Any:
    return np.full(count, 2**64 // 3, np.uint64)


times = st.integers(-20, 20)
marks = st.integers(-25, 25) | st.sampled_from([MIN_TIME, END_OF_TIME])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_all_results_are_the_oracles_for_any_rows_batches_and_ranges(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["long", "text", "double", "nested"]))
    key = tables.KEY_TYPES[kind]
    events = pa.schema([("k", key), ("k2", pa.string()), ("n", pa.int64())])
    table = pa.schema([("k", key), ("j", pa.string()), ("m", pa.int64()), POSITION])
    on = data.draw(st.sampled_from([(("k", "k"),), (("k", "k"), ("k2", "j"))]))
    how: Any = data.draw(st.sampled_from(["inner", "left"]))
    batches = _batches(data, kind)
    cut = {"ranges": data.draw(st.sampled_from([1, 2, 5])), "slices": data.draw(st.integers(1, 3)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    found = []
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(sides_module, "hash_keys", weak_hash)
            patch.setattr(versions_module, "hash_keys", weak_hash)
        made = AsOfKernel(AsOf(on, how), (events, table), TIMES)
        with Driver(made, **cut) as driver:
            for batch in batches:
                size = data.draw(st.sampled_from([0, 10**12]))
                waiting = sum(run.bytes for run in driver.manifests["waiting"].runs)
                driver.kernel = made.planned({"versions": size, "waiting": waiting})
                rows = [tables.table(batch.events, events), tables.table(batch.changes, table)]
                low, high = (min(mark[place] for mark in batch.marks) for place in (0, 1))
                found.append(driver.step(rows, before=low, after=high, marks=batch.marks))

    wanted = oracle.as_of(batches, on=list(on), how=how)
    for one, other in zip(found, wanted, strict=True):
        assert Counter((r["n"], r["m"]) for r in one.rows) == Counter(
            (event["n"], version and version["m"]) for event, version in other.pairs
        )
        assert sorted(row["n"] for row, _ in one.late) == sorted(row["n"] for row in other.late)


def _batches(data: st.DataObject, kind: str) -> list[oracle.Batch]:
    drawn_key = {"k": tables.keys(kind), "s": st.sampled_from([None, "x"]), "_time": times}
    change = st.fixed_dictionaries(
        {**drawn_key, "_position": st.sampled_from([None, 1, 2]), "_sign": st.sampled_from([1, -1])}
    )
    count = data.draw(st.integers(1, 4))
    edges = [[MIN_TIME, *sorted(data.draw(st.lists(marks, min_size=count, max_size=count)))]
             for _ in range(2)]  # fmt: skip
    batches, number = [], 0
    for place in range(count):
        events, changes = [], []
        for drawn in data.draw(st.lists(st.fixed_dictionaries(drawn_key), max_size=8)):
            number += 1
            events.append({"k": drawn["k"], "k2": drawn["s"], "n": number,
                           **engine(number, drawn["_time"], 0)})  # fmt: skip
        for drawn in data.draw(st.lists(change, max_size=8)):
            number += 1
            changes.append({"k": drawn["k"], "j": drawn["s"], "m": number,
                            **engine(number, drawn["_time"], 1), "_sign": drawn["_sign"],
                            "_position": drawn["_position"]})  # fmt: skip
        mark = tuple((edges[side][place], edges[side][place + 1]) for side in (0, 1))
        batches.append(oracle.Batch(events, changes, (mark[0], mark[1])))
    return batches


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.booleans()), max_size=25),
    cuts=st.tuples(*[st.lists(st.integers(0, 25), max_size=5).map(sorted)] * 2),
)
def test_the_same_rows_give_the_same_results_for_any_batches_when_none_is_later_than_declared(
    steps: list[tuple[int, int, bool]], cuts: Any
) -> None:
    delay, largest, rows = 4, [0, 0], []
    for number, (side, ahead, lives) in enumerate(steps):
        at = largest[side] - delay + ahead
        largest[side] = max(largest[side], at)
        made = sale(number, at) if side == 0 else rate(
            number, at, offset=number, sign=1 if lives else -1)  # fmt: skip
        rows.append((side, made))
    found = []
    for places in cuts:
        numbers: Counter[Any] = Counter()
        with Driver(kernel("left")) as driver:
            for batch in delayed.batches(rows, places, delay):
                left = step(driver, *batch)
                assert left.late == []
                numbers.update((r["sale"], r["rate"], r["_time"]) for r in left.rows)
            assert driver.manifests["waiting"].runs == ()
        found.append(numbers)
    assert found[0] == found[1]


def many(count: int, keys: int, *, source: int, columns: pa.Schema) -> pa.Table:
    numbers = np.arange(count, dtype=np.int64)
    zeros = np.zeros(count, np.int64)
    return pa.table(
        {
            columns.names[0]: pa.array(numbers % keys).cast(pa.string()),
            columns.names[1]: numbers,
            "_time": numbers // keys * 10,
            "_source": pa.array((zeros + source).astype(np.int32)),
            "_partition": pa.array(zeros.astype(np.int32)),
            "_offset": numbers,
            "_sub": zeros,
        }
    )


def test_the_number_of_calls_does_not_grow_with_the_number_of_keys() -> None:
    def work(keys: int) -> int:
        sales = many(2 * keys, keys, source=0, columns=SALES)
        rates = many(2 * keys, keys, source=1, columns=RATES)

        def two_batches() -> None:
            with Driver(kernel("left")) as driver:
                driver.step((sales, rates), before=MIN_TIME, after=5, marks=((0, 5), (0, 5)))
                driver.step((sales, rates), before=5, after=11, marks=((5, 11), (5, 11)))

        return calls(two_batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)


def test_one_key_with_half_of_all_rows_is_emitted_in_bounded_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enriched, "CHUNK_BYTES", 100_000)
    sales = many(20_000, 1, source=0, columns=SALES)
    rates = many(2_000, 1, source=1, columns=RATES)
    with Driver(kernel()) as driver:
        left = driver.step((sales, rates), before=MIN_TIME, after=END_OF_TIME)
    assert sum(table.num_rows for table in left.tables) == 20_000
    assert len(left.tables) > 10
    assert max(table.nbytes for table in left.tables) < 150_000


def test_events_of_one_key_go_to_all_ranges_if_the_table_is_replicated_and_to_one_if_not() -> None:
    sales = many(1_000, 1, source=0, columns=SALES)
    batch_time = BatchTime(MIN_TIME, 0, 0)

    def buckets(plan: Any) -> int:
        made = AsOfKernel(AsOf(ON, "inner", plan), (SALES, RATES), TIMES)
        return len(
            set((made.prepare(sales, batch_time).exchange["_hash"].to_numpy() >> 56).tolist())
        )

    assert buckets("repartitioned") == 1
    assert buckets("replicated") > 200
    assert buckets(None) > 200
    large = kernel().planned({"versions": 10**9, "waiting": 0})
    assert large.prepare(tables.table([rate(1, 0)], RATES), batch_time, 1).broadcast is None
    small = kernel().planned({"versions": 1_000, "waiting": 0})
    assert small.prepare(tables.table([rate(1, 0)], RATES), batch_time, 1).broadcast is not None
    with pytest.raises(InvalidSpec, match="`plan` of as_of needs one of replicated, repartitioned"):
        AsOf(ON, "inner", "broadcast")  # type: ignore[arg-type]


def test_an_event_that_waits_since_another_plan_receives_the_changes_of_its_key() -> None:
    made = kernel()
    for number in range(8):
        with Driver(made, ranges=8) as driver:
            driver.kernel = made.planned({"versions": 0, "waiting": 0})
            step(driver, [sale(number, 50)], [], ((0, 0), (0, 0)))
            driver.kernel = made.planned({"versions": 10**9, "waiting": 1})
            left = step(driver, [], [rate(7, 40)], ((0, 60), (0, 60)))
            assert answers(left) == [(number, 7)]


def test_events_keep_their_origin() -> None:
    event = sale(1, 10) | {"_source": 3, "_partition": 5, "_offset": 7, "_sub": 9}
    with Driver(kernel("left")) as driver:
        (found,) = step(driver, [event], [], ((0, 99), (0, 99))).rows
    assert [found[name] for name in ("_source", "_partition", "_offset", "_sub")] == [3, 5, 7, 9]
