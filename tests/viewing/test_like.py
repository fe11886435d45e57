"""`like` against a matcher that shares nothing with it, on texts short and long; and its end."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.kafka.records import Record
from millstream.viewing.escape import decoded
from millstream.viewing.fields import RecordRow
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

LONG = 3_000


def row(text: str) -> RecordRow:
    value = json.dumps({"s": text}).encode()
    return RecordRow(Record("t", 0, 0, datetime(2026, 1, 1, tzinfo=UTC), None, value))


def ours(pattern: str, text: str) -> bool | None:
    quoted = "'" + pattern.replace("'", "''") + "'"
    return parse(f"s like {quoted}").answer(row(text))


def fits(pattern: str, text: str) -> bool:
    """Dynamic programming: for each prefix of the text, whether the pattern so far matches it."""
    characters = np.array([ord(one) for one in text], np.int64)
    so_far = np.zeros(len(text) + 1, bool)
    so_far[0] = True
    for one in pattern:
        if one == "%":
            so_far = np.logical_or.accumulate(so_far)
        else:
            equal = np.ones(len(text), bool) if one == "_" else characters == ord(one)
            so_far = np.concatenate([[False], so_far[:-1] & equal])
    return bool(so_far[-1])


def sqlite_says(pattern: str, text: str) -> bool:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("pragma case_sensitive_like = on")
        return bool(connection.execute("select ? like ?", (text, pattern)).fetchone()[0])
    finally:
        connection.close()


patterns = st.text("ab%_é€😀", max_size=12)


@given(patterns, st.text("abé€😀\n", max_size=12))
def test_like_agrees_with_dynamic_programming(pattern: str, text: str) -> None:
    assert ours(pattern, text) is fits(pattern, text)


@settings(deadline=None)
@given(patterns, st.integers(0, 2**32 - 1), st.sampled_from(["a", "ab", "ab\n", "abé", "ab😀"]),
       st.integers(0, 12))  # fmt: skip
@example("%a_b%", 1, "a", 0)
@example("%_%a_%_%b_", 5, "ab", 3)
def test_like_over_long_text_agrees_with_dynamic_programming(
    pattern: str, seed: int, letters: str, cut: int
) -> None:
    made = np.random.default_rng(seed)
    size = int(made.integers(1_000, LONG)) * 40
    text = "".join(made.choice(list(letters), size)) + "ab"[: cut % 3]
    assert ours(pattern, text) is fits(pattern, text)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 4))
def test_a_rare_piece_is_found_only_at_its_position(seed: int, length: int, letters: int) -> None:
    """A piece with _ cut out of the text, or changed by one character that is in no text."""
    made = np.random.default_rng(seed)
    text = "".join(made.choice(list("abcd"[:letters]), 200_000))
    at = int(made.integers(0, len(text) - length))
    piece = "".join("_" if made.random() < 0.4 else one for one in text[at : at + length])
    pattern = f"%{piece}%{text[-3:]}"
    assert ours(pattern, text) is fits(pattern, text)
    assert ours(f"%{piece}x_%", text) is False


@given(st.text("ab%_'", max_size=8), st.text("ab'%_", max_size=8))
def test_like_has_sqlites_meaning(pattern: str, text: str) -> None:
    assert ours(pattern, text) is sqlite_says(pattern, text)


@pytest.mark.parametrize("pattern", [
    "%" + "_a" * 450 + "b%", "%" + "a" * 400 + "_" * 400 + "b%", "%a_" * 300 + "b%",
    "%" + "a_" * 400 + "%" + "b_" * 50 + "%",
])  # fmt: skip
def test_a_hostile_pattern_over_a_large_text_takes_a_fraction_of_a_second(pattern: str) -> None:
    like, text = parse(f"s like '{pattern}'"), row("a" * 900_000)
    assert text.json is not None
    assert like.answer(row("a" * 2_000)) is False  # what is imported at first is not measured
    began = time.thread_time()
    assert like.answer(text) is False
    assert time.thread_time() - began < 1.0


def test_other_threads_run_during_a_search() -> None:
    like, text = parse("s like '%" + "_a" * 450 + "b%'"), row("a" * 5_000_000)
    assert text.json is not None
    over, steps = threading.Event(), [0.0]

    def count() -> None:
        while not over.is_set():
            time.sleep(0.001)
            steps.append(time.monotonic())

    thread = threading.Thread(target=count)
    thread.start()
    steps[0] = time.monotonic()
    like.answer(text)
    over.set()
    thread.join()
    assert max(later - earlier for earlier, later in pairwise(steps)) < 0.5


def test_a_filter_that_runs_out_of_time_is_unknown() -> None:
    condition = parse("s like '%" + "_a" * 450 + "b%'")
    text = row("a" * 20_000_000)
    assert text.json is not None
    selection = Selection(where=condition, seconds=0.05)
    began = time.monotonic()
    assert selection.matches_row(text) is False
    assert time.monotonic() - began < 2.0
    assert (selection.seen, selection.unknown) == (1, 1)
    text.until = math.inf
    assert parse("s like '%a_a%'").answer(text) is True


@given(st.binary(max_size=60), st.integers(0, 70_000))
def test_bytes_are_decoded_as_python_does(raw: bytes, before: int) -> None:
    for whole in (raw, b"a" * before + raw, raw * 3 + "é€😀".encode()):
        assert decoded(whole) == whole.decode("utf-8", "backslashreplace")


def test_a_key_that_is_not_text_is_decoded_once() -> None:
    record = Record("t", 0, 0, datetime(2026, 1, 1, tzinfo=UTC), b"\xff" * 900_000, b"{}")
    condition = parse(" or ".join(["_key = 'a'"] * 140))
    began = time.thread_time()
    assert condition.answer(RecordRow(record)) is False
    assert time.thread_time() - began < 5.0


def test_of_headers_with_the_same_name_the_first_counts() -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    found = RecordRow(Record("t", 0, 0, datetime(2026, 1, 1, tzinfo=UTC), None, None, headers))
    assert found.field(("_headers", "a")) == "1"
    assert found.field(("_headers", "b")) is None
    assert found.field(("_headers", "c")) is None
