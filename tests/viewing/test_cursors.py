"""Cursors: offsets as text round-trip, and other text is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.viewing.cursors import format_cursor, parse_cursor

PLACES = st.dictionaries(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1), min_size=1,
                         max_size=30)  # fmt: skip


@given(PLACES)
def test_a_cursor_round_trips(places: dict[int, int]) -> None:
    assert parse_cursor(format_cursor(places), what="from") == places


@pytest.mark.parametrize(
    "text", ["", "0", "@", "0@", "@1", "0@1,", ",0@1", "0@1,0@2", "-1@0", "0@-1", "0@1.5", "a@b",
             "0@1 ", "٣@١", "0@" + "9" * 19, "0@1," * 5_000],
)  # fmt: skip
def test_any_other_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match="from needs a cursor such as 0@120,1@98") as raised:
        parse_cursor(text, what="from")
    assert len(str(raised.value)) < 250
