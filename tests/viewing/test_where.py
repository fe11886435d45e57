"""The filter language, checked against Python and SQLite."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.kafka.records import Record
from millstream.viewing.fields import RecordRow
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from collections.abc import Mapping


def record(value: bytes | None, **other: object) -> Record:
    fields: dict[str, object] = {
        "topic": "shop",
        "partition": 2,
        "offset": 41,
        "timestamp": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "key": b"user-7",
        "headers": (("trace", b"abc"), ("none", None)),
    }
    return Record(value=value, **(fields | other))  # type: ignore[arg-type]


def answer(text: str, value: bytes | None = b"{}") -> object:
    return parse(text).answer(RecordRow(record(value)))


ORDER = (
    b'{"price": 12.5, "paid": true, "shop": {"country": "de"}, "items": [{"sku": "a-1"}],'
    b' "x": null}'
)


@pytest.mark.parametrize(
    "text",
    [
        "price > 12",
        "price = 12.5 and paid",
        "shop.country = 'de'",
        "SHOP.country = 'de' or NOT (price < 1)",
        "items.0.sku like 'a-%'",
        "items.0.sku like '_-1'",
        "shop.country in ('fr', 'de')",
        "shop.country not in ('fr', 'nl')",
        "x is null and y is null and price is not null",
        "`shop`.`country` = 'de'",
        'shop.country = "de" and shop.country != """de"""',
        "_key = 'user-7' and _partition = 2 and _offset >= 41 and _topic = 'shop'",
        "_headers.trace = 'abc' and _headers.none is null",
        "_timestamp >= '2026-01-01T12:00' and _timestamp < '2026-01-01 13:00+00:00'",
        "'2026-01-01T13:00+01:00' = _timestamp",
        "_timestamp in (1767268800000)",
        "price > -3 and price < 1.3e1",
        "price<>1 and price==12.5",
        "not not paid",
    ],
)
def test_a_true_condition_is_true(text: str) -> None:
    assert answer(text, ORDER) is True


@pytest.mark.parametrize(
    "text",
    ["missing > 1", "not missing > 1", "missing != 1", "price = '12.5'", "paid > 0", "shop = 'de'",
     "x = null", "x", "price", "price like '1%'", "items.7.sku = 'a-1'", "items.sku = 'a-1'",
     "shop.country in (1, 2)", "_timestamp > missing"],
)  # fmt: skip
def test_a_comparison_with_a_missing_field_or_another_kind_is_unknown(text: str) -> None:
    assert answer(text, ORDER) is None


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"plain text", b"\xff\xfe", b'{"price": NaN}', b"[" * 100_000, b'{"price": 1'],
)
def test_a_value_that_is_not_json_has_no_fields(raw: bytes | None) -> None:
    assert answer("price = 1", raw) is None
    assert answer("price is null", raw) is True
    assert answer("_partition = 2", raw) is True


@pytest.mark.parametrize(
    ("text", "place", "got"),
    [
        ("", 1, "the end"),
        ("price >", 8, "the end"),
        ("price > )", 9, "`)`"),
        ("price > 1 1", 11, "`1`"),
        ("(price > 1", 11, "the end"),
        ("price is 5", 10, "`5`"),
        ("price in 5", 10, "`5`"),
        ("price like 5", 12, "`5`"),
        ("price not 5", 11, "`5`"),
        ("5", 1, "`5`"),
        ("price > 1 and 'x'", 15, "`x`"),
        ("price = 'open", 9, "''open'"),
        ('price = "x', 9, "'\"x'"),
        ("price; drop", 6, "'; drop'"),
        ("__import__('os')", 11, "`(`"),
        ("a < b < c", 7, "`<`"),
        ("_timestamp > 'soon'", 14, "`soon`"),
        ("price > 5euro", 9, "'5euro'"),
    ],
)
def test_a_syntax_error_is_reported_with_its_position(text: str, place: int, got: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse(text)
    assert f"at character {place}" in str(raised.value)
    assert f"got {got}" in str(raised.value)


@pytest.mark.parametrize("text", ["not " * 5000 + "a", "(" * 5000 + "a", "a" * 20_000])
def test_an_oversized_filter_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match="at most"):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_an_error_of_one_sentence(text: str) -> None:
    problem = ""
    try:
        parse(text)
    except InvalidInput as error:
        problem = str(error)
    assert "\n" not in problem
    assert "\x1b" not in problem


@dataclass(frozen=True)
class Both:
    """A condition in three languages: for Millstream, Python and SQLite."""

    ours: str
    python: str
    sqlite: str


numbers = st.one_of(st.integers(-3, 3), st.sampled_from([-1.5, 0.5, 2.25]))
words = st.sampled_from(["", "a", "ab", "b%", "it's", "ü_"])


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def _number_test(name: str, sign: str, number: float) -> Both:
    python = {"=": "==", "<>": "!="}.get(sign, sign)
    return Both(f"{name} {sign} {number}", f"{name} {python} {number}", f"{name} {sign} {number}")


def _word_test(name: str, sign: str, word: str) -> Both:
    python = {"=": "==", "<>": "!="}.get(sign, sign)
    text = f"{name} {sign} {_quoted(word)}"
    return Both(text, f"{name} {python} {word!r}", text)


def _in_test(name: str, no: bool, choices: list[str]) -> Both:
    listed = ", ".join(map(_quoted, choices))
    text = f"{name} {'not ' if no else ''}in ({listed})"
    return Both(text, f"{name} {'not ' if no else ''}in {choices!r}", text)


def _null_test(name: str, no: bool) -> Both:
    text = f"{name} is {'not ' if no else ''}null"
    return Both(text, f"({name} is {'not ' if no else ''}None)", text)


def _join(word: str, left: Both, right: Both) -> Both:
    return Both(
        f"{left.ours} {word} {right.ours}",
        f"{left.python} {word} {right.python}",
        f"{left.sqlite} {word} {right.sqlite}",
    )


def _wrap(before: str, inner: Both, after: str) -> Both:
    return Both(*(f"{before}{text}{after}" for text in (inner.ours, inner.python, inner.sqlite)))


signs = st.sampled_from(["=", "!=", "<>", "<", "<=", ">", ">="])
choices = st.lists(words, min_size=1, max_size=3)
tests = st.one_of(
    st.builds(_number_test, st.sampled_from(["n", "m"]), signs, numbers),
    st.builds(_word_test, st.sampled_from(["s", "t"]), signs, words),
    st.builds(_in_test, st.sampled_from(["s", "t"]), st.booleans(), choices),
    st.builds(_null_test, st.sampled_from(["n", "s"]), st.booleans()),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(_join, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda part: _wrap("not (", part, ")"), inner),
        st.builds(lambda part: _wrap("(", part, ")"), inner),
    ),
    max_leaves=12,
)


def _json_row(fields: Mapping[str, object]) -> RecordRow:
    import json

    return RecordRow(record(json.dumps(fields).encode()))


@settings(max_examples=300)
@given(conditions, st.fixed_dictionaries({"n": numbers, "m": numbers, "s": words, "t": words}))
def test_with_all_fields_present_a_condition_agrees_with_python(
    condition: Both, fields: dict[str, object]
) -> None:
    expected = eval(condition.python, {"__builtins__": {}}, dict(fields))
    assert parse(condition.ours).answer(_json_row(fields)) is expected


@settings(max_examples=300)
@given(
    conditions,
    st.fixed_dictionaries(
        {
            "n": st.none() | numbers,
            "m": st.none() | numbers,
            "s": st.none() | words,
            "t": st.none() | words,
        }
    ),
)
def test_with_null_fields_a_condition_agrees_with_sql(
    condition: Both, fields: dict[str, object]
) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        query = f"select {condition.sqlite} from (select :n as n, :m as m, :s as s, :t as t)"
        [expected] = connection.execute(query, fields).fetchone()
    finally:
        connection.close()
    found = parse(condition.ours).answer(_json_row(fields))
    assert found is (None if expected is None else bool(expected))


@given(st.text("ab%_\n", max_size=6), st.text("ab%_\n", max_size=6))
def test_like_agrees_with_sqlite(pattern: str, text: str) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("pragma case_sensitive_like = on")
        [expected] = connection.execute("select ? like ?", (text, pattern)).fetchone()
    finally:
        connection.close()
    found = parse(f"s like {_quoted(pattern)}").answer(_json_row({"s": text}))
    assert found is bool(expected)


@pytest.mark.parametrize(
    "pattern", ["%a" * 400 + "%b", "%_a" * 300 + "%b", "%" * 900 + "b", "_" * 900 + "%b"]
)
def test_a_hostile_pattern_over_hostile_text_terminates(pattern: str) -> None:
    condition = parse(f"s like '{pattern}'")
    assert condition.answer(_json_row({"s": "a" * 100_000})) is False
    assert condition.answer(_json_row({"s": "a" * 100_000 + "b"})) is True


def test_very_long_numbers_can_be_compared() -> None:
    digits = "9" * 6_000
    row = RecordRow(record(f'{{"n": {digits}, "m": 3}}'.encode()))
    assert parse(f"n > 5 and m < {digits}").answer(row) is True
    assert parse("m = 3").answer(row) is True
    assert parse(f"n < -{digits}").answer(row) is False


def test_errors_use_the_name_given_by_the_caller() -> None:
    with pytest.raises(InvalidInput, match="where needs a name or a value at character 4"):
        parse("n >", what="where")
    with pytest.raises(InvalidInput, match="where needs at most 10000 characters"):
        parse("n" * 20_000, what="where")
    with pytest.raises(InvalidInput, match="where needs at most 1000 characters after `like`"):
        parse(f"n like '{'a' * 2_000}'", what="where")
