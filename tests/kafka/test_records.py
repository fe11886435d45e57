from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.kafka.records import (
    encode,
    encode_headers,
    encode_key,
    milliseconds,
    moment,
    sent_at,
)


def test_a_mapping_becomes_compact_json_with_times_in_utc_and_decimals_as_text() -> None:
    berlin = timezone(timedelta(hours=1))
    value = {
        "name": "Zoë",
        "at": datetime(2026, 1, 1, 1, 0, 0, 5, tzinfo=berlin),
        "naive": datetime(2026, 1, 1),
        "price": Decimal("1.10"),
        "tags": ["a", None],
    }

    assert (
        encode(value)
        == (
            '{"name":"Zoë","at":"2026-01-01T00:00:00.000005Z",'
            '"naive":"2026-01-01T00:00:00.000000Z","price":"1.10","tags":["a",null]}'
        ).encode()
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aü", max_size=2), inner),
    max_leaves=4,
)  # fmt: skip


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), json_values, max_size=3))
def test_a_mapping_can_be_read_back(value: dict[str, object]) -> None:
    encoded = encode(value)
    assert encoded is not None
    assert json.loads(encoded) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "got 5 of type int"),
        (["a"], "type list"),
        ({"a": {1}}, "a value of type set"),
        ({"a": float("nan")}, "JSON can hold"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_named(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        encode(value)


def test_text_and_memoryviews_are_encoded() -> None:
    assert encode("ü") == b"\xc3\xbc"
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == b"x"
    assert encode(None) is None


def test_a_mapping_is_refused_as_key() -> None:
    with pytest.raises(InvalidInput, match="equal keys need equal bytes"):
        encode_key({"a": 1})


def test_headers_keep_their_order_and_repeated_names() -> None:
    assert encode_headers([("a", "1"), ("a", b"2"), ("b", None)]) == [
        ("a", b"1"),
        ("a", b"2"),
        ("b", None),
    ]
    assert encode_headers({"a": "1"}) == [("a", b"1")]


@pytest.mark.parametrize("headers", [["ab", "c"], [("a",)], 5, [(1, b"x")], {"a": 5}])
def test_invalid_headers_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidInput, match="header"):
        encode_headers(headers)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_time_is_kept_to_the_millisecond(time: datetime) -> None:
    whole = time.replace(microsecond=time.microsecond // 1000 * 1000)

    assert moment(milliseconds(time)) == whole


def test_a_time_after_the_year_9999_is_the_last_time_of_python() -> None:
    assert moment(2**62).year == 9999


@pytest.mark.parametrize("time", ["now", 1.5, True, None, -1, datetime(1969, 12, 31)])
def test_an_invalid_time_is_refused(time: Any) -> None:
    with pytest.raises(InvalidInput, match="timestamp needs"):
        milliseconds(time)


def test_the_epoch_is_refused_because_the_client_treats_it_as_now() -> None:
    with pytest.raises(InvalidInput, match='the client treats 0 as "now"'):
        sent_at(datetime(1970, 1, 1))
