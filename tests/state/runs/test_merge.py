"""Which runs are merged, in what pieces, and how the driver's thread passes them on."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import Damaged
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.manifest import Change, Manifest
from millstream.state.runs.merge import Merger, choose, merge
from millstream.state.runs.runs import Run, Segment, file_name, open_segment, write_segment
from millstream.state.runs.view import View
from millstream.state.spec import MIN_TIME, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPEC = StateSpec(pa.schema([("k", pa.int64())]), (StateColumn("n", pa.int64(), "sum"),))


def sized(*sizes: int) -> list[Run]:
    return [
        Run(str(place), (Segment(f"{place}.arrow", 0, 256, 1, size, 0, 0, 0),))
        for place, size in enumerate(sizes)
    ]


def written(
    folder: Path, name: str, keys: Sequence[int], *, order: int = 0, gone: bool = False
) -> Run:
    column = pa.array(np.array(keys, dtype=np.int64))
    table = pa.table(
        {
            "_order": np.full(len(keys), order),
            "_hash": hash_keys([column], len(keys)),
            "k": column,
            "n": np.ones(len(keys), dtype=np.int64),
            "_gone": [gone] * len(keys),
        }
    )
    file = file_name(1, name)
    segment = write_segment(folder, file, combine(table, SPEC), buckets=(0, 256), of=256)
    return Run(name, (segment,))


def counts(folder: Path, manifest: Manifest) -> dict[int, int]:
    view = View(folder, SPEC, manifest.runs, floor=manifest.floor, buckets=(0, 256))
    tables = list(view.scan(MIN_TIME, None))
    return {row["k"]: row["n"] for table in tables for row in table.to_pylist()}


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ((), 0),
        ((1, 1, 1), 0),
        ((1, 1, 1, 1), 4),
        ((100, 1, 1, 1, 1), 4),
        ((4, 1, 1, 1, 1), 5),
        ((100, 10, 10, 10, 10, 1), 0),
        ((10, 10, 10, 10, 4, 4, 4), 7),
        ((16, 8, 4, 2, 1), 0),
    ],
)
def test_young_runs_are_merged_while_the_next_is_no_larger_than_their_sum(
    sizes: tuple[int, ...], chosen: int
) -> None:
    runs = sized(*sizes)
    assert choose(runs) == (tuple(runs[len(runs) - chosen :]) if chosen else None)


def test_runs_stay_few_and_rows_are_rarely_rewritten() -> None:
    sizes: list[int] = []
    rewritten = 0
    for _ in range(2000):
        sizes.append(1)
        while merged := choose(sized(*sizes)):
            sizes[len(sizes) - len(merged) :] = [sum(run.bytes for run in merged)]
            rewritten += sizes[-1]
        assert len(sizes) <= 24
    assert rewritten <= 2000 * 12


def test_a_merge_is_cut_into_pieces_of_disjoint_buckets(tmp_path: Path) -> None:
    runs = [written(tmp_path, "a", range(20_000)), written(tmp_path, "b", range(10_000, 30_000))]
    before = counts(tmp_path, Manifest(tuple(runs)))
    merged = merge(
        tmp_path, SPEC, runs, name="m", floor=0, oldest=True, of=256, piece_bytes=200_000
    )
    assert merged is not None
    assert merged.level == 1
    assert len(merged.segments) > 4
    assert all(segment.bytes < 220_000 for segment in merged.segments)
    edges = [(segment.low, segment.high) for segment in merged.segments]
    assert edges[0][0] == 0
    assert edges[-1][1] == 256
    assert all(one[1] == other[0] for one, other in pairwise(edges))
    assert counts(tmp_path, Manifest((merged,))) == before


def tombstones_in(folder: Path, run: Run) -> int:
    return sum(open_segment(folder, segment)["_gone"].true_count for segment in run.segments)


@pytest.mark.parametrize("oldest", [True, False])
def test_tombstones_stay_until_the_oldest_run_takes_part(tmp_path: Path, oldest: bool) -> None:
    base = written(tmp_path, "a", range(100))
    gone = written(tmp_path, "b", range(50), gone=True)
    newer = written(tmp_path, "c", range(10))
    runs = [base, gone, newer] if oldest else [gone, newer]
    merged = merge(tmp_path, SPEC, runs, name="m", floor=MIN_TIME, oldest=oldest, of=256)
    assert merged is not None
    assert tombstones_in(tmp_path, merged) == (0 if oldest else 50)
    after = Manifest((merged,) if oldest else (base, merged))
    expected = dict.fromkeys([*range(10), *range(50, 100)], 1)
    assert counts(tmp_path, after) == expected


def test_rows_below_the_floor_are_left_out_of_a_merge(tmp_path: Path) -> None:
    runs = [written(tmp_path, "a", range(30), order=1), written(tmp_path, "b", range(20), order=2)]
    merged = merge(tmp_path, SPEC, runs, name="m", floor=2, oldest=True, of=256)
    assert merged is not None
    assert merged.rows == 20
    nothing = merge(tmp_path, SPEC, runs, name="n", floor=3, oldest=True, of=256)
    assert nothing == Run("n", (), 1)


def test_a_stopped_merge_gives_nothing_and_leaves_only_orphans(tmp_path: Path) -> None:
    runs = [written(tmp_path, "a", range(5000)), written(tmp_path, "b", range(5000))]
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 2

    merged = merge(
        tmp_path, SPEC, runs, name="m", floor=0, oldest=True, of=256, piece_bytes=9000, stop=stop
    )
    assert merged is None
    assert counts(tmp_path, Manifest(tuple(runs))) == dict.fromkeys(range(5000), 2)


@pytest.fixture
def four(tmp_path: Path) -> Manifest:
    runs = (written(tmp_path, name, range(100), order=place) for place, name in enumerate("abcd"))
    return Manifest(tuple(runs))


def test_a_merge_in_the_background_is_taken_once_and_fits_a_manifest_that_has_grown(
    tmp_path: Path, four: Manifest
) -> None:
    merger = Merger("i")
    assert merger.offer("s", tmp_path, SPEC, four, batch=5)
    assert not merger.offer("s", tmp_path, SPEC, four, batch=6)
    assert merger.oldest_batch("s") == 5
    assert merger.reading("s") == four.files
    grown = four.apply(Change(add=(written(tmp_path, "e", range(7), order=9),)))
    replaced = merger.take("s", grown, wait=30)
    after = grown.apply(Change(replace=replaced))
    merger.close()
    assert [run.id for run in after.runs] == ["000000000005-i-merge1", "e"]
    assert merger.take("s", grown) == ()
    assert merger.oldest_batch("s") is None
    assert merger.reading("s") == frozenset()


def test_a_merge_is_taken_although_the_floor_has_passed_some_of_its_runs(
    tmp_path: Path, four: Manifest
) -> None:
    merger = Merger("i")
    merger.offer("s", tmp_path, SPEC, four, batch=5)
    moved = four.apply(Change(floor=2))
    replaced = merger.take("s", moved, wait=30)
    assert replaced[0][0] == ("c", "d")
    before = counts(tmp_path, moved)
    assert counts(tmp_path, moved.apply(Change(replace=replaced))) == before
    merger.offer("s", tmp_path, SPEC, four, batch=6)
    assert merger.take("s", four.apply(Change(floor=9)), wait=30) == ()
    merger.close()


def test_a_merge_of_runs_that_were_replaced_meanwhile_is_dropped(
    tmp_path: Path, four: Manifest
) -> None:
    merger = Merger("i")
    merger.offer("s", tmp_path, SPEC, four, batch=5)
    other = Run("other", four.runs[1].segments)
    changed = four.apply(Change(replace=((("b",), other),)))
    assert merger.take("s", changed, wait=30) == ()
    merger.close()


def test_an_error_in_the_background_is_raised_where_it_is_taken(
    tmp_path: Path, four: Manifest
) -> None:
    (tmp_path / four.runs[0].segments[0].file).unlink()
    merger = Merger("i")
    merger.offer("s", tmp_path, SPEC, four, batch=5)
    with pytest.raises(Damaged, match="no such file"):
        merger.take("s", four, wait=30)
    merger.close()


def test_closing_ends_the_thread_and_discards_unused_merges(tmp_path: Path, four: Manifest) -> None:
    merger = Merger("i")
    merger.offer("s", tmp_path, SPEC, four, batch=5)
    merger.close()
    assert not any(thread.name == "state-merger" for thread in threading.enumerate())
    assert merger.take("s", four) == ()
    assert not merger.offer("s", tmp_path, SPEC, four, batch=6)
