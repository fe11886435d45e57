"""Finding all rows of a key by a part of it: those the hash is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.state.arrays.numpy_columns import in_chunks
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.runs import Run, write_segment
from millstream.state.runs.view import View
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = StateSpec(
    keys=pa.schema([("k", pa.string()), ("place", pa.int64())]),
    values=(StateColumn("v", pa.int64(), "last"),),
)


def state_rows(rows: list[tuple[str | None, int, int | None]]) -> pa.Table:
    """Rows (k, place, v); a v of None forgets."""
    keys = pa.array([k for k, _, _ in rows], pa.string())
    columns = {
        ORDER: pa.array(np.zeros(len(rows), np.int64)),
        HASH: pa.array(hash_keys([keys], len(rows))),
        "k": keys,
        "place": pa.array([place for _, place, _ in rows], pa.int64()),
        "v": pa.array([v for _, _, v in rows], pa.int64()),
        GONE: pa.array([v is None for _, _, v in rows]),
    }
    return combine(pa.table(columns), SPEC)


def view_of(folder: Path, runs: list[list[tuple[str | None, int, int | None]]]) -> View:
    made = []
    for number, rows in enumerate(runs):
        segment = write_segment(folder, f"{number}.arrow", state_rows(rows), buckets=(0, 4), of=4)
        made.append(Run(str(number), (segment,)))
    return View(folder, SPEC, made, floor=0, buckets=(0, 4), of=4)


def wanted(keys: list[str | None]) -> pa.Table:
    column = pa.array(keys, pa.string())
    orders = pa.array(np.zeros(len(keys), np.int64))
    return pa.table({ORDER: orders, HASH: pa.array(hash_keys([column], len(keys))), "k": column})


def found(view: View, keys: list[str | None]) -> list[tuple[Any, ...]]:
    table = view.find(wanted(keys))
    return [(r[ORDER], r["k"], r["place"], r["v"]) for r in table.to_pylist()]


def test_all_rows_of_a_key_are_found_with_the_index_of_the_wanted_row(tmp_path: Path) -> None:
    view = view_of(tmp_path, [[("a", 1, 10), ("a", 7, 70), ("b", 1, 11), (None, 2, 20)]])
    assert found(view, ["b", "c", "a", None]) == [
        (0, "b", 1, 11),
        (2, "a", 1, 10),
        (2, "a", 7, 70),
        (3, None, 2, 20),
    ]
    assert found(view, []) == []


def test_newer_runs_replace_and_delete_single_rows_of_a_key(tmp_path: Path) -> None:
    view = view_of(
        tmp_path, [[("a", 1, 10), ("a", 7, 70)], [("a", 1, None), ("a", 9, 90)], [("a", 7, 71)]]
    )
    assert found(view, ["a"]) == [(0, "a", 7, 71), (0, "a", 9, 90)]


def test_stored_rows_are_read_in_bounded_pieces_also_within_one_key(tmp_path: Path) -> None:
    many: list[tuple[str | None, int, int | None]] = [("hot", n, n) for n in range(1_000)]
    view = view_of(tmp_path, [[*many, ("b", 1, 11)], [("hot", 2_000, 5), ("c", 1, 1)]])
    pieces = list(view.stored(wanted(["b", "x", "hot"]), max_bytes=5_000))

    assert len(pieces) > 5
    assert max(rows.nbytes for _, rows in pieces) < 8_000
    got = [(int(owner), row["k"], row["place"]) for owners, rows in pieces
           for owner, row in zip(owners, rows.to_pylist(), strict=True)]  # fmt: skip
    assert sorted(got) == sorted(
        [(0, "b", 1), (2, "hot", 2_000), *((2, "hot", n) for n in range(1_000))]
    )
    assert list(view.stored(wanted(["x"]))) == list(view.stored(wanted([]))) == []


def test_long_spans_are_divided_into_chunks() -> None:
    starts, lengths = np.array([5, 0, 40, 9]), np.array([3, 0, 4, 1])
    chunks = [(owners.tolist(), rows.tolist()) for owners, rows in in_chunks(starts, lengths, 3)]
    assert chunks == [([0, 0, 0], [5, 6, 7]), ([2, 2, 2], [40, 41, 42]), ([2, 3], [43, 9])]
    assert list(in_chunks(starts[:0], lengths[:0], 3)) == []
