"""Punctuated windows: what they refuse, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.by_rows import row_feeding
from tests.operators.windows.by_rows.row_feeding import (
    ANSWERS,
    COLUMNS,
    KEYS,
    batched,
    cuts,
    streams,
)
from tests.operators.windows.driving import Driver
from tests.oracles import row_windows

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.by_rows.punctuated_kernel import punctuated_kernel
from millstream.operators.windows.by_rows.spec import Punctuated, punctuated

if TYPE_CHECKING:
    from millstream.operators.windows.by_rows.cut_kernel import CutKernel


def made(keys: list[str], *, member: bool, all_keys: bool) -> CutKernel:
    spec = Punctuated("mark", member=member, all_keys=all_keys)
    return punctuated_kernel(spec, keys, ANSWERS, COLUMNS)


@settings(max_examples=30, deadline=None)
@given(
    rows=streams() | streams(timed=False),
    shares=cuts(),
    member=st.booleans(),
    all_keys=st.booleans(),
    keys=st.sampled_from(KEYS),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_every_batch_gives_what_the_oracle_gives(
    rows: list[dict[str, Any]],
    shares: list[float],
    member: bool,
    all_keys: bool,
    keys: list[str],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    row_feeding.agrees_with_the_oracle(
        made(keys, member=member, all_keys=all_keys),
        row_windows.Punctuated(member, all_keys),
        batched(rows, shares),
        keys=keys,
        ranges=ranges,
        slices=slices,
        merge_every=merge_every,
    )


def test_only_what_is_added_to_an_open_window_is_written() -> None:
    origin = {"_source": 0, "_partition": 0, "_sub": 0}
    rows = [dict.fromkeys(COLUMNS.names) | origin | {"_offset": place} for place in range(3)]
    with Driver(made([], member=True, all_keys=False)) as driver:
        for row in rows:
            left = driver.step(tables.table([row], COLUMNS), before=MIN_TIME, after=MIN_TIME)
            assert (left.rows, left.gained) == ([], 1)
        left = driver.step(tables.table([], COLUMNS), before=MIN_TIME, after=END_OF_TIME)
        assert [row["n"] for row in left.rows] == [3]


def test_a_marker_for_all_keys_releases_the_watermark_that_their_windows_held_back() -> None:
    def row(offset: int, key: str, *, mark: bool = False) -> dict[str, Any]:
        origin = {"_source": 0, "_partition": 0, "_offset": offset, "_sub": 0}
        values = {"k": key, "mark": mark, "_punctuation": mark, "_time": offset}
        return dict.fromkeys(COLUMNS.names) | origin | values

    with Driver(made(["k"], member=False, all_keys=True), ranges=2) as driver:
        first = [row(1, "a"), row(2, "b"), row(3, "a")]
        left = driver.step(tables.table(first, COLUMNS), before=0, after=3)
        assert (left.rows, left.held) == ([], 2)
        second = [row(4, "end", mark=True), row(5, "a")]
        left = driver.step(tables.table(second, COLUMNS), before=3, after=5)
        assert sorted((r["k"], r["window_end"], r["n"]) for r in left.rows) == [
            ("a", 3, 2),
            ("b", 2, 1),
        ]
        assert (left.held, left.unplaced) == (5, 1)
        left = driver.step(tables.table([row(6, "end", mark=True)], COLUMNS), before=5, after=6)
        assert [(r["k"], r["n"]) for r in left.rows] == [("a", 1)]
        assert left.held == END_OF_TIME


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(punctuated("a > 1")) == 'punctuated("a > 1")'
    every_word = punctuated("a > 1", member=False, all_keys=True)
    assert str(every_word) == 'punctuated("a > 1", member=False, all_keys=True)'


@pytest.mark.parametrize("sql", ["", " ", None, 3])
def test_an_empty_expression_is_refused(sql: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"punctuated needs an SQL expression; got .*; write"):
        punctuated(sql)


def test_an_option_that_is_not_a_boolean_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="the `member` of punctuated needs to be True or False"):
        punctuated("a", member="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpec, match="the `all_keys` of punctuated needs to be True or False"):
        punctuated("a", all_keys=1)  # type: ignore[arg-type]
