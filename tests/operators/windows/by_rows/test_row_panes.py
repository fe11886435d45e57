"""Windows that rows make, shown early: the oracle over windows, triggers, panes, cuts, ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.by_rows import row_feeding
from tests.operators.windows.by_rows.row_feeding import (
    ANSWERS,
    COLUMNS,
    KEYS,
    batched,
    cuts,
    stream,
    streams,
)
from tests.operators.windows.driving import Driver
from tests.oracles import row_panes, row_windows

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.windows import folding
from millstream.operators.windows.by_rows import panes_kernel as row_panes_kernel
from millstream.operators.windows.by_rows.delta_kernel import Moved
from millstream.operators.windows.by_rows.panes_kernel import RowPanesKernel
from millstream.operators.windows.by_rows.punctuated_kernel import punctuating
from millstream.operators.windows.by_rows.spec import Delta, Punctuated, Rows
from millstream.operators.windows.by_rows.touched_windows import CountedWindows, CutWindows
from millstream.operators.windows.trigger import (
    AllOf,
    AnyOf,
    Each,
    Every,
    Firing,
    Panes,
    Trigger,
    When,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracles.row_windows import Row, Rule

    from millstream.operators.windows.by_rows.touched_windows import Touching

FIRINGS: list[tuple[Firing | None, row_panes.Trigger | None]] = [
    (None, None),
    (Each(1), ("each", 1)),
    (Each(3), ("each", 3)),
    (Every(7), ("every", 7)),
    (When("n >= 2"), ("when", lambda values: values[0] >= 2)),
    (AnyOf((Every(14), Each(2))), ("any_of", [("every", 14), ("each", 2)])),
    (AllOf((Every(7), Each(2))), ("all_of", [("every", 7), ("each", 2)])),
]
Pair = tuple["Touching", "Rule"]
COUNTED: list[Callable[[], Pair]] = [
    lambda: (CountedWindows(Rows(3, 3)), row_windows.Counted(3, 3)),
    lambda: (CountedWindows(Rows(6, 4)), row_windows.Counted(6, 4)),
    lambda: (CountedWindows(Rows(5, 1)), row_windows.Counted(5, 1)),
    lambda: (CountedWindows(Rows(1, 1)), row_windows.Counted(1, 1)),
]
CUT: list[Callable[[], Pair]] = [
    lambda: (CutWindows(Moved(Delta("l", 2**55), COLUMNS)), row_windows.Moved("l", 2**55)),
    lambda: (CutWindows(Moved(Delta("d", 2.0), COLUMNS)), row_windows.Moved("d", 2.0)),
    *(
        partial(
            lambda member, all_keys: (
                CutWindows(punctuating(Punctuated("mark", member=member, all_keys=all_keys))),
                row_windows.Punctuated(member, all_keys),
            ),
            member,
            all_keys,
        )
        for member in (True, False)
        for all_keys in (True, False)
    ),
]


def said(row: Row, *, keys: list[str]) -> tuple[Any, ...]:
    """A result row as values that compare, its pane among them."""
    retract = row.get("retract", row["_sign"] < 0)
    assert retract == (row["_sign"] < 0)
    return (*row_feeding.said(row, keys=keys), row["pane"], row["pane_index"])


def pane_row(pane: row_panes.Pane) -> tuple[Any, ...]:
    assert isinstance(pane.key, tuple)
    return (*pane.key, pane.start, pane.end, *pane.values, pane.end, pane.sign, pane.name,
            pane.index)  # fmt: skip


def stands(tables_: list[tuple[Any, ...]], of: int) -> dict[Any, list[tuple[Any, ...]]]:
    """Rows of each key, in the order they left: a row retracted stands before its successor."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in tables_:
        found.setdefault(row[:of], []).append(row)
    return found


