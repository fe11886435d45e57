"""Spans of rows combined to one: as a loop over their rows would, for every kind of column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.operators.windows import folding
from millstream.operators.windows.folding import folded
from millstream.state.spec import StateColumn

COLUMNS = (
    StateColumn("count", pa.int64(), "sum"),
    StateColumn("large", pa.int64(), "sum"),
    StateColumn("holes", pa.int64(), "sum"),
    StateColumn("money", pa.decimal128(38, 2), "sum"),
    StateColumn("mass", pa.float64(), "dsum"),
    StateColumn("least", pa.string(), "min"),
    StateColumn("most", pa.float64(), "max"),
    StateColumn("head", pa.int64(), "first"),
    StateColumn("tail", pa.int64(), "last"),
)
SCHEMA = pa.schema([field for column in COLUMNS for field in column.fields])


def rows_of(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    small = random.integers(-9, 9, count).tolist()
    return pa.Table.from_pylist(
        [
            {
                "count": n,
                "large": n * 2**52 + place,
                "holes": None if n % 4 == 0 else n,
                "money": Decimal(n),
                "mass": 1e100 if n == 3 else n / 4,
                "mass__lo": 0.0,
                "least": None if n < -6 else str(n),
                "most": None if n > 6 else float(n),
                "head": None if n == 0 else n,
                "tail": None if n == 1 else n,
            }
            for place, n in enumerate(small)
        ],
        schema=SCHEMA,
    )


def looped(part: list[dict[str, Any]]) -> dict[str, Any]:
    def known(name: str) -> list[Any]:
        return [row[name] for row in part if row[name] is not None]

    return {
        "count": sum(known("count")),
        "large": sum(known("large")),
        "holes": sum(known("holes")) if known("holes") else None,
        "money": sum(known("money")),
        "mass": sum(known("mass"), start=0.0) if 1e100 not in known("mass") else None,
        "least": min(known("least"), default=None),
        "most": max(known("most"), default=None),
        "head": part[0]["head"],
        "tail": part[-1]["tail"],
    }


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_a_span_is_combined_as_a_loop_would(sizes: list[int], seed: int, data: Any) -> None:
    starts = np.cumsum([0, *sizes[:-1]])
    rows = rows_of(sum(sizes), seed)
    spans = []
    for _ in range(data.draw(st.integers(0, 12))):
        group = data.draw(st.integers(0, len(sizes) - 1))
        low = data.draw(st.integers(0, sizes[group] - 1))
        high = data.draw(st.integers(low + 1, sizes[group]))
        spans.append((int(starts[group]) + low, int(starts[group]) + high))
    lows, highs = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    made = [row for _, part in folded(rows, COLUMNS, starts, lows, highs)
            for row in part.to_pylist()]  # fmt: skip
    whole = rows.to_pylist()
    for found, (low, high) in zip(made, spans, strict=True):
        for name, value in looped(whole[low:high]).items():
            if not (name == "mass" and value is None):
                assert found[name] == value


def test_a_large_number_that_has_gone_from_the_window_leaves_no_trace() -> None:
    values = [1e300, 0.1, 0.2, 0.3]
    rows = pa.table({"mass": values, "mass__lo": [0.0] * 4})
    column = (StateColumn("mass", pa.float64(), "dsum"),)
    spans = np.array([1, 2]), np.array([4, 4])
    ((_, made),) = folded(rows, column, np.zeros(1, np.int64), *spans)
    assert made["mass"].to_pylist() == [0.6, 0.5]


def test_sums_that_might_overflow_on_the_way_are_right_where_they_fit() -> None:
    values = [2**62, 2**62, -(2**62), -(2**62), 5]
    rows = pa.table({"large": values})
    column = (StateColumn("large", pa.int64(), "sum"),)
    lows, highs = np.array([0, 1, 1, 4]), np.array([3, 3, 5, 5])
    ((_, made),) = folded(rows, column, np.zeros(1, np.int64), lows, highs)
    assert made["large"].to_pylist() == [2**62, 0, 5 - 2**62, 5]


def test_a_sum_that_does_not_fit_is_refused() -> None:
    rows = pa.table({"large": [2**62, 2**62, -(2**63), -1]})
    column = (StateColumn("large", pa.int64(), "sum"),)
    for low, high in ((0, 2), (2, 4)):
        with pytest.raises(InvalidInput, match="the sum 'large' needs to fit int64"):
            list(folded(rows, column, np.zeros(1, np.int64), np.array([low]), np.array([high])))


def test_spans_are_combined_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "CHUNK_BYTES", 10_000)
    rows = rows_of(500, 1)
    lows = np.arange(400, dtype=np.int64)
    made = list(folded(rows, COLUMNS, np.zeros(1, np.int64), lows, lows + 100))
    assert len(made) > 10
    assert [n for spans, _ in made for n in range(spans.start, spans.stop)] == list(range(400))
    assert all(part.num_rows == spans.stop - spans.start for spans, part in made)
