"""Windows of rows: what they refuse, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows.by_rows import row_feeding
from tests.operators.windows.by_rows.row_feeding import (
    ANSWERS,
    COLUMNS,
    KEYS,
    batched,
    cuts,
    streams,
)
from tests.oracles import row_windows

from millstream.errors import InvalidSpec
from millstream.operators.windows.by_rows.rows_kernel import RowsKernel
from millstream.operators.windows.by_rows.spec import Rows, rows


@settings(max_examples=30, deadline=None)
@given(
    stream=streams() | streams(timed=False),
    shares=cuts(),
    n=st.integers(1, 7),
    every=st.integers(1, 7),
    keys=st.sampled_from(KEYS),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_every_batch_gives_what_the_oracle_gives(
    stream: list[dict[str, Any]],
    shares: list[float],
    n: int,
    every: int,
    keys: list[str],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    every = min(n, every)
    row_feeding.agrees_with_the_oracle(
        RowsKernel(Rows(n, every), keys, ANSWERS, COLUMNS),
        row_windows.Counted(n, every),
        batched(stream, shares),
        keys=keys,
        ranges=ranges,
        slices=slices,
        merge_every=merge_every,
    )


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(rows(3)) == "rows(3)"
    assert str(rows(3, every=3)) == "rows(3)"
    assert str(rows(3, every=1)) == "rows(3, every=1)"


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None, "3", 2**31])
def test_an_invalid_number_of_rows_is_refused(n: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"rows needs a number of rows from 1 to 2147483647; got"):
        rows(n)
    if n is not None:
        with pytest.raises(InvalidSpec, match="the `every` of rows needs a number of rows from 1"):
            rows(3, every=n)


def test_windows_with_rows_between_them_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"rows needs an `every` of at most its number of rows"):
        rows(3, every=4)
