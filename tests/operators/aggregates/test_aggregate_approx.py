"""Approximate aggregates: the stated error, and the same answer under any cut and order."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.aggregates.accumulating import Accumulating, in_pieces, single, table
from tests.oracles import aggregates as oracle

import millstream as ms
from millstream.errors import InvalidInput

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "double": (pa.float64(), st.floats(allow_subnormal=False)),
    "float": (pa.float32(), st.floats(width=32, allow_subnormal=False)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)),
    "decimal": (pa.decimal128(30, 2), st.integers(-(10**28), 10**28).map(
        lambda n: Decimal(n).scaleb(-2))),
}  # fmt: skip


def placed(values: list[Any], signs: list[int]) -> list[dict[str, Any]]:
    return [{"k": 0, "v": value, "_sign": sign} for value, sign in zip(values, signs, strict=True)]


@settings(max_examples=100)
@given(st.data(), st.floats(0, 1), st.sampled_from([0.001, 0.01, 0.2]), st.integers(0, 2**32))
def test_an_approximate_quantile_is_within_its_error_of_the_value_at_its_place(
    data: st.DataObject, p: float, error: float, seed: int
) -> None:
    kind, strategy = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]
    values = data.draw(st.lists(strategy, min_size=1, max_size=30))
    taken = data.draw(st.lists(st.integers(0, len(values) - 1), unique=True))
    rows = placed(values, [1] * len(values)) + placed(
        [values[at] for at in taken], [-1] * len(taken)
    )
    made = Accumulating(
        {"answer": ms.approx_quantile("v", p, error=error)}, pa.schema([("v", kind)]),
        retractable=True,
    )  # fmt: skip
    found = in_pieces(made, table(rows, kind), random.Random(seed))[0]["answer"]
    left = [value for at, value in enumerate(values) if at not in set(taken)]
    if not left:
        assert found is None
        return
    exact = float(oracle.at_place(left, p))
    if math.isfinite(exact):
        assert abs(found - exact) <= error * abs(exact) * (1 + 1e-9)
    else:
        assert oracle.same(found, exact)


def test_the_results_of_both_do_not_depend_on_batches_and_order() -> None:
    rng = np.random.default_rng(4)
    rows = [{"k": int(n % 3), "v": float(v)} for n, v in enumerate(rng.lognormal(0, 3, 900))]
    made = Accumulating(
        {"q": ms.approx_quantile("v", 0.9), "n": ms.approx_distinct("v")},
        pa.schema([("v", pa.float64())]),
    )
    some = table(rows, pa.float64())
    whole = made.answers(made.lifted(some))
    for seed in range(8):
        assert in_pieces(made, some, random.Random(seed)) == whole


@pytest.mark.parametrize("count", [1, 10, 1_000, 50_000])
@pytest.mark.parametrize("error", [0.02, 0.05])
def test_distinct_values_are_counted_within_three_stated_errors(count: int, error: float) -> None:
    values = [f"user {n}" for n in range(count)]
    found = single(ms.approx_distinct("v", error=error), pa.string(), [*values, None, *values[:9]])
    assert abs(found - count) <= 3 * error * count


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.int64(), [2**63 - 1, -(2**63), 0]), (pa.float64(), [math.nan, 0.0, math.inf]),
     (pa.bool_(), [True, False]), (pa.binary(), [b"", b"\x00"]),
     (pa.decimal128(38, 2), [Decimal("0.01"), Decimal("1E30")]),
     (pa.string(), ["", "\U0010ffff"]), (pa.list_(pa.int8()), [[], [1], [1, None]]),
     (pa.struct([("a", pa.int8())]), [{"a": None}, {"a": 1}])],
    ids=str,
)  # fmt: skip
def test_a_few_values_of_any_type_are_counted_exactly(kind: pa.DataType, values: list[Any]) -> None:
    assert single(ms.approx_distinct("v"), kind, [*values, None, *values]) == len(values)


def test_registers_in_use_are_all_that_is_kept() -> None:
    made = Accumulating({"n": ms.approx_distinct("v")}, pa.schema([("v", pa.int64())]))
    rows = table([{"k": 0, "v": n % 5} for n in range(1_000)], pa.int64())
    assert len(made.lifted(rows)["_v:hll12"][0]) == 5
    many = pa.table({"k": np.zeros(100_000, np.int64), "v": np.arange(100_000)})
    assert len(made.lifted(many)["_v:hll12"][0]) == 4096


def test_a_retraction_from_an_aggregate_that_drops_values_is_refused() -> None:
    row = table([{"k": 0, "v": 1, "_source": 0, "_partition": 0, "_offset": 0, "_sub": 0,
                  "_sign": -1}], pa.int64())  # fmt: skip
    for forgetful in (ms.approx_distinct("v"), ms.min("v"), ms.max("v"), ms.first("v"),
                      ms.last("v"), ms.collect("v", limit=2), ms.largest("v", 1),
                      ms.smallest("v", 1)):  # fmt: skip
        made = Accumulating({"a": forgetful}, pa.schema([("v", pa.int64())]))
        with pytest.raises(InvalidInput, match="needs a state that keeps its rows to retract one"):
            made.lifted(row)


def test_rows_without_origin_are_refused_by_aggregates_that_need_an_order() -> None:
    rows = pa.table({"k": [0], "v": [1], "_source": [0], "_offset": [5]})
    made = Accumulating({"a": ms.first("v")}, pa.schema([("v", pa.int64())]))
    with pytest.raises(InvalidInput, match=r"first needs the origin .* without _partition, _sub"):
        made.lifted(rows)
