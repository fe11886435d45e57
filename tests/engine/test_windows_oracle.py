"""Windows, triggers, keep and panes through whole batches, compared with the oracle by pane.

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
from tests.engine.scenes import MICROS, at, bids, drive_in
from tests.oracles import windows
from tests.oracles.windows_oracle import GREATEST, LEAST

import millstream as ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from millstream.metrics.facts import Facts
    from millstream.testing import Drive

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SECOND = 1_000_000
AGGREGATES: windows.Aggregates = {
    "rows": ("count", None), "known": ("count", "n"), "total": ("sum", "n"),
    "low": ("min", "n"), "high": ("max", "n"), "middle": ("mean", "n"),
}  # fmt: skip
Trigger = windows.Trigger | None


@dataclass(frozen=True)
class Batch:
    """Rows (auction, n, seconds), and what happens before they are processed."""

    rows: list[tuple[int | None, int | None, float]]
    watermark: int
    clock: int
    restart: bool


@dataclass(frozen=True)
class Story:
    """One window with its policy, and its batches; times in seconds.

    A plain story has no trigger and no late policy, and emits each window once.
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


def oracle_window(window: tuple[str, Any]) -> windows.Fixed | windows.Session:
    kind, size = window
    if kind == "session":
        return windows.session(size * SECOND)
    length, *more = (part * SECOND for part in size)
    every, offset = (length, more[0]) if kind == "tumbling" else more
    return windows.hopping(length, every=every, offset=offset)


def user_window(window: tuple[str, Any]) -> Any:
    kind, size = window
    if kind == "session":
        return ms.session(gap=f"{size} seconds")
    length, *more, offset = (f"{part} seconds" for part in size)
    if kind == "tumbling":
        return ms.tumbling(length, offset=offset)
    return ms.hopping(length, every=more[0], offset=offset)


def oracle_trigger(trigger: Trigger) -> Trigger:
    if trigger is None:
        return None
    kind, what = trigger
    if kind == "every":
        return kind, what * SECOND
    if kind == "when":
        return kind, lambda answers: answers["total"] is not None and answers["total"] > what
    return (kind, what) if kind == "each" else (kind, [oracle_trigger(one) for one in what])


def user_trigger(trigger: Trigger) -> Any:
    if trigger is None:
        return None
    kind, what = trigger
    makers: dict[str, Callable[[], Any]] = {
        "every": lambda: ms.every(f"{what} seconds"),
        "each": lambda: ms.each(what),
        "when": lambda: ms.when(f"total > {what}"),
        "any_of": lambda: ms.any_of(*map(user_trigger, what)),
        "all_of": lambda: ms.all_of(*map(user_trigger, what)),
    }
    return makers[kind]()


def in_time(story: Story) -> list[windows.Batch]:
    """The batches with their rows, watermarks and clocks, the finish last."""
    before, clock, found = LEAST, MICROS, []
    for batch in story.batches:
        base = MICROS if before == LEAST else before
        after, clock = base + batch.watermark * SECOND, clock + batch.clock * SECOND
        rows = [{"auction": k, "n": n, "_time": MICROS + round(s * SECOND)}
                for k, n, s in batch.rows]  # fmt: skip
        found.append(windows.Batch(rows, before, after, clock))
        before = after
    return [*found, windows.Batch([], before, GREATEST, clock)]


def expected(story: Story) -> list[windows.Emitted]:
    """What the oracle emits, batch by batch."""
    return windows.run(
        in_time(story), window=oracle_window(story.window), keys=["auction"], aggregates=AGGREGATES,
        early=oracle_trigger(story.early), late=oracle_trigger(story.late),
        keep=story.keep * SECOND, panes=story.panes,
    )  # fmt: skip


