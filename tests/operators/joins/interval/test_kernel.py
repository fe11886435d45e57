"""The join of two streams without Spark: stories, then the oracle over random rows and cuts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.joins import delayed
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver, Left
from tests.oracles import joins as oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.joins import sides as sides_module
from millstream.operators.joins.interval.kernel import IntervalKernel
from millstream.operators.joins.interval.spec import Interval

Row = dict[str, Any]
SEARCHES = pa.schema([("user", pa.string()), ("word", pa.int64()), ("ts", pa.timestamp("us"))])
CLICKS = pa.schema([("user", pa.string()), ("page", pa.int64()), ("at", pa.timestamp("us"))])
ON = (("user", "user"),)
EPOCH = datetime(1970, 1, 1)
TIMES = (("ts", 0), ("at", 0))


def kernel(within: tuple[int, int] | None = (-10, 10), how: Any = "inner") -> IntervalKernel:
    return IntervalKernel(Interval(ON, within, how), (SEARCHES, CLICKS), TIMES)


def search(word: int, at: int, user: str | None = "a", *, source: int = 0) -> Row:
    return {"user": user, "word": word, "ts": None, **engine(word, at, source)}


def click(page: int, at: int, user: str | None = "a", *, source: int = 1) -> Row:
    return {"user": user, "page": page, "at": at, **engine(page, at, source)}


def engine(offset: int, at: int, source: int) -> Row:
    return {"_time": at, "_source": source, "_partition": 0, "_offset": offset, "_sub": 0}


def step(
    driver: Driver,
    left: list[Row],
    right: list[Row],
    marks: tuple[tuple[int, int], tuple[int, int]],
) -> Left:
    before, after = (min(side[place] for side in marks) for place in (0, 1))
    rows = [tables.table(left, SEARCHES), tables.table(right, CLICKS)]
    return driver.step(rows, before=before, after=after, marks=marks)


def pairs(left: Left) -> list[tuple[int | None, int | None]]:
    rows = [row for table in left.tables for row in table.select(["word", "page"]).to_pylist()]
    return sorted(((row["word"], row["page"]) for row in rows), key=str)


EARLY = ((MIN_TIME, 0), (MIN_TIME, 0))
STILL = ((0, 0), (0, 0))


def test_rows_match_in_one_batch_and_across_batches_both_bounds_included() -> None:
    with Driver(kernel((-5, 10))) as driver:
        first = step(driver, [search(1, 100)], [click(1, 95), click(2, 94), click(3, 110)], EARLY)
        assert pairs(first) == [(1, 1), (1, 3)]
        later = step(driver, [search(2, 99)], [click(4, 111), click(5, 105)], STILL)
        assert pairs(later) == [(1, 5), (2, 1), (2, 2), (2, 5)]


def test_a_pair_has_the_columns_of_both_once_the_key_and_the_later_time() -> None:
    with Driver(kernel()) as driver:
        left = step(driver, [search(1, 100)], [click(2, 104)], EARLY)
    (found,) = left.rows
    at = EPOCH + timedelta(microseconds=104)
    assert (found["ts"], found["at"], found["event_time"]) == (None, at, 104)
    assert [found[name] for name in ("user", "word", "page", "_time", "_sign")] == [
        "a", 1, 2, 104, 1,
    ]  # fmt: skip
    assert kernel().output().names[:6] == ["user", "word", "ts", "page", "at", "event_time"]
    assert left.tables[0].schema.names == [*kernel().output().names, "_time", "_sign"]


def test_a_suffix_distinguishes_the_columns_of_both_sides() -> None:
    spec = Interval(ON, (-10, 10), "full", "_r")
    made = IntervalKernel(spec, (SEARCHES, SEARCHES), (("ts", 0), ("ts", 0)))
    with Driver(made) as driver:
        rows = [[search(1, 100), search(3, 900)], [search(2, 104, source=1)]]
        left = driver.step(
            [tables.table(side, SEARCHES) for side in rows], before=MIN_TIME, after=END_OF_TIME
        )
    found = sorted((row["word"], row["word_r"], row["event_time"]) for row in left.rows)
    assert found == [(1, 2, 104), (3, None, 900)]
    assert made.output().names[:6] == ["user", "word", "ts", "word_r", "ts_r", "event_time"]


def test_an_unmatched_left_row_is_emitted_when_the_right_watermark_is_beyond_its_reach() -> None:
    with Driver(kernel((0, 10), "left")) as driver:
        come = step(driver, [search(1, 100), search(2, 101)], [], EARLY)
        assert (pairs(come), come.held) == ([], 100)
        at = step(driver, [], [], ((0, 500), (0, 110)))
        assert (pairs(at), at.held) == ([], 100)
        beyond = step(driver, [], [], ((500, 500), (110, 111)))
        assert (pairs(beyond), beyond.held) == ([(1, None)], 101)
        assert beyond.rows[0]["_time"] == 100
        assert pairs(step(driver, [], [click(9, 111)], ((500, 500), (111, 500)))) == [(2, 9)]
        assert all(not manifest.runs for manifest in driver.manifests.values())


def test_a_right_row_waits_for_the_watermark_of_the_left() -> None:
    with Driver(kernel((0, 10), "right")) as driver:
        assert pairs(step(driver, [], [click(1, 100)], ((0, 100), (0, 900)))) == []
        left = step(driver, [], [], ((100, 101), (900, 900)))
    assert pairs(left) == [(None, 1)]
    assert left.rows[0]["user"] == "a"


def test_rows_without_a_key_match_nothing_and_are_emitted_by_an_outer_join_at_once() -> None:
    for how, wanted in (("inner", []), ("full", [(1, None), (None, 1)])):
        with Driver(kernel(how=how)) as driver:
            left = step(driver, [search(1, 100, None)], [click(1, 100, None)], EARLY)
            assert pairs(left) == wanted
            assert left.gained == 0


def test_a_row_is_late_if_it_can_match_neither_stored_nor_future_rows() -> None:
    marks = ((50, 50), (50, 50))
    with Driver(kernel((-10, 10), "left")) as driver:
        left = step(driver, [search(1, 29), search(2, 30)], [click(3, 29), click(4, 30)], marks)
        assert [(row.get("word"), row.get("page")) for row, _ in left.late] == [
            (1, None),
            (None, 3),
        ]
        assert pairs(left) == [(2, 4)]


def test_a_row_behind_its_own_watermark_is_not_late_while_a_match_may_arrive_on_time() -> None:
    marks = ((100, 100), (50, 50))
    with Driver(kernel((-10, 10))) as driver:
        left = step(driver, [search(1, 39), search(2, 40)], [], marks)
        assert [row["word"] for row, _ in left.late] == [1]
        assert pairs(step(driver, [], [click(1, 50)], marks)) == [(2, 1)]


def test_after_the_finish_every_row_is_late_also_one_at_the_end_of_time() -> None:
    ended = BatchTime(END_OF_TIME, END_OF_TIME, 0)
    for side, rows in enumerate(
        (
            tables.table([search(0, 0), search(1, END_OF_TIME)], SEARCHES),
            tables.table([{**click(0, 0), "_time": END_OF_TIME}, click(1, 0)], CLICKS),
        )
    ):
        assert kernel().prepare(rows, ended, side).late.tolist() == [0, 1]


def test_a_delayed_row_matches_stored_rows_to_the_microsecond() -> None:
    with Driver(kernel((-10, 10))) as driver:
        step(driver, [], [click(1, 89), click(2, 90)], EARLY)
        step(driver, [], [], ((0, 100), (0, 100)))
        left = step(driver, [search(1, 85)], [], ((100, 100), (100, 100)))
    assert (pairs(left), left.late) == ([(1, 2)], [])


def test_a_row_that_is_matched_in_the_batch_that_ends_its_wait_is_emitted_once() -> None:
    with Driver(kernel((0, 10), "left")) as driver:
        step(driver, [search(1, 0), search(2, 1)], [], ((MIN_TIME, 0), (MIN_TIME, 0)))
        left = step(driver, [], [click(1, 10)], ((0, 200), (0, 200)))
    assert pairs(left) == [(1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("within", "left", "right", "wanted"),
    [
        ((1, 5), END_OF_TIME, END_OF_TIME, []),
        ((1, 5), MIN_TIME, MIN_TIME, []),
        ((-5, -1), END_OF_TIME, END_OF_TIME, []),
        ((-5, -1), MIN_TIME, MIN_TIME, []),
        ((-(2**59), 2**59), END_OF_TIME - 5, END_OF_TIME, [(1, 1)]),
        ((-(2**59), 2**59), END_OF_TIME, END_OF_TIME, [(1, 1)]),
        ((-(2**59), 2**59), MIN_TIME, MIN_TIME + 5, [(1, 1)]),
    ],
)
def test_times_at_the_ends_of_time_match_only_what_is_within(
    within: tuple[int, int], left: int, right: int, wanted: list[tuple[int, int]]
) -> None:
    ours, theirs = search(1, left), {**click(1, 0), "_time": right}
    never = ((MIN_TIME, MIN_TIME), (MIN_TIME, MIN_TIME))
    with Driver(kernel(within)) as driver:
        assert pairs(step(driver, [ours], [theirs], never)) == wanted
    with Driver(kernel(within)) as driver:
        step(driver, [ours], [], never)
        assert pairs(step(driver, [], [theirs], never)) == wanted


def test_rows_of_two_sources_with_the_same_offset_are_two_rows_also_after_a_merge() -> None:
    with Driver(kernel(), merge_every=2) as driver:
        step(driver, [search(7, 100, source=0)], [], EARLY)
        step(driver, [search(7, 100, source=1)], [], STILL)
        assert pairs(step(driver, [], [click(1, 100)], STILL)) == [(7, 1), (7, 1)]


def test_the_time_of_a_window_is_before_its_end_which_stays_as_it_was() -> None:
    ends = pa.schema([("user", pa.string()), ("word", pa.int64()), ("end", pa.timestamp("us"))])
    made = IntervalKernel(Interval(ON, (-10, 10)), (ends, CLICKS), (("end", -1), ("at", 0)))
    row = {"user": "a", "word": 1, "end": 100, **engine(0, 99, 0)}
    with Driver(made) as driver:
        rows = [tables.table([row], ends), tables.table([click(1, 50), click(2, 95)], CLICKS)]
        left = driver.step(rows, before=MIN_TIME, after=0)
    (found,) = left.tables[0].to_pylist()
    times = [left.tables[0][name].cast(pa.int64()).to_pylist() for name in ("end", "event_time")]
    assert (found["_time"], times) == (99, [[100], [99]])


def test_without_within_every_pair_is_found_however_far_apart_and_nothing_is_dropped() -> None:
    with Driver(kernel(None)) as driver:
        step(driver, [search(1, 0)], [], EARLY)
        left = step(driver, [search(2, 5)], [click(1, 10**15)], ((0, 10**15), (0, 10**15)))
        assert pairs(left) == [(1, 1), (2, 1)]
        assert left.floors == {}
        again = step(driver, [], [click(2, 3)], ((10**15, 10**15), (10**15, 10**15)))
        assert (pairs(again), again.late) == ([(1, 2), (2, 2)], [])


def test_results_of_earlier_steps_that_share_an_origin_are_all_kept() -> None:
    with Driver(kernel((-9, 9), "left"), merge_every=2) as driver:
        twins = [search(7, 100, source=-1), search(7, 100, source=-1)]
        step(driver, twins, [], EARLY)
        step(driver, twins[:1], [], STILL)
        assert pairs(step(driver, [], [click(1, 100)], STILL)) == [(7, 1)] * 3
        assert pairs(step(driver, [], [], ((0, 900), (0, 900)))) == []


def test_pairs_have_unique_origins_whatever_the_batch() -> None:
    rows = [search(n, 100) for n in range(4)], [click(n, 100) for n in range(4)]
    with Driver(kernel()) as driver:
        once = step(driver, *rows, EARLY).rows
    with Driver(kernel()) as driver:
        twice = step(driver, rows[0], rows[1][:2], EARLY).rows
        twice += step(driver, [], rows[1][2:], STILL).rows
    places = [
        {(r["word"], r["page"]): (r["_source"], r["_offset"], r["_sub"]) for r in found}
        for found in (once, twice)
    ]
    assert places[0] == places[1]
    assert len(set(places[0].values())) == 16


def test_keys_of_other_names_and_widths_match_and_both_appear() -> None:
    left, right = pa.schema([("id", pa.int32())]), pa.schema([("search", pa.int64())])
    made = IntervalKernel(Interval((("id", "search"),), (0, 5), "full"), (left, right), TIMES)
    rows = (
        pa.table({"id": pa.array([1, 2], pa.int32()), **_columns(2)}),
        pa.table({"search": [2, 2**40], **_columns(2)}),
    )
    with Driver(made) as driver:
        found = driver.step(rows, before=MIN_TIME, after=END_OF_TIME).rows
    assert sorted(((r["id"], r["search"]) for r in found), key=str) == [
        (1, None), (2, 2), (None, 2**40),
    ]  # fmt: skip
    assert made.output().field("id").type == pa.int32()


def test_a_shared_key_has_the_wider_type_where_they_differ() -> None:
    left, right = pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64())])
    made = IntervalKernel(Interval((("id", "id"),), (0, 5), "right"), (left, right), TIMES)
    assert made.output().field("id").type == pa.int64()
    right_rows = pa.table({"id": [2**40], **_columns(1)})
    with Driver(made) as driver:
        nothing = pa.table({"id": pa.array([], pa.int32()), **_columns(0)})
        found = driver.step((nothing, right_rows), before=MIN_TIME, after=END_OF_TIME).rows
    assert [row["id"] for row in found] == [2**40]


def _columns(count: int) -> dict[str, Any]:
    numbers = np.arange(count)
    kinds = {"_source": np.int32, "_partition": np.int32, "_offset": np.int64, "_sub": np.int64}
    return {"_time": np.zeros(count, np.int64)} | {
        name: pa.array(numbers.astype(kind)) for name, kind in kinds.items()
    }


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="needs an event time on both sides"):
        IntervalKernel(Interval(ON, (0, 1)), (SEARCHES, CLICKS), (("ts", 0), None))
    with pytest.raises(InvalidSpec, match=r"keys of the same type; got user string and page int64"):
        IntervalKernel(Interval((("user", "page"),), (0, 1)), (SEARCHES, CLICKS.remove(0)), TIMES)
    with pytest.raises(InvalidSpec, match=r"got 'word', 'ts' on both; give suffix="):
        IntervalKernel(Interval(ON, (0, 1)), (SEARCHES, SEARCHES), (("ts", 0), ("ts", 0)))
    with pytest.raises(InvalidSpec, match="columns of the right side; got 'nobody'; choose from"):
        IntervalKernel(Interval((("user", "nobody"),), (0, 1)), (SEARCHES, CLICKS), TIMES)
    taken_back = tables.table([{**search(0, 0), "_sign": -1}], SEARCHES)
    with pytest.raises(InvalidSpec, match="never retracted"):
        kernel().prepare(taken_back, BatchTime(0, 0, 0))
    with pytest.raises(InvalidSpec, match="rows with an event time on both sides"):
        kernel().prepare(taken_back.drop_columns(["_time", "_sign"]), BatchTime(0, 0, 0))


def weak_hash(_columns: Any, count: int) -> Any:
    return np.full(count, 2**64 // 3, np.uint64)


near = st.integers(-25, 25)
far = st.sampled_from([MIN_TIME, MIN_TIME + 5, END_OF_TIME - 5, END_OF_TIME])
bounds = st.tuples(st.integers(-12, 12), st.integers(-12, 12)).map(lambda b: (min(b), max(b)))
hows = st.sampled_from(["inner", "left", "right", "full"])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_all_results_are_the_oracles_for_any_rows_batches_and_ranges(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["long", "text", "double", "nested"]))
    left = pa.schema([("k", tables.KEY_TYPES[kind]), ("k2", pa.string()), ("n", pa.int64())])
    right = pa.schema([("k", tables.KEY_TYPES[kind]), ("j", pa.string()), ("m", pa.int64())])
    on = data.draw(st.sampled_from([(("k", "k"),), (("k", "k"), ("k2", "j"))]))
    within = data.draw(st.none() | bounds | st.just((-(2**59), 2**59)))
    how: Any = "inner" if within is None else data.draw(hows)
    batches = _batches(data, kind)
    cut = {"ranges": data.draw(st.sampled_from([1, 2, 5])), "slices": data.draw(st.integers(1, 3)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    made = IntervalKernel(Interval(on, within, how), (left, right), (("t", 0), ("u", 0)))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(sides_module, "hash_keys", weak_hash)
        with Driver(made, **cut) as driver:
            for batch in batches:
                rows = [tables.table(batch.rows[0], left), tables.table(batch.rows[1], right)]
                low, high = (min(mark[place] for mark in batch.marks) for place in (0, 1))
                found.append(driver.step(rows, before=low, after=high, marks=batch.marks))

    wanted = oracle.joined(batches, on=list(on), within=within, how=how)
    for one, other in zip(found, wanted, strict=True):
        assert Counter((r["n"], r["m"]) for r in one.rows) == Counter(
            (a and a["n"], b and b["m"]) for a, b in other.pairs
        )
        late = Counter(str(row.get("n", -1)) + str(row.get("m", -1)) for row, _ in one.late)
        assert late == Counter(
            str(row.get("n", -1)) + str(row.get("m", -1))
            for row in [*other.late[0], *other.late[1]]
        )
        for row in one.rows:
            assert row["_time"] == max(t for t in (TIME_OF.get(row["n"]), TIME_OF.get(row["m"]))
                                       if t is not None)  # fmt: skip
            assert row["event_time"] == row["_time"]


TIME_OF: dict[int | None, int] = {}


def _batches(data: st.DataObject, kind: str) -> list[oracle.Batch]:
    TIME_OF.clear()
    row = st.fixed_dictionaries(
        {"k": tables.keys(kind), "s": st.sampled_from([None, "x", "x"]), "_time": near | far}
    )
    marks = st.integers(-40, 40) | st.sampled_from([MIN_TIME, END_OF_TIME - 1, END_OF_TIME])
    count = data.draw(st.integers(1, 4))
    edges = [[MIN_TIME, *sorted(data.draw(st.lists(marks, min_size=count, max_size=count)))]
             for _ in range(2)]  # fmt: skip
    batches, number = [], 0
    for place in range(count):
        sides: tuple[list[Row], list[Row]] = ([], [])
        for side in (0, 1):
            for drawn in data.draw(st.lists(row, max_size=8)):
                number += 1
                TIME_OF[number] = drawn["_time"]
                names = {"k2": drawn["s"], "n": number} if side == 0 else {
                    "j": drawn["s"], "m": number}  # fmt: skip
                origin = {"_source": side, "_partition": 0, "_offset": number, "_sub": 0}
                sides[side].append({"k": drawn["k"], **names, "_time": drawn["_time"], **origin})
        mark = tuple((edges[side][place], edges[side][place + 1]) for side in (0, 1))
        batches.append(oracle.Batch(sides, (mark[0], mark[1])))
    return batches


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=25),
    within=bounds,
    how=hows,
    cuts=st.tuples(*[st.lists(st.integers(0, 25), max_size=5).map(sorted)] * 2),
)
def test_the_same_rows_give_the_same_pairs_for_any_batches_when_none_is_later_than_declared(
    steps: list[tuple[int, int]], within: tuple[int, int], how: Any, cuts: Any
) -> None:
    delay, largest, rows = 4, [0, 0], []
    for number, (side, ahead) in enumerate(steps):
        at = largest[side] - delay + ahead
        largest[side] = max(largest[side], at)
        rows.append((side, search(number, at) if side == 0 else click(number, at)))
    found = []
    for places in cuts:
        numbers: Counter[Any] = Counter()
        with Driver(kernel(within, how)) as driver:
            for batch in delayed.batches(rows, places, delay):
                left = step(driver, *batch)
                assert left.late == []
                numbers.update((r["word"], r["page"], r["_time"], r["_sub"]) for r in left.rows)
            assert all(not manifest.runs for manifest in driver.manifests.values())
        found.append(numbers)
    assert found[0] == found[1]
