"""Which rows are found guilty, whatever the cut: those that raise when they are alone."""

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
    guilty = set(data.draw(st.lists(st.sampled_from(everything), max_size=6)))
    tried = []

    def trial(some: Sequence[Piece]) -> None:
        tried.append(len(places(some)))
        bad = sorted(places(some) & guilty)
        if bad:
            raise UserCodeFailed(f"row {bad[0]}")

    if not guilty:
        with pytest.raises(UserCodeFailed, match="the batch"):
            bad_rows(pieces, trial, UserCodeFailed("the batch"))
        return
    found = bad_rows(pieces, trial, UserCodeFailed(f"row {sorted(guilty)[0]}"))

    assert {(bad.source, bad.partition, bad.offset) for bad in found} == guilty
    assert all(bad.reason == f"row {(bad.source, bad.partition, bad.offset)}" for bad in found)
    assert len(tried) <= 2 * len(guilty) * max(1, len(everything)).bit_length()


def test_a_fault_that_no_single_row_makes_is_the_batchs() -> None:
    def trial(some: Sequence[Piece]) -> None:
        if len(places(some)) > 3:
            raise UserCodeFailed("too many")

    with pytest.raises(UserCodeFailed, match="the batch"):
        bad_rows([Piece("a", 0, 0, 8)], trial, UserCodeFailed("the batch"))


def test_more_bad_rows_than_can_be_meant_are_the_batchs_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "MOST", 3)

    def trial(some: Sequence[Piece]) -> None:
        raise UserCodeFailed("all of them")

    with pytest.raises(UserCodeFailed, match="the batch"):
        bad_rows([Piece("a", 0, 0, 64)], trial, UserCodeFailed("the batch"))


def test_an_intent_names_what_it_leaves_out_and_reads_back() -> None:
    whole = intent({"a": {0: (5, 9), 1: (0, 0)}, "b": {0: (1, 3)}})

    some = only(whole, [Piece("a", 0, 6, 8)])
    assert some.sources["a"].ranges == {0: (6, 8), 1: (0, 0)}
    assert some.sources["b"].ranges == {0: (1, 1)}
    bad = isolation.Bad("a", 0, 6, "it raised")
    less = without(whole, [bad], "tumbling(k)")
    assert less.sources["a"].skips == {0: {6: ("tumbling(k)", "it raised")}}
    assert Intent.from_json(less.to_json()) == less
