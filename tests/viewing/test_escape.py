"""Records cannot send control sequences to a terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.viewing.escape import in_json, one_line, readable, shortened

HOSTILE = {
    "clears the screen": "\x1b[2J\x1b[H",
    "sets the title": "\x1b]0;owned\x07",
    "eight-bit escape": "\x9b31m",
    "overwrites the line": "fine\rEVIL",
    "two lines": "one\ntwo",
    "reversed": "\u202egnp.exe",
    "line separator": "a\u2028b",
    "half a surrogate": "\udc80",
    "invisible tag": "\U000e0041",
}


def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(
        character
    ) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_escaped(text: str) -> None:
    shown = one_line(text)
    assert not any(map(_steers, shown))
    assert shown.isprintable()


@given(st.text(st.characters()))
def test_no_control_character_remains_in_any_text(text: str) -> None:
    assert not any(map(_steers, one_line(text)))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Cn", "Zl", "Zp"])))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert one_line(text) == text


@given(st.binary())
def test_any_bytes_become_one_escaped_line(raw: bytes) -> None:
    assert not any(map(_steers, readable(raw)))


@given(st.text())
def test_escaped_json_is_the_same_json(text: str) -> None:
    line = in_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(line) == {text: text}
    assert not any(map(_steers, line))


def test_a_long_value_is_truncated_with_its_length() -> None:
    assert shortened("x" * 1000) == f"'{'x' * 60}…' (1000 characters)"
    assert shortened("short\n") == "'short\\n'"
