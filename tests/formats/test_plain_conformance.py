"""The formats text and bytes: text is UTF-8 or a bad row, bytes are unchanged."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.text import Bytes, Text
from millstream.schema import Schema

TEXT, BYTES = Schema.parse("value string"), Schema.parse("value binary")
VALUES = st.lists(
    st.none() | st.binary(max_size=20) | st.text(max_size=8).map(str.encode), max_size=60
)


def is_text(value: bytes) -> bool:
    try:
        str(value, "utf-8", "strict")
    except UnicodeError:
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(VALUES, st.sampled_from((pa.binary(), pa.large_binary())))
def test_every_value_is_text_or_a_bad_row(values: list[bytes | None], kind: pa.DataType) -> None:
    made = Text().decode(pa.array(values, kind), TEXT)

    good = [n for n, value in enumerate(values) if value is not None and is_text(value)]
    assert made.good.tolist() == good
    assert made.table["value"].to_pylist() == [(values[n] or b"").decode() for n in good]
    assert sorted([*made.good.tolist(), *made.bad.tolist()]) == list(range(len(values)))
    for number, reason in zip(made.bad.tolist(), made.reasons, strict=True):
        assert reason.startswith("value is null" if values[number] is None else "not text: invalid")
    assert made.table.schema.equals(TEXT.arrow())


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_bytes_are_unchanged_and_only_null_is_bad(values: list[bytes | None]) -> None:
    made = Bytes().decode(pa.chunked_array([pa.array(values, pa.binary())]), BYTES)

    assert made.table["value"].to_pylist() == [value for value in values if value is not None]
    assert set(made.reasons) <= {"value is null"}
    assert Bytes().encode(made.table).to_pylist() == made.table["value"].to_pylist()


def test_text_and_bytes_need_one_column_of_the_right_type() -> None:
    with pytest.raises(InvalidSpec, match='format="text" needs a schema of one string column'):
        Text().check(Schema.parse("a string, b string"))
    with pytest.raises(InvalidSpec, match='format="bytes" needs a schema of one binary column'):
        Bytes().check(TEXT)
    with pytest.raises(InvalidInput, match=r"got 1 nulls in the column 'line'; filter them"):
        Text().encode(pa.table({"line": ["a", None]}))
