"""Durations: text and timedelta to whole microseconds, exactly, or an error."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.duration import micros, positive_micros, text
from millstream.errors import InvalidSpec

FOUR_CENTURIES = 400 * 365 * 86_400 * 1_000_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1 microsecond", 1),
        ("10 seconds", 10_000_000),
        ("10 second", 10_000_000),
        ("10s", 10_000_000),
        ("5 ms", 5_000),
        ("250us", 250),
        ("2 min", 120_000_000),
        ("2 mins", 120_000_000),
        ("1 minute 30 seconds", 90_000_000),
        ("1h 1s", 3_601_000_000),
        ("2 days", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("0.5 seconds", 500_000),
        ("1.000001 s", 1_000_001),
        ("-250 ms", -250_000),
        ("-1.5 s", -1_500_000),
        ("  3 HOURS  ", 10_800_000_000),
        ("0 seconds", 0),
        ("0.1 s", 100_000),
    ],
)
def test_a_duration_is_parsed_to_the_microsecond(written: str, expected: int) -> None:
    assert micros(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "  ", "10", "seconds", "ten seconds", "10 parsecs", "10 seconds and", "1..5 s", "1e3 s",
     "10 s5", "- 5 s", "+5 s", "٣ x", "5 seconds, 3 ms", "ss", "10 sss"],
)  # fmt: skip
def test_an_invalid_duration_is_refused_with_the_value_and_the_units(written: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        micros(written, what="watermark")

    assert str(refused.value) == (
        'watermark needs a duration such as "10 seconds" or a timedelta; '
        f"got {written!r}; write a number and one of microseconds, milliseconds, seconds, "
        "minutes, hours, days, weeks"
    )


@pytest.mark.parametrize("written", ["0.5 us", "1.0000001 s", "0.0001 ms"])
def test_a_duration_finer_than_a_microsecond_is_refused_not_rounded(written: str) -> None:
    with pytest.raises(InvalidSpec):
        micros(written)


@pytest.mark.parametrize("value", [10, 1.5, None, b"1 s"])
def test_a_bare_number_has_no_unit_and_is_refused(value: object) -> None:
    with pytest.raises(InvalidSpec, match=re.escape(f"got {value!r}")):
        micros(value)  # type: ignore[arg-type]


@given(st.timedeltas())
def test_a_timedelta_is_exact_over_its_whole_range(value: timedelta) -> None:
    assert micros(value) == value // timedelta(microseconds=1)


@given(st.integers(-FOUR_CENTURIES, FOUR_CENTURIES))
def test_formatting_and_parsing_are_inverse(length: int) -> None:
    assert micros(text(length)) == length


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0 seconds"),
        (1, "1 microsecond"),
        (90_000_000, "1 minute 30 seconds"),
        (604_800_000_000, "1 week"),
        (-90_000_000, "-1 minute -30 seconds"),
    ],
)
def test_a_duration_is_formatted_as_the_shortest_exact_text(length: int, expected: str) -> None:
    assert text(length) == expected


@pytest.mark.parametrize("value", ["0 seconds", "-1 s", timedelta(0)])
def test_a_length_of_zero_or_less_is_refused(value: str | timedelta) -> None:
    with pytest.raises(InvalidSpec, match="size needs a duration above zero; got"):
        positive_micros(value, what="size")


def test_a_length_above_zero_is_accepted() -> None:
    assert positive_micros("1 us", what="size") == 1
