"""Logarithmic buckets: in the order of numbers, and never further from them than stated."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.operators.aggregates.sketches.log_buckets import LogBuckets

ERRORS = [0.0001, 0.01, 0.1, 0.5]
normal = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda x: abs(x) >= sys.float_info.min
)


def shown(values: list[float], error: float) -> list[float]:
    buckets = LogBuckets(error)
    found: list[float] = buckets.numbers(buckets.of(np.array(values)).astype(np.int64)).tolist()
    return found


@given(normal, st.sampled_from(ERRORS))
@example(sys.float_info.max, 0.5)
@example(-sys.float_info.max, 0.01)
@example(sys.float_info.min, 0.5)
@example(sys.float_info.min, 0.0001)
@example(1.0, 0.01)
@example(-1.0, 0.01)
def test_the_value_of_a_bucket_is_within_the_error(value: float, error: float) -> None:
    [found] = shown([value], error)
    assert math.isfinite(found)
    assert abs(found - value) <= error * abs(value) * (1 + 1e-9)


@given(st.lists(st.floats(allow_nan=False), min_size=2), st.sampled_from(ERRORS))
def test_buckets_are_in_the_order_of_numbers(values: list[float], error: float) -> None:
    ordered = LogBuckets(error).of(np.array(sorted(values)))
    assert (np.diff(ordered.astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("error", ERRORS)
def test_zero_infinities_and_nan_have_separate_buckets(error: float) -> None:
    values = [-math.inf, -sys.float_info.max, -sys.float_info.min, -0.0, sys.float_info.min,
              sys.float_info.max, math.inf, math.nan]  # fmt: skip
    buckets = LogBuckets(error).of(np.array(values)).astype(np.int64)
    assert (np.diff(buckets) > 0).all()
    found = shown(values, error)
    assert [found[0], str(found[3]), found[6]] == [-math.inf, "0.0", math.inf]
    assert math.isnan(found[7])


@pytest.mark.parametrize("value", [5e-324, -5e-324, 2.2e-308])
def test_subnormal_doubles_count_as_zero(value: float) -> None:
    assert shown([value], 0.01) == [0.0]


def test_a_factor_of_ten_takes_as_many_buckets_as_stated() -> None:
    buckets = LogBuckets(0.01)
    low, high = buckets.of(np.array([1.0, 10.0])).tolist()
    assert 114 <= high - low <= 116
