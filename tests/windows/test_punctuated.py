"""Punctuated windows: what they refuse, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import row_windows
from tests.windows import row_feeding
from tests.windows.row_feeding import ANSWERS, COLUMNS, KEYS, batched, cuts, streams

from millstream.errors import InvalidSpec
from millstream.windows.punctuated import Punctuated, punctuated
from millstream.windows.punctuated_kernel import punctuated_kernel

if TYPE_CHECKING:
    from millstream.windows.cut_kernel import CutKernel


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


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(punctuated("a > 1")) == 'punctuated("a > 1")'
    every_word = punctuated("a > 1", member=False, all_keys=True)
    assert str(every_word) == 'punctuated("a > 1", member=False, all_keys=True)'


@pytest.mark.parametrize("sql", ["", " ", None, 3])
def test_an_empty_expression_is_refused(sql: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"punctuated needs an SQL expression; got .*; write"):
        punctuated(sql)


def test_an_option_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="the `member` of punctuated needs to be True or False"):
        punctuated("a", member="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpec, match="the `all_keys` of punctuated needs to be True or False"):
        punctuated("a", all_keys=1)  # type: ignore[arg-type]