def stream(story: Story) -> ms.Stream:
    """The window of a story, as a user writes it."""
    cut = bids(watermark="1 day", idle=None).by("auction").window(user_window(story.window))
    if not story.plain:
        early, late = user_trigger(story.early), user_trigger(story.late)
        cut = cut.trigger(early=early, late=late, panes=story.panes)
        cut = cut.late(keep=f"{story.keep} seconds")
    return cut.agg(rows=ms.count(), known=ms.count("n"), total=ms.sum("n"), low=ms.min("n"),
                   high=ms.max("n"), middle=ms.mean("n"))  # fmt: skip


def micros(time: datetime) -> int:
    return MICROS + round((time - at(0)).total_seconds() * SECOND)


def as_values(pane: windows.Pane) -> tuple[Any, ...]:
    return (*pane.key, pane.start, pane.end, *pane.values.values(), pane.name, pane.index,
            pane.retract)  # fmt: skip


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    bounds = micros(row["window_start"]), micros(row["window_end"])
    values = (row[name] for name in AGGREGATES)
    pane = row.get("pane", "on_time"), row.get("pane_index", 0), row.get("retract", False)
    return (row["auction"], *bounds, *values, *pane)


def same(story: Story, rows: list[dict[str, Any]], panes: list[windows.Pane]) -> None:
    """Equal panes; unless they are retracting, retracted rows have no mark."""
    found, expected = Counter(map(seen, rows)), Counter(map(as_values, panes))
    if story.panes != "retracting":
        found -= Counter((*as_values(pane)[:-1], False) for pane in panes if pane.retract)
        expected = Counter(as_values(pane) for pane in panes if not pane.retract)
    assert found == expected


def played(story: Story, drive: Drive) -> Iterator[Facts]:
    """Run the batches of a story, the finish last; yields the facts of each."""
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
    with drive_in(pipeline, lane) as drive:
        for wanted, facts in zip(expected(story), played(story, drive), strict=True):
            same(story, drive.rows("out"), wanted.panes)
            assert facts.late == len(drive.late()) == len(wanted.late)


def second_window(story: Story, first: list[windows.Emitted], size: int) -> list[windows.Emitted]:
    """What a tumbling window over the story's results emits: these are signed rows."""
    batches = []
    before = LEAST
    for batch, result in zip(in_time(story), first, strict=True):
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
    """The rows of a second window that are not retracted, batch by batch."""
    second = (
        stream(story).by("auction").window(ms.tumbling(f"{size} seconds"))
        .trigger(panes="retracting").late(keep="1000 seconds")
        .agg(windows=ms.count(), total=ms.sum("rows"), most=ms.max("rows"))
    )  # fmt: skip
    found: Counter[Any] = Counter()
    left: Counter[Any] = Counter()
    wanted = second_window(story, expected(story), size)
    with drive_in(ms.Pipeline("chain", second.to(ms.Topic("out"))), lane) as drive:
        for batch, _ in zip(wanted, played(story, drive), strict=True):
            for row in drive.rows("out"):
                start = micros(row["window_start"])
                values = row["windows"], row["total"], row["most"]
                found[row["auction"], start, values] += -1 if row["retract"] else 1
            for pane in batch.panes:
                place = (*pane.key, pane.start, tuple(pane.values.values()))
                left[place] += -1 if pane.retract else 1
            assert +found == +left
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
def test_windows_without_a_trigger_agree_with_the_oracle(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(fixed()))
def test_tumbling_and_hopping_panes_agree_with_the_oracle(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(sessions()))
def test_session_panes_agree_with_the_oracle(story: Story) -> None:
    check(story, "narrow")


@QUICK
@given(stories(st.one_of(fixed(), sessions())), st.integers(5, 20))
def test_corrections_reach_a_second_window(story: Story, size: int) -> None:
    check_chain(story, size, "narrow")


@ONCE
@given(stories(st.one_of(fixed(), sessions())), st.integers(5, 20))
def test_panes_and_corrections_of_the_wide_lane_agree_with_the_oracle(
    story: Story, size: int
) -> None:
    check(story, "wide")
    check_chain(story, size, "wide")