RANGES = st.fixed_dictionaries(
    {
        "ranges": st.integers(1, 3),
        "slices": st.integers(1, 3),
        "merge_every": st.integers(0, 2),
    }
)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), rows=streams() | streams(timed=False), shares=cuts())
def test_every_batch_emits_what_the_oracle_emits(
    data: st.DataObject, rows: list[Row], shares: list[float]
) -> None:
    batches = batched(rows, shares)
    clocks = data.draw(st.lists(st.integers(0, 9), min_size=len(batches), max_size=len(batches)))
    scene = Scene(
        data.draw(st.sampled_from(COUNTED + CUT)),
        data.draw(st.sampled_from(FIRINGS)),
        data.draw(st.sampled_from(get_args(Panes))),
        data.draw(st.sampled_from(KEYS)),
    )
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(row_panes_kernel, "PIECE_BYTES", 100)
            patch.setattr(folding, "CHUNK_BYTES", 2_000)
        scene.play(batches, clocks, data.draw(RANGES))


@pytest.mark.parametrize("panes", get_args(Panes))
@pytest.mark.parametrize("place", range(len(COUNTED + CUT)))
def test_every_window_agrees_with_the_oracle_for_every_kind_of_panes(
    place: int, panes: Panes
) -> None:
    firing = FIRINGS[1 + (place + 2 * get_args(Panes).index(panes)) % (len(FIRINGS) - 1)]
    batches = batched(stream(60, place, timed=True), [0.1, 0.35, 0.35, 0.8])
    scene = Scene((COUNTED + CUT)[place], firing, panes, ["k2"])
    scene.play(batches, [7] * len(batches), {"ranges": 1, "slices": 2, "merge_every": 2})


@dataclass(frozen=True)
class Scene:
    """A window with a trigger, created again for each example."""

    made: Callable[[], Pair]
    firing: tuple[Firing | None, row_panes.Trigger | None]
    panes: Panes
    keys: list[str]

    def play(self, batches: list[list[Row]], clocks: list[int], cut: dict[str, int]) -> None:
        """Drive the kernel over batches, the clock moved on before each; the oracle watches."""
        windows, rule = self.made()
        early, asked = self.firing
        timed = [row_panes.Batch(batch, sum(clocks[: place + 1]))
                   for place, batch in enumerate(batches)]  # fmt: skip
        showing = row_panes.Showing(asked, self.panes, row_feeding.answers)
        key = partial(row_feeding.key, keys=self.keys)
        expected = row_panes.panes(timed, rule, key, showing, finish=True)
        rows = [row for batch in batches for row in batch]
        schema = tables.table(rows, COLUMNS).schema
        trigger = Trigger(early, None, self.panes)
        kernel = RowPanesKernel(windows, self.keys, ANSWERS, schema, trigger)
        agrees(kernel, timed, expected, self.keys, cut)


def agrees(
    kernel: RowPanesKernel,
    batches: list[row_panes.Batch],
    expected: list[row_panes.Emitted],
    keys: list[str],
    cut: dict[str, int],
) -> None:
    """Drive the kernel to the finish; every batch must show what the oracle shows."""
    after = MIN_TIME
    with Driver(kernel, **cut) as driver:
        for place, (batch, right) in enumerate(zip(batches, expected, strict=True)):
            before, after = (
                after,
                row_feeding.watermark([list(b.rows) for b in batches[place + 1 :]]),
            )
            table = tables.table(list(batch.rows), COLUMNS)
            left = driver.step(table, before=before, after=after, clock=batch.clock)
            found = stands([said(row, keys=keys) for row in left.rows], len(keys))
            wanted = stands([pane_row(pane) for pane in right.panes], len(keys))
            assert {key: Counter(rows) for key, rows in found.items()} == {
                key: Counter(rows) for key, rows in wanted.items()
            }
            backs_come_first(left.rows, keys)
            assert Counter(said(row, keys=keys) for row in left.flow) == Counter(
                map(pane_row, right.flow)
            )
            assert left.wake <= right.wake
            assert left.held == right.held
            assert not left.late
        assert all(not manifest.runs for manifest in driver.manifests.values())


