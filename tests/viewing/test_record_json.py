"""Records as JSON: bounded, escaped, and with their kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidInput
from millstream.viewing.escape import harmless
from millstream.viewing.record_json import body_to_json, bound_json, parse_form

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def json_of(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of JSON with these numbers in them."""
    return st.recursive(
        st.none() | st.booleans() | st.text() | numbers,
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20,
    )  # fmt: skip


@given(st.binary(max_size=200), st.sampled_from(["auto", "json", "text", "hex"]),
       st.integers(2, 60))  # fmt: skip
def test_any_bytes_are_shown_within_the_limits(raw: bytes, form: Any, most: int) -> None:
    shown = body_to_json(raw, form, most)
    assert len(shown["text"]) <= most
    assert shown["size"] == len(raw)
    if not shown["cut"] and shown["kind"] == "bytes":
        assert bytes.fromhex(shown["text"]) == raw
    if shown["kind"] == "text" and not shown["cut"]:
        assert shown["text"] == harmless(raw.decode())


@given(json_of(NUMBERS))
def test_harmless_json_is_the_same_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert json.loads(harmless(text)) == json.loads(text)
    assert not set(harmless(text)) & set("\x00\x1b\u202e\u2066\u2028\x7f\x85")


@given(json_of(st.floats()))
def test_bounded_json_has_bounded_depth(value: Any) -> None:
    shown = bound_json(value, most=10, depth=3)
    json.dumps(shown, allow_nan=False)
    assert depth(shown) <= 3


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def test_an_unknown_format_is_refused() -> None:
    assert parse_form("hex") == "hex"
    with pytest.raises(InvalidInput, match="format needs auto, json, text or hex; got 'xml'"):
        parse_form("xml")
