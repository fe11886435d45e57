"""Types, roundings and refusals of the aggregates."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver

from millstream.errors import InvalidInput, InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.aggregates.accumulators import accumulator
from millstream.operators.windows.fixed.tumbling_kernel import TumblingKernel
from millstream.operators.windows.spec import Tumbling


def answer(aggregate: aggregates.Aggregate, kind: pa.DataType, values: list[Any]) -> Any:
    """The aggregate over values that come in two batches and two slices."""
    columns = pa.schema([("v", kind)])
    made = TumblingKernel(Tumbling(10), [], {"answer": aggregate}, columns)
    rows = [{"v": value, "_time": 1} for value in values]
    middle = len(rows) // 2
    with Driver(made, slices=2) as driver:
        driver.step(tables.table(rows[:middle], columns), before=MIN_TIME, after=1)
        left = driver.step(tables.table(rows[middle:], columns), before=1, after=END_OF_TIME)
    [row] = left.rows
    return row["answer"]


@pytest.mark.parametrize(
    ("kind", "total", "mean"),
    [
        (pa.int8(), pa.int64(), pa.float64()),
        (pa.int16(), pa.int64(), pa.float64()),
        (pa.int32(), pa.int64(), pa.float64()),
        (pa.int64(), pa.int64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(15, 2), pa.decimal128(9, 6)),
        (pa.decimal128(30, 2), pa.decimal128(38, 2), pa.decimal128(34, 6)),
        (pa.decimal128(38, 36), pa.decimal128(38, 36), pa.decimal128(38, 38)),
    ],
)
def test_sums_and_means_have_sparks_types(
    kind: pa.DataType, total: pa.DataType, mean: pa.DataType
) -> None:
    columns = pa.schema([("v", kind)])
    assert accumulator(aggregates.sum("v"), columns).type == total
    assert accumulator(aggregates.mean("v"), columns).type == mean
    assert accumulator(aggregates.max("v"), columns).type == kind
    assert accumulator(aggregates.count("v"), columns).type == pa.int64()


def test_a_sum_of_longs_that_fits_is_exact_whatever_the_partial_sums() -> None:
    huge = 2**63 - 1
    assert answer(aggregates.sum("v"), pa.int64(), [huge, huge, -huge, -huge, 5]) == 5
    assert answer(aggregates.sum("v"), pa.int64(), [huge, -1, 1]) == huge
    assert answer(aggregates.sum("v"), pa.int64(), [-huge, -1]) == -(2**63)


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1]])
def test_a_sum_of_longs_that_does_not_fit_names_the_column_and_the_remedy(
    values: list[int],
) -> None:
    with pytest.raises(InvalidInput, match=r"sum of 'v' needs .* 64 bits; .* cast .* decimal\(38"):
        answer(aggregates.sum("v"), pa.int64(), values)


def test_a_mean_of_longs_is_computed_from_the_exact_sum() -> None:
    assert answer(aggregates.mean("v"), pa.int64(), [2**63 - 1] * 4) == 2.0**63
    assert answer(aggregates.mean("v"), pa.int64(), [2**62, -(2**62), 3, 4]) == 1.75
    assert answer(aggregates.mean("v"), pa.int32(), [-1, -2]) == -1.5


@pytest.mark.parametrize(
    ("values", "mean"),
    [(["0.01", "0.00", "0.00"], "0.003333"), (["0.02", "0.00", "0.00"], "0.006667"),
     (["-0.02", "0.00", "0.00"], "-0.006667"), (["999.99"], "999.990000")],
)  # fmt: skip
def test_a_mean_of_decimals_rounds_half_up(values: list[str], mean: str) -> None:
    found = answer(aggregates.mean("v"), pa.decimal128(5, 2), [Decimal(v) for v in values])
    assert str(found) == mean


def test_a_mean_of_decimals_half_way_rounds_away_from_zero() -> None:
    cents = [Decimal("0.00")] * 31
    for sign in (1, -1):
        values = [Decimal("0.01") * sign, *cents]  # ± 0.0003125
        found = answer(aggregates.mean("v"), pa.decimal128(5, 2), values)
        assert found == Decimal("0.000313") * sign


def test_a_decimal_result_that_does_not_fit_names_the_column() -> None:
    most = Decimal("9" * 38)
    with pytest.raises(InvalidInput, match=r"mean of 'v' needs to fit into decimal\(38, 4\)"):
        answer(aggregates.mean("v"), pa.decimal128(38, 0), [most])
    with pytest.raises(InvalidInput, match=r"v:sum"):
        answer(aggregates.sum("v"), pa.decimal128(38, 0), [most, most])


def test_only_nulls_give_null_and_a_count_of_zero() -> None:
    for kind in (pa.int32(), pa.int64(), pa.float32(), pa.decimal128(5, 2)):
        for make in (aggregates.sum, aggregates.mean, aggregates.min, aggregates.max):
            assert answer(make("v"), kind, [None, None]) is None
        assert answer(aggregates.count("v"), kind, [None, None]) == 0
        assert answer(aggregates.count(), kind, [None, None]) == 2


def test_the_sum_of_negative_zeros_is_zero() -> None:
    for zeros in ([-0.0], [-0.0, -0.0]):
        assert str(answer(aggregates.sum("v"), pa.float64(), zeros)) == "0.0"
    assert str(answer(aggregates.min("v"), pa.float64(), [-0.0, 0.0])) == "0.0"


def test_infinities_and_nan_add_as_in_ieee() -> None:
    inf = float("inf")
    assert answer(aggregates.sum("v"), pa.float64(), [1.0, inf, 2.0]) == inf
    assert str(answer(aggregates.sum("v"), pa.float64(), [inf, -inf])) == "nan"


@pytest.mark.parametrize(
    ("make", "kind"),
    [(aggregates.sum, pa.string()), (aggregates.mean, pa.bool_()), (aggregates.sum, pa.date32()),
     (aggregates.min, pa.list_(pa.int64())), (aggregates.max, pa.struct([("a", pa.int64())])),
     (aggregates.max, pa.null())],
)  # fmt: skip
def test_an_unsupported_type_is_refused(make: Any, kind: pa.DataType) -> None:
    with pytest.raises(
        InvalidSpec, match=rf"{make.__name__} needs a column of .*; got 'v' of type"
    ):
        accumulator(make("v"), pa.schema([("v", kind)]))


def test_aggregates_of_one_column_share_their_state() -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    both: dict[str, aggregates.Aggregate] = {
        "a": aggregates.sum("v"),
        "b": aggregates.mean("v"),
        "n": aggregates.count("v"),
    }
    made = TumblingKernel(Tumbling(10), ["k"], both, columns)
    assert [column.name for column in made.tables["rows"].values] == ["_rows", "_v:sum", "_v:count"]