def backs_come_first(rows: list[Row], keys: list[str]) -> None:
    """A row that takes back stands right before the one that takes its place."""
    for place, row in enumerate(rows):
        if row["_sign"] < 0:
            successor = rows[place + 1]
            assert (successor["_sign"], successor["pane_index"]) == (1, row["pane_index"] + 1)
            assert all(tables.plain(row[k]) == tables.plain(successor[k]) for k in keys)


def row(offset: int, key: str, *, time: int = 0, mark: bool = False) -> Row:
    """A row of a key at a place in the log."""
    origin = {"_source": 0, "_partition": 0, "_offset": offset, "_sub": 0}
    values = {"k": key, "mark": mark, "_punctuation": mark, "_time": time}
    return dict.fromkeys(COLUMNS.names) | origin | values


def shown(kernel: RowPanesKernel, *batches: list[Row]) -> list[list[tuple[Any, ...]]]:
    """What leaves batch by batch: key, bounds, number of rows, pane, index, sign."""
    with Driver(kernel, ranges=2) as driver:
        left = [
            driver.step(tables.table(batch, COLUMNS), before=MIN_TIME, after=MIN_TIME, clock=at)
            for at, batch in enumerate(batches)
        ]
    names = ("k", "window_start", "window_end", "n", "pane", "pane_index", "_sign")
    return [sorted(tuple(row[name] for name in names) for row in one.rows) for one in left]


def kernel(windows: Touching, early: Firing | None, panes: Panes) -> RowPanesKernel:
    schema = COLUMNS.append(pa.field("_time", pa.int64()))
    return RowPanesKernel(windows, ["k"], ANSWERS, schema, Trigger(early, None, panes))


def test_a_marker_for_all_keys_closes_the_windows_of_keys_that_have_no_row_in_the_batch() -> None:
    marked = CutWindows(punctuating(Punctuated("mark", member=False, all_keys=True)))
    assert shown(
        kernel(marked, Each(2), "accumulating"),
        [row(1, "a", time=1), row(2, "a", time=2), row(3, "b", time=3)],
        [row(4, "end", mark=True)],
        [row(5, "b", time=5), row(6, "b", time=6)],
        [row(7, "end", mark=True)],
        [row(8, "end", mark=True)],
    ) == [
        [("a", 1, 2, 2, "early", 0, 1)],
        [("a", 1, 2, 2, "on_time", 1, 1), ("b", 3, 3, 1, "on_time", 0, 1)],
        [("b", 5, 6, 2, "early", 0, 1)],
        [("b", 5, 6, 2, "on_time", 1, 1)],
        [],
    ]


def test_a_window_whose_start_has_moved_retracts_what_it_had_shown() -> None:
    assert shown(
        kernel(CountedWindows(Rows(3, 3)), Each(1), "accumulating"),
        [row(1, "a", time=5)],
        [row(2, "a", time=3)],
        [row(3, "a", time=4)],
    ) == [
        [("a", 5, 5, 1, "early", 0, 1)],
        [("a", 3, 5, 2, "early", 1, 1), ("a", 5, 5, 1, "early", 0, -1)],
        [("a", 3, 5, 3, "on_time", 2, 1)],
    ]


def test_a_window_fires_by_the_clock_in_a_batch_that_has_no_row_for_it() -> None:
    assert shown(
        kernel(CountedWindows(Rows(9, 9)), Every(2), "discarding"),
        [row(1, "a", time=5)],
        [row(2, "b", time=5)],
        [],
        [row(3, "a", time=7), row(4, "c", time=7)],
        [],
    ) == [
        [],
        [],
        [("a", 5, 5, 1, "early", 0, 1)],
        [("b", 5, 5, 1, "early", 0, 1)],
        [("a", 5, 7, 1, "early", 1, 1)],
    ]
