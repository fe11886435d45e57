"""Bad rows are isolated however they are divided: exactly those that raise on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.engine.checkpoint.protocol import Intent, SourceIntent
from millstream.engine.dead_letters import isolation
from millstream.engine.dead_letters.isolation import Piece, bad_rows, only, pieces_of, without
from millstream.errors import UserCodeFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

Place = tuple[str, int, int]


def intent(ranges: dict[str, dict[int, tuple[int, int]]]) -> Intent:
    sources = {name: SourceIntent(parts) for name, parts in ranges.items()}
    return Intent("id", 7, 6, 1, 0, "wide", finish=False, sources=sources)


def places(pieces: Sequence[Piece]) -> set[Place]:
    return {(p.source, p.partition, o) for p in pieces for o in range(p.first, p.last)}


@given(st.data())
def test_the_rows_that_fail_alone_are_found_and_no_others(data: st.DataObject) -> None:
    ranges = {
        name: {part: (first, first + data.draw(st.integers(0, 9)))
               for part, first in enumerate(data.draw(st.lists(st.integers(0, 50), max_size=3)))}
        for name in ("a", "b")
    }  # fmt: skip
    pieces = pieces_of(intent(ranges), ["a", "b"])
    everything = sorted(places(pieces))
    assume(len(everything) > 1)
    failing = set(data.draw(st.lists(st.sampled_from(everything), max_size=6)))
    tried = []

    def trial(some: Sequence[Piece]) -> None:
        tried.append(len(places(some)))
        bad = sorted(places(some) & failing)
        if bad:
            raise UserCodeFailed(f"row {bad[0]}")

    if not failing:
        with pytest.raises(UserCodeFailed, match="the batch"):
            bad_rows(pieces, trial, UserCodeFailed("the batch"))
        return
    found = bad_rows(pieces, trial, UserCodeFailed(f"row {sorted(failing)[0]}"))

    assert {(bad.source, bad.partition, bad.offset) for bad in found} == failing
    assert all(bad.reason == f"row {(bad.source, bad.partition, bad.offset)}" for bad in found)
    assert len(tried) <= 2 * len(failing) * max(1, len(everything)).bit_length()


def test_an_error_that_no_single_row_raises_fails_the_batch() -> None:
    def trial(some: Sequence[Piece]) -> None:
        if len(places(some)) > 3:
            raise UserCodeFailed("too many")

    with pytest.raises(UserCodeFailed, match="the batch"):
        bad_rows([Piece("a", 0, 0, 8)], trial, UserCodeFailed("the batch"))


def test_too_many_bad_rows_fail_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "MOST", 3)

    def trial(some: Sequence[Piece]) -> None:
        raise UserCodeFailed("all of them")

    with pytest.raises(UserCodeFailed, match="the batch"):
        bad_rows([Piece("a", 0, 0, 64)], trial, UserCodeFailed("the batch"))


def test_an_intent_with_skipped_records_can_be_read_back() -> None:
    whole = intent({"a": {0: (5, 9), 1: (0, 0)}, "b": {0: (1, 3)}})

    some = only(whole, [Piece("a", 0, 6, 8)])
    assert some.sources["a"].ranges == {0: (6, 8), 1: (0, 0)}
    assert some.sources["b"].ranges == {0: (1, 1)}
    bad = isolation.Bad("a", 0, 6, "it raised")
    less = without(whole, [bad], "tumbling(k)")
    assert less.sources["a"].skips == {0: {6: ("tumbling(k)", "it raised")}}
    assert Intent.from_json(less.to_json()) == less
