"""Windows that rows make, shown early: the oracle over windows, triggers, panes, cuts, ranges."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import row_panes, row_windows
from tests.windows import row_feeding, tables
from tests.windows.driving import Driver
from tests.windows.row_feeding import ANSWERS, COLUMNS, KEYS, batched, cuts, streams

from millstream.eventtime.moment import END_OF_TIME
from millstream.windows import folding, row_panes_kernel
from millstream.windows.counted import Rows
from millstream.windows.delta import Delta
from millstream.windows.delta_kernel import Moved
from millstream.windows.punctuated import Punctuated
from millstream.windows.punctuated_kernel import punctuating
from millstream.windows.row_panes_kernel import RowPanesKernel
from millstream.windows.touched import CountedWindows, CutWindows
from millstream.windows.trigger import AllOf, AnyOf, Each, Every, Firing, Panes, Trigger, When

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracles.row_windows import Row, Rule

    from millstream.windows.touched import Touching

FIRINGS: list[tuple[Firing | None, row_panes.Trigger | None]] = [
    (None, None),
    (Each(1), ("each", 1)),
    (Each(3), ("each", 3)),
    (Every(7), ("every", 7)),
    (When("n >= 2"), ("when", lambda values: values[0] >= 2)),
    (AnyOf((Every(20), Each(2))), ("any_of", [("every", 20), ("each", 2)])),
    (AllOf((Every(5), Each(2))), ("all_of", [("every", 5), ("each", 2)])),
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


def told(pane: row_panes.Pane) -> tuple[Any, ...]:
    assert isinstance(pane.key, tuple)
    return (*pane.key, pane.start, pane.end, *pane.values, pane.end, pane.sign, pane.name,
            pane.index)  # fmt: skip


def stands(tables_: list[tuple[Any, ...]], of: int) -> dict[Any, list[tuple[Any, ...]]]:
    """Rows of each key, in the order they left: a row taken back stands before its successor."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in tables_:
        found.setdefault(row[:of], []).append(row)
    return found


@settings(max_examples=60, deadline=None)
@given(data=st.data(), rows=streams() | streams(timed=False), shares=cuts(6))
def test_every_batch_shows_what_the_oracle_shows(
    data: st.DataObject, rows: list[Row], shares: list[float]
) -> None:
    windows, rule = data.draw(st.sampled_from(COUNTED + CUT))()
    early, asked = data.draw(st.sampled_from(FIRINGS))
    panes = data.draw(st.sampled_from(get_args(Panes)))
    keys = data.draw(st.sampled_from(KEYS))
    batches = batched(rows, shares)
    clocks = data.draw(st.lists(st.integers(0, 9), min_size=len(batches), max_size=len(batches)))
    made = [row_panes.Batch(batch, sum(clocks[: place + 1]))
            for place, batch in enumerate(batches)]  # fmt: skip
    showing = row_panes.Showing(asked, panes, row_feeding.answers)
    expected = row_panes.panes(made, rule, partial(row_feeding.key, keys=keys), showing,
                               finish=True)  # fmt: skip
    timed = tables.table(rows, COLUMNS).schema if rows else COLUMNS
    kernel = RowPanesKernel(windows, keys, ANSWERS, timed, Trigger(early, None, panes))
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(row_panes_kernel, "PIECE_BYTES", 100)
            patch.setattr(folding, "CHUNK_BYTES", 2_000)
        agrees(kernel, made, expected, keys, data.draw(RANGES))


RANGES = st.fixed_dictionaries(
    {
        "ranges": st.integers(1, 3),
        "slices": st.integers(1, 3),
        "merge_every": st.integers(0, 2),
    }
)


def agrees(
    kernel: RowPanesKernel,
    batches: list[row_panes.Batch],
    expected: list[row_panes.Told],
    keys: list[str],
    cut: dict[str, int],
) -> None:
    """Drive the kernel to the finish; every batch must show what the oracle shows."""
    with Driver(kernel, **cut) as driver:
        for place, (batch, right) in enumerate(zip(batches, expected, strict=True)):
            after = END_OF_TIME if place == len(batches) - 1 else place
            table = tables.table(list(batch.rows), COLUMNS)
            left = driver.step(table, before=place - 1, after=after, clock=batch.clock)
            found = stands([said(row, keys=keys) for row in left.rows], len(keys))
            wanted = stands([told(pane) for pane in right.panes], len(keys))
            assert {key: Counter(rows) for key, rows in found.items()} == {
                key: Counter(rows) for key, rows in wanted.items()
            }
            backs_come_first(left.rows, keys)
            assert Counter(said(row, keys=keys) for row in left.flow) == Counter(
                map(told, right.flow)
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
