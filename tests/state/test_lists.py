"""Lists in state: bags added up, peaks kept, whatever the order, the cut and the slice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec
from millstream.state import lists
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.spec import StateColumn, StateSpec

BAG = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string()), ("count", pa.int64())]))
WORDS = pa.list_(pa.int32())
KEY = pa.schema([("k", pa.int64())])
longs = st.sampled_from([0, 1, -(2**63), 2**63 - 1]) | st.integers(-3, 3)
entry = st.tuples(longs, st.sampled_from(["", "x", "\U0001f30a"]), st.integers(-2, 3))
bags = st.none() | st.lists(entry, max_size=4)


def as_entries(bag: list[tuple[Any, ...]] | None) -> list[dict[str, Any]] | None:
    return (
        None if bag is None else [dict(zip("ab", e, strict=False)) | {"count": e[2]} for e in bag]
    )


def united(groups: list[list[Any]], kind: pa.DataType, keep: int | None = None) -> list[Any]:
    rows = [value for group in groups for value in group]
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    padded = pa.array([None, *rows, None], kind).slice(1, len(rows))
    found = lists.peaks(padded, starts) if kind == WORDS else lists.bag(padded, starts, keep=keep)
    found.validate(full=True)
    assert found.type == kind
    answer: list[Any] = found.to_pylist()
    return answer


def counted(group: list[list[tuple[Any, ...]] | None]) -> list[tuple[Any, Any, int]]:
    counts: Counter[Any] = Counter()
    for bag in group:
        for a, b, count in bag or []:
            counts[a, b] += count
    return [(*key, count) for key, count in sorted(counts.items()) if count]


@settings(max_examples=100)
@given(st.lists(st.lists(bags, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_bag_adds_counts_of_equal_entries_and_drops_zero_counts(
    groups: list[list[Any]],
) -> None:
    found = united([[as_entries(bag) for bag in group] for group in groups], BAG)
    assert found == [as_entries(counted(group)) for group in groups]


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.none() | st.lists(entry.filter(lambda e: e[2] > 0), max_size=4),
                      min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(-4, 4).filter(bool),
)  # fmt: skip
def test_a_bag_with_keep_n_keeps_the_first_or_last_items(
    groups: list[list[Any]], keep: int
) -> None:
    found = united([[as_entries(bag) for bag in group] for group in groups], BAG, keep)
    for entries, group in zip(found, groups, strict=True):
        things = [(a, b) for a, b, count in counted(group) for _ in range(count)]
        kept = things[:keep] if keep > 0 else things[keep:]
        assert [(e["a"], e["b"]) for e in entries for _ in range(e["count"])] == kept
        assert len({(e["a"], e["b"]) for e in entries}) == len(entries)


@given(st.lists(st.lists(st.none() | st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 200)),
                         min_size=1, max_size=3), min_size=1, max_size=4))  # fmt: skip
def test_peaks_keep_the_largest_of_those_that_share_their_upper_bits(
    groups: list[list[Any]],
) -> None:
    expected = []
    for group in groups:
        highest: dict[int, int] = {}
        for word in (word for words in group for word in words or []):
            highest[word >> 6] = max(word, highest.get(word >> 6, 0))
        expected.append(sorted(highest.values()))
    assert united(groups, WORDS) == expected


def test_bags_in_state_are_the_same_for_any_batches_and_merges() -> None:
    chance = random.Random(8)
    spec = StateSpec(KEY, (StateColumn("v", BAG, "bag"), StateColumn("w", BAG, "bag", 3)))
    rows = [(chance.randrange(3), [(chance.randrange(9), "x", chance.randint(1, 2))])
            for _ in range(60)]  # fmt: skip

    def state(some: list[Any]) -> pa.Table:
        keys = pa.array([row[0] for row in some], pa.int64())
        values = pa.array([as_entries(row[1]) for row in some], BAG)
        zeros = np.zeros(len(some), np.int64)
        columns = {"_order": zeros, "_hash": hash_keys([keys], len(some)), "k": keys}
        return combine(pa.table({**columns, "v": values, "w": values}), spec)

    whole = state(rows)
    for size in (1, 7, 31):
        parts = [state(rows[at : at + size]) for at in range(0, len(rows), size)]
        chance.shuffle(parts)
        assert combine(pa.concat_tables(parts), spec).equals(whole)


def test_a_tombstone_drops_a_bag_and_later_values_start_a_new_one() -> None:
    spec = StateSpec(KEY, (StateColumn("v", BAG, "bag"),))
    keys = pa.array([1, 1, 1, 1], pa.int64())
    entries = [as_entries([(n, "x", 1)]) for n in range(4)]
    rows = pa.table({"_order": np.zeros(4, np.int64), "_hash": hash_keys([keys], 4), "k": keys,
                     "v": pa.array(entries, BAG),
                     "_gone": [False, True, False, False]})  # fmt: skip
    found = combine(rows, spec)
    assert found["_gone"].to_pylist() == [True, False]
    assert found["v"].to_pylist() == [None, as_entries([(2, "x", 1), (3, "x", 1)])]


def test_zeros_of_either_sign_and_all_nans_are_the_same_entry() -> None:
    floats = pa.list_(pa.struct([("a", pa.float64()), ("count", pa.int64())]))
    nan = float("nan")
    group = [[{"a": a, "count": count}] for a, count in [(-0.0, 1), (nan, 2), (0.0, -1), (-nan, 3)]]
    assert str(united([group], floats)) == "[[{'a': nan, 'count': 5}]]"


def test_values_under_a_null_are_not_entries() -> None:
    entries = pa.array(as_entries([(n, "", 1) for n in range(4)]), BAG.value_type)
    mask = pa.array([False, True, False])
    padded = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), entries, type=BAG, mask=mask
    )
    found = lists.bag(padded, np.array([0]), keep=None)
    assert found.to_pylist() == [as_entries([(0, "", 1), (3, "", 1)])]


def test_wide_and_many_keys_are_distinguished_where_they_do_not_fit_one_word() -> None:
    ends = [(-(2**63), "", 1), (2**63 - 1, "", 1), (0, "", 1), (0, "x", 1)]
    group = [as_entries([e]) for e in ends * 2]
    [found] = united([group], BAG)
    assert found == as_entries(sorted((a, b, 2) for a, b, _ in ends))


def test_more_entries_than_a_list_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_MOST_ELEMENTS", 3)
    bag = as_entries([(n, "", 1) for n in range(4)])
    with pytest.raises(InvalidInput, match=r"fewer than 2³¹ entries .*; got 4; use smaller"):
        united([[bag, bag]], BAG)


def test_a_users_merge_gets_the_values_of_groups_and_their_starts() -> None:
    seen = []

    def merge(array: pa.Array, starts: np.ndarray) -> pa.Array:
        seen.append((array.to_pylist(), starts.tolist()))
        return array.take(pa.array(starts))

    spec = StateSpec(KEY, (StateColumn("v", pa.string(), "user", merge=merge),))
    keys = pa.array([5, 5, 5], pa.int64())
    rows = pa.table({"_order": pa.array([1, 0, 1]), "_hash": hash_keys([keys], 3), "k": keys,
                     "v": ["a", "b", "c"]})  # fmt: skip
    assert combine(rows, spec)["v"].to_pylist() == ["b", "a"]
    assert seen == [(["b", "a", "c"], [0, 1])]
    assert spec.to_json()["values"] == [["v", "string", "user"]]


def test_keep_of_a_bag_is_stored_in_the_checkpoint() -> None:
    spec = StateSpec(KEY, (StateColumn("v", BAG, "bag", -2), StateColumn("w", BAG, "bag")))
    assert spec.to_json()["values"] == [["v", str(BAG), "bag", -2], ["w", str(BAG), "bag"]]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: StateColumn("v", pa.list_(pa.int64()), "bag"), "a bag in state needs a list"),
        (lambda: StateColumn("v", pa.list_(pa.struct([("count", pa.int64())])), "bag"), "a bag in"),
        (lambda: StateColumn("v", pa.list_(pa.struct([("a", pa.int64()), ("n", pa.int64())])),
                             "bag"), "a bag in state needs"),
        (lambda: StateColumn("v", pa.list_(pa.int64()), "peaks"), "a peaks in state needs a list"),
        (lambda: StateColumn("v", pa.int64(), "user"), "a state column needs a merge function if"),
        (lambda: StateColumn("v", pa.int64(), "sum", merge=lambda a, _s: a), "needs a merge funct"),
        (lambda: StateColumn("v", pa.int64(), "sum", 3), "keep needs a bag, and .*; got keep=3 of"),
        (lambda: StateColumn("v", BAG, "bag", 0), "keep needs a bag, and a number that is not 0"),
    ],
)  # fmt: skip
def test_an_invalid_list_column_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=sentence):
        make()
