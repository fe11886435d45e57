"""Rows in the order of state: what is sorted is what Python's own sort gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.state.arrays.numpy_columns import taken
from millstream.state.sorting import by_columns, by_group, permutation

words = st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1]), min_size=3, max_size=3)


@given(rows=st.lists(words, min_size=1, max_size=20))
def test_rows_are_sorted_column_by_column_and_equal_ones_stay(rows: list[list[int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    order = by_columns(columns)
    wanted = sorted(range(len(rows)), key=rows.__getitem__)
    assert (list(range(len(rows))) if order is None else order.tolist()) == wanted


@given(rows=st.lists(words, min_size=1, max_size=20))
def test_adjacent_groups_are_sorted_inside_too(rows: list[list[int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    order = by_columns(columns)
    wanted = sorted(range(len(rows)), key=rows.__getitem__)
    assert (list(range(len(rows))) if order is None else order.tolist()) == wanted


@pytest.mark.parametrize("furthest", [10, 2**62])
def test_groups_are_sorted_by_number_however_far_apart_numbers_are(furthest: int) -> None:
    random = np.random.default_rng(1)
    groups, numbers = random.integers(0, 9, 500), random.integers(-furthest, furthest, 500)
    pairs = list(zip(groups.tolist(), numbers.tolist(), strict=True))
    assert by_group(groups, numbers).tolist() == sorted(range(500), key=pairs.__getitem__)


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("tops", [2, 300, 2**32])
@pytest.mark.parametrize("apart", [1, 2**18, 2**60])
def test_hashes_that_agree_in_their_upper_half_are_sorted_by_the_lower(
    *, rising: bool, tops: int, apart: int
) -> None:
    random = np.random.default_rng(2)
    upper = random.integers(0, tops, 4000).astype(np.uint64) << np.uint64(32)
    hashes = upper | random.integers(0, 50, 4000).astype(np.uint64) << np.uint64(8)
    orders = random.integers(-3, 3, 4000) * apart
    orders = np.sort(orders) if rising else orders
    order = permutation(orders, hashes)
    pairs = list(zip(orders.tolist(), hashes.tolist(), strict=True))
    assert order is not None
    assert order.tolist() == sorted(range(4000), key=pairs.__getitem__)


def test_taken_rows_are_those_at_their_indices_also_where_a_column_is_empty() -> None:
    table = pa.table({"n": [1, 2, 3], "none": pa.nulls(3, pa.list_(pa.string()))})
    assert taken(table, np.array([2, 0])).to_pylist() == [
        {"n": 3, "none": None}, {"n": 1, "none": None}
    ]  # fmt: skip
    assert taken(table, np.zeros(0, np.int64)).schema == table.schema
