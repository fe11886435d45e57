"""Windows, triggers, keep and panes through whole batches, held against the oracle, pane by pane.

Random stories (disorder, cuts, restarts, watermarks and clocks that jump) run in the narrow lane;
a few fixed ones in the wide lane too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.engine.scenes import MICROS, at, bids
from tests.oracles import windows
from tests.oracles.windows_oracle import GREATEST, LEAST

import millstream as ms
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from millstream.metrics.facts import Facts

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SECOND = 1_000_000
AGGREGATES: windows.Aggregates = {
    "rows": ("count", None), "known": ("count", "n"), "total": ("sum", "n"),
    "low": ("min", "n"), "high": ("max", "n"), "middle": ("mean", "n"),
}  # fmt: skip
Trigger = windows.Trigger | None


@dataclass(frozen=True)
class Batch:
    """Rows (auction, n, seconds), and what is done before they are taken in."""

    rows: list[tuple[int | None, int | None, float]]
    watermark: int
    clock: int
    restart: bool


@dataclass(frozen=True)
class Story:
    """One window with its policy, and the batches it lives through; times in seconds.

    A plain one has no trigger and no late policy, and shows each window once.
    """

    window: tuple[str, Any]
    early: Trigger
    late: Trigger
    keep: int
    panes: Any
    batches: list[Batch]
    plain: bool = False


def triggers() -> st.SearchStrategy[windows.Trigger]:
    single = st.one_of(
        st.tuples(st.just("every"), st.integers(1, 8)),
        st.tuples(st.just("each"), st.integers(1, 3)),
        st.tuples(st.just("when"), st.integers(-3, 6)),
    )
    several = st.tuples(
        st.sampled_from(["any_of", "all_of"]), st.lists(single, min_size=1, max_size=2)
    )
    return st.one_of(single, several)


def fixed() -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        st.tuples(st.just("tumbling"), st.tuples(st.integers(3, 12), st.integers(0, 4))),
        st.tuples(
            st.just("hopping"), st.tuples(st.integers(2, 12), st.integers(2, 8), st.integers(0, 4))
        ),
    )


def sessions() -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just("session"), st.integers(2, 8))


def batches() -> st.SearchStrategy[list[Batch]]:
    row = st.tuples(
        st.sampled_from([None, 1, 2]),
        st.none() | st.integers(-3, 9),
        st.integers(-20, 60).map(lambda half: half / 2),
    )
    batch = st.builds(
        Batch, st.lists(row, max_size=5), st.integers(0, 15), st.integers(0, 6), st.booleans()
    )
    return st.lists(batch, min_size=2, max_size=5)


def stories(kinds: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[Story]:
    return st.builds(
        Story,
        kinds,
        st.none() | triggers(),
        st.none() | triggers(),
        st.sampled_from([0, 0, 3, 10, 40]),
        st.sampled_from(["accumulating", "discarding", "retracting"]),
        batches(),
    )


def plain_stories() -> st.SearchStrategy[Story]:
    return st.builds(
        Story,
        st.one_of(fixed(), sessions()),
        *map(st.just, (None, None, 0, "accumulating")),
        batches(),
        st.just(value=True),
    )


def of_oracle(window: tuple[str, Any]) -> windows.Fixed | windows.Session:
    kind, size = window
    if kind == "session":
        return windows.session(size * SECOND)
    length, *more = (part * SECOND for part in size)
    every, offset = (length, more[0]) if kind == "tumbling" else more
    return windows.hopping(length, every=every, offset=offset)


def of_user(window: tuple[str, Any]) -> Any:
    kind, size = window
    if kind == "session":
        return ms.session(gap=f"{size} seconds")
    length, *more, offset = (f"{part} seconds" for part in size)
    if kind == "tumbling":
        return ms.tumbling(length, offset=offset)
    return ms.hopping(length, every=more[0], offset=offset)


def told_to_oracle(trigger: Trigger) -> Trigger:
    if trigger is None:
        return None
    kind, what = trigger
    if kind == "every":
        return kind, what * SECOND
    if kind == "when":
        return kind, lambda answers: answers["total"] is not None and answers["total"] > what
    return (kind, what) if kind == "each" else (kind, [told_to_oracle(one) for one in what])


def told_to_user(trigger: Trigger) -> Any:
    if trigger is None:
        return None
    kind, what = trigger
    makers: dict[str, Callable[[], Any]] = {
        "every": lambda: ms.every(f"{what} seconds"),
        "each": lambda: ms.each(what),
        "when": lambda: ms.when(f"total > {what}"),
        "any_of": lambda: ms.any_of(*map(told_to_user, what)),
        "all_of": lambda: ms.all_of(*map(told_to_user, what)),
    }
    return makers[kind]()


def in_time(story: Story) -> list[windows.Batch]:
    """The batches with their rows, watermarks and clocks, the finish last."""
    before, clock, told = LEAST, MICROS, []
    for batch in story.batches:
        base = MICROS if before == LEAST else before
        after, clock = base + batch.watermark * SECOND, clock + batch.clock * SECOND
        rows = [{"auction": k, "n": n, "_time": MICROS + round(s * SECOND)}
                for k, n, s in batch.rows]  # fmt: skip
        told.append(windows.Batch(rows, before, after, clock))
        before = after
    return [*told, windows.Batch([], before, GREATEST, clock)]


def expected(story: Story) -> list[windows.Emitted]:
    """What the oracle tells, batch by batch."""
    return windows.run(
        in_time(story), window=of_oracle(story.window), keys=["auction"], aggregates=AGGREGATES,
        early=told_to_oracle(story.early), late=told_to_oracle(story.late),
        keep=story.keep * SECOND, panes=story.panes,
    )  # fmt: skip


def stream(story: Story) -> ms.Stream:
    """The window of a story, as a user writes it."""
    cut = bids(watermark="1 day", idle=None).by("auction").window(of_user(story.window))
    if not story.plain:
        early, late = told_to_user(story.early), told_to_user(story.late)
        cut = cut.trigger(early=early, late=late, panes=story.panes)
        cut = cut.late(keep=f"{story.keep} seconds")
    return cut.agg(rows=ms.count(), known=ms.count("n"), total=ms.sum("n"), low=ms.min("n"),
                   high=ms.max("n"), middle=ms.mean("n"))  # fmt: skip


def micros(time: datetime) -> int:
    return MICROS + round((time - at(0)).total_seconds() * SECOND)


def meant(pane: windows.Pane) -> tuple[Any, ...]:
    return (*pane.key, pane.start, pane.end, *pane.values.values(), pane.name, pane.index,
            pane.retract)  # fmt: skip


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    bounds = micros(row["window_start"]), micros(row["window_end"])
    values = (row[name] for name in AGGREGATES)
    pane = row.get("pane", "on_time"), row.get("pane_index", 0), row.get("retract", False)
    return (row["auction"], *bounds, *values, *pane)


def same(story: Story, rows: list[dict[str, Any]], panes: list[windows.Pane]) -> None:
    """Pane by pane; where they are not retracting, a row retracted has no mark."""
    found, expected = Counter(map(seen, rows)), Counter(map(meant, panes))
    if story.panes != "retracting":
        found -= Counter((*meant(pane)[:-1], False) for pane in panes if pane.retract)
        expected = Counter(meant(pane) for pane in panes if not pane.retract)
    assert found == expected


def played(story: Story, drive: Drive) -> Iterator[Facts]:
    """The batches of a story, the finish last, each with its facts."""
    watermark = clock = 0
    for batch in story.batches:
        if batch.restart:
            drive.restart()
        watermark, clock = watermark + batch.watermark, clock + batch.clock
        drive.feed("bids", [{"auction": k, "n": n, "ts": at(s).isoformat()}
                            for k, n, s in batch.rows])  # fmt: skip
        drive.watermark("bids", at(watermark))
        drive.clock(at(clock))
        yield drive.step()
    yield drive.finish()


def check(story: Story, lane: Any) -> None:
    pipeline = ms.Pipeline("story", stream(story).to(ms.Topic("out")))
    with Drive(pipeline, lane=lane) as drive:
        for told, facts in zip(expected(story), played(story, drive), strict=True):
            same(story, drive.rows("out"), told.panes)
            assert facts.late == len(drive.late()) == len(told.late)


def told_again(story: Story, told: list[windows.Emitted], size: int) -> list[windows.Emitted]:
    """What a tumbling window behind the story's tells: the results as signed rows."""
    batches = []
    before = LEAST
    for batch, result in zip(in_time(story), told, strict=True):
        rows = [
            {"auction": pane.key[0], "rows": pane.values["rows"], "_time": pane.end - 1,
             "_sign": sign}
            for sign, pane in result.flow
        ]  # fmt: skip
        after = max(before, min(batch.after, result.held))
        batches.append(windows.Batch(rows, before, after, batch.clock))
        before = after
    return windows.run(
        batches, window=windows.tumbling(size * SECOND), keys=["auction"],
        aggregates={"windows": ("count", None), "total": ("sum", "rows"), "most": ("max", "rows")},
        keep=1000 * SECOND, panes="retracting",
    )  # fmt: skip


