"""The cost of a batch follows the rows it touches: calls, bytes written, rows read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import InvalidInput
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.runs import Run, file_name, write_segment
from millstream.state.runs.view import View
from millstream.state.spec import MIN_TIME, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = StateSpec(
    pa.schema([("k", pa.int64()), ("t", pa.string())]),
    (
        StateColumn("n", pa.int64(), "sum"),
        StateColumn("x", pa.float64(), "dsum"),
        StateColumn("s", pa.string(), "max"),
    ),
)


def rows(keys: Any, *, orders: Any = 0) -> pa.Table:
    numbers = pa.array(np.asarray(keys, dtype=np.int64))
    texts = numbers.cast(pa.string())
    count = len(numbers)
    return pa.table(
        {
            "_order": np.broadcast_to(np.asarray(orders, dtype=np.int64), count).copy(),
            "_hash": hash_keys([numbers, texts], count),
            "k": numbers,
            "t": texts,
            "n": np.ones(count, dtype=np.int64),
            "x": np.ones(count),
            "s": texts,
        }
    )


def calls(work: Callable[[], object]) -> int:
    """How many Python and C functions are called."""
    seen = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def a_batch(folder: Path, keys: int) -> Callable[[], object]:
    """Hash, combine, look up, append and scan `keys` keys over a state of as many."""
    folder.mkdir()
    doubled = np.repeat(np.arange(keys), 2)
    order = np.random.default_rng(1).permutation(2 * keys)
    base = combine(rows(np.arange(keys)), SPEC)
    whole = {"buckets": (0, 256), "of": 256}
    old = Run("old", (write_segment(folder, file_name(1, "a"), base, **whole),))  # type: ignore[arg-type]

    def work() -> None:
        delta = combine(rows(doubled[order]), SPEC)
        view = View(folder, SPEC, [old], floor=MIN_TIME, buckets=(0, 256))
        found, _ = view.lookup(delta.select(["_order", "_hash", "k", "t"]))
        assert found.all()
        segment = write_segment(folder, file_name(2, "a"), delta, buckets=(0, 256), of=256)
        new = View(folder, SPEC, [old, Run("new", (segment,))], floor=MIN_TIME, buckets=(0, 256))
        assert sum(len(table) for table in new.scan(0, 1)) == keys

    return work


def test_function_calls_do_not_grow_with_keys(tmp_path: Path) -> None:
    few = calls(a_batch(tmp_path / "few", 1_000))
    many = calls(a_batch(tmp_path / "many", 100_000))
    assert many < 2 * few


def test_bytes_written_do_not_grow_with_open_keys(tmp_path: Path) -> None:
    sizes = []
    for open_keys in (10_000, 1_000_000):
        folder = tmp_path / str(open_keys)
        folder.mkdir()
        base = combine(rows(np.arange(open_keys)), SPEC)
        segment = write_segment(folder, file_name(1, "a"), base, buckets=(0, 256), of=256)
        view = View(folder, SPEC, [Run("a", (segment,))], floor=MIN_TIME, buckets=(0, 256))
        before = sum(path.stat().st_size for path in folder.iterdir())
        delta = combine(rows(np.arange(0, open_keys, open_keys // 10_000)), SPEC)
        view.lookup(delta.select(["_order", "_hash", "k", "t"]))
        write_segment(folder, file_name(2, "a"), delta, buckets=(0, 256), of=256)
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()) - before)
    assert sizes[1] <= 1.5 * sizes[0]


@pytest.mark.parametrize("orders", [np.zeros(50_000), np.arange(50_000) // 5000])
def test_a_scan_is_read_in_pieces_of_bounded_size(tmp_path: Path, orders: Any) -> None:
    """Also when everything has one order: then by hash; and when a few rows are large."""
    table = rows(np.arange(50_000), orders=orders)
    long = np.where(np.arange(50_000) < 1000, "x" * 2000, "y")
    table = combine(table.set_column(6, "s", pa.array(long)), SPEC)
    runs = []
    for name in ("a", "b", "c"):
        file = file_name(1, name)
        segment = write_segment(tmp_path, file, table, buckets=(0, 256), of=256)
        runs.append(Run(name, (segment,)))
    view = View(tmp_path, SPEC, runs, floor=MIN_TIME, buckets=(0, 256))
    pieces = list(view.scan(MIN_TIME, None, max_bytes=1_000_000))
    assert sum(map(len, pieces)) == 50_000
    assert len(pieces) > 5
    assert max(3 * piece.nbytes for piece in pieces) <= 1_000_000
    assert pa.concat_tables(pieces)["n"].to_pylist() == [3] * 50_000


def test_a_scan_of_few_orders_reads_only_those(tmp_path: Path) -> None:
    table = combine(rows(np.arange(100_000), orders=np.arange(100_000) // 10), SPEC)
    segment = write_segment(tmp_path, file_name(1, "a"), table, buckets=(0, 256), of=256)
    view = View(tmp_path, SPEC, [Run("a", (segment,))], floor=MIN_TIME, buckets=(0, 256))
    before = pa.total_allocated_bytes()
    (piece,) = view.scan(500, 502)
    assert sorted(piece["k"].to_pylist()) == list(range(5000, 5020))
    assert pa.total_allocated_bytes() - before < 100_000


def test_a_view_estimates_its_size(tmp_path: Path) -> None:
    table = combine(rows(np.arange(1000)), SPEC)
    segment = write_segment(tmp_path, file_name(1, "a"), table, buckets=(0, 256), of=256)
    runs = [Run("a", (segment,))]
    quarter = View(tmp_path, SPEC, runs, floor=MIN_TIME, buckets=(0, 64))
    assert (quarter.rows, quarter.bytes) == (250, round(segment.bytes / 4))
    assert View(tmp_path, SPEC, runs, floor=1, buckets=(0, 256)).rows == 0


@pytest.mark.parametrize("floor", [MIN_TIME, 3, 9, 10])
def test_rows_below_the_floor_are_not_visible(tmp_path: Path, floor: int) -> None:
    table = combine(rows(np.arange(100), orders=np.arange(100) // 10), SPEC)
    segment = write_segment(tmp_path, file_name(1, "a"), table, buckets=(0, 256), of=256)
    view = View(tmp_path, SPEC, [Run("a", (segment,))], floor=floor, buckets=(0, 256))
    seen = [key for piece in view.scan(MIN_TIME, None) for key in piece["k"].to_pylist()]
    assert sorted(seen) == list(range(max(floor, 0) * 10, 100))
    found, _ = view.lookup(table.select(["_order", "_hash", "k", "t"]))
    assert found.tolist() == [order >= floor for order in table["_order"].to_pylist()]


def test_keys_that_share_the_greatest_hash_are_found(tmp_path: Path) -> None:
    table = rows([1, 2, 3]).set_column(1, "_hash", pa.array([2**64 - 1] * 3, pa.uint64()))
    segment = write_segment(
        tmp_path, file_name(1, "a"), combine(table, SPEC), buckets=(255, 256), of=256
    )
    view = View(tmp_path, SPEC, [Run("a", (segment,))], floor=MIN_TIME, buckets=(255, 256))
    found, values = view.lookup(table.select(["_order", "_hash", "k", "t"]))
    assert found.all()
    assert values["s"].to_pylist() == ["1", "2", "3"]


@pytest.mark.parametrize("orders", [[0, 0, 0, 0], [0, 0, 1, 1]])
def test_a_view_reads_its_buckets_to_the_last_hash(tmp_path: Path, orders: list[int]) -> None:
    edges = [0, 2**56 - 1, 2**56, 2**57 - 1]
    table = rows([1, 2, 3, 4], orders=orders).set_column(1, "_hash", pa.array(edges, pa.uint64()))
    table = combine(table, SPEC)
    segment = write_segment(tmp_path, file_name(1, "a"), table, buckets=(0, 256), of=256)
    for bucket, expected in ((0, [1, 2]), (1, [3, 4]), (2, [])):
        buckets = (bucket, bucket + 1)
        view = View(tmp_path, SPEC, [Run("a", (segment,))], floor=MIN_TIME, buckets=buckets)
        seen = [key for piece in view.scan(0, None) for key in piece["k"].to_pylist()]
        assert seen == expected


def test_a_key_of_another_bucket_is_refused(tmp_path: Path) -> None:
    view = View(tmp_path, SPEC, [], floor=MIN_TIME, buckets=(0, 1))
    with pytest.raises(InvalidInput, match=r"keys of the buckets \[0, 1\); got a key of another"):
        view.lookup(rows(np.arange(100)).select(["_order", "_hash", "k", "t"]))
