"""Windows, triggers, keep and panes through whole batches, held against the oracle, pane by pane.

Random stories (disorder, cuts, restarts, watermarks and clocks that jump) run in the short lane;
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
    from collections.abc import Callable
    from datetime import datetime

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
    """One window with its policy, and the batches it lives through; times in seconds."""

    window: tuple[str, Any]
    early: Trigger
    late: Trigger
    keep: int
    panes: Any
    batches: list[Batch]


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


def expected(story: Story) -> list[windows.Told]:
    """What the oracle tells, the finish last."""
    before, clock, told = LEAST, MICROS, []
    for batch in story.batches:
        base = MICROS if before == LEAST else before
        after, clock = base + batch.watermark * SECOND, clock + batch.clock * SECOND
        rows = [{"auction": k, "n": n, "_time": MICROS + round(s * SECOND)}
                for k, n, s in batch.rows]  # fmt: skip
        told.append(windows.Batch(rows, before, after, clock))
        before = after
    told.append(windows.Batch([], before, GREATEST, clock))
    return windows.run(
        told, window=of_oracle(story.window), keys=["auction"], aggregates=AGGREGATES,
        early=told_to_oracle(story.early), late=told_to_oracle(story.late),
        keep=story.keep * SECOND, panes=story.panes,
    )  # fmt: skip


def pipeline(story: Story) -> ms.Pipeline:
    stream = (
        bids(watermark="1 day", idle=None)
        .by("auction")
        .window(of_user(story.window))
        .trigger(early=told_to_user(story.early), late=told_to_user(story.late), panes=story.panes)
        .late(keep=f"{story.keep} seconds")
        .agg(rows=ms.count(), known=ms.count("n"), total=ms.sum("n"), low=ms.min("n"),
             high=ms.max("n"), middle=ms.mean("n"))
    )  # fmt: skip
    return ms.Pipeline("story", stream.to(ms.Topic("out")))


def micros(time: datetime) -> int:
    return MICROS + round((time - at(0)).total_seconds() * SECOND)


def meant(pane: windows.Pane) -> tuple[Any, ...]:
    return (*pane.key, pane.start, pane.end, *pane.values.values(), pane.name, pane.index,
            pane.retract)  # fmt: skip


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    bounds = micros(row["window_start"]), micros(row["window_end"])
    values = (row[name] for name in AGGREGATES)
    return (row["auction"], *bounds, *values, row["pane"], row["pane_index"],
            row.get("retract", False))  # fmt: skip


def same(story: Story, rows: list[dict[str, Any]], panes: list[windows.Pane]) -> None:
    """Pane by pane; where they are not retracting, a row taken back has no mark."""
    found, expected = Counter(map(seen, rows)), Counter(map(meant, panes))
    if story.panes != "retracting":
        found -= Counter((*meant(pane)[:-1], False) for pane in panes if pane.retract)
        expected = Counter(meant(pane) for pane in panes if not pane.retract)
    assert found == expected


def check(story: Story, lane: Any) -> None:
    told = expected(story)
    watermark = 0
    clock = 0
    with Drive(pipeline(story), lane=lane) as drive:
        for number, batch in enumerate([*story.batches, None]):
            if batch is None:
                facts = drive.finish()
            else:
                if batch.restart:
                    drive.restart()
                watermark, clock = watermark + batch.watermark, clock + batch.clock
                drive.feed("bids", [{"auction": k, "n": n, "ts": at(s).isoformat()}
                                    for k, n, s in batch.rows])  # fmt: skip
                drive.watermark("bids", at(watermark))
                drive.clock(at(clock))
                facts = drive.step()
            same(story, drive.rows("out"), told[number].panes)
            assert facts.late == len(drive.late()) == len(told[number].late), number


QUICK = settings(
    max_examples=30,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@QUICK
@given(stories(fixed()))
def test_tumbling_and_hopping_panes_are_the_oracles(story: Story) -> None:
    check(story, "short")


@QUICK
@given(stories(sessions()))
def test_session_panes_are_the_oracles(story: Story) -> None:
    check(story, "short")