def check_chain(story: Story, size: int, lane: Any) -> None:
    """The standing rows of a second window, batch by batch."""
    second = (
        stream(story).by("auction").window(ms.tumbling(f"{size} seconds"))
        .trigger(panes="retracting").late(keep="1000 seconds")
        .agg(windows=ms.count(), total=ms.sum("rows"), most=ms.max("rows"))
    )  # fmt: skip
    found: Counter[Any] = Counter()
    meant: Counter[Any] = Counter()
    again = told_again(story, expected(story), size)
    with Drive(ms.Pipeline("chain", second.to(ms.Topic("out"))), lane=lane) as drive:
        for told, _ in zip(again, played(story, drive), strict=True):
            for row in drive.rows("out"):
                start = micros(row["window_start"])
                values = row["windows"], row["total"], row["most"]
                found[row["auction"], start, values] += -1 if row["retract"] else 1
            for pane in told.panes:
                place = (*pane.key, pane.start, tuple(pane.values.values()))
                meant[place] += -1 if pane.retract else 1
            assert +found == +meant
            assert not -found


QUICK = settings(
    max_examples=30,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
ONCE = settings(QUICK, max_examples=3)


@QUICK
@given(plain_stories())
def test_windows_shown_once_are_the_oracles(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(fixed()))
def test_tumbling_and_hopping_panes_are_the_oracles(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(sessions()))
def test_session_panes_are_the_oracles(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(st.one_of(fixed(), sessions())), st.integers(5, 20))
def test_corrections_reach_a_second_window(story: Story, size: int) -> None:
    check_chain(story, size, "narrow")


@ONCE
@given(stories(st.one_of(fixed(), sessions())), st.integers(5, 20))
def test_the_wide_lane_gives_the_oracles_panes_and_corrections(story: Story, size: int) -> None:
    check(story, "wide")
    check_chain(story, size, "wide")
