"""The spec of distinct: what it says, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidSpec
from millstream.operators.distinct.spec import LONGEST, Distinct, distinct


def test_one_column_or_several_and_a_duration_or_none() -> None:
    assert distinct("id") == Distinct(("id",), None)
    assert distinct(["a", "b"], within="1 second") == Distinct(("a", "b"), 1_000_000)
    assert distinct(("a",), within="0 seconds") == Distinct(("a",), 0)


def test_it_prints_as_it_is_written() -> None:
    assert str(distinct("id")) == "distinct(by=['id'])"
    assert str(distinct("id", within="1 hour")) == "distinct(by=['id'], within=\"1 hour\")"


@pytest.mark.parametrize(
    ("by", "sentence"),
    [([], "at least one column; got none"), (["a", "a"], "each column once; got a"),
     ("", "names of columns; got ''"), ([1], r"names of columns; got \[1\]")],
)  # fmt: skip
def test_invalid_columns_are_refused(by: Any, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=f"distinct needs {sentence}"):
        distinct(by)


@pytest.mark.parametrize("within", [-1, LONGEST])
def test_a_within_out_of_range_is_refused(within: int) -> None:
    with pytest.raises(InvalidSpec, match="distinct needs a `within` from zero up to"):
        Distinct(("id",), within)


def test_a_within_that_is_not_a_duration_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="the `within` of distinct needs a duration"):
        distinct("id", within="for ever")
