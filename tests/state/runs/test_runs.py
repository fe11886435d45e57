"""State files: what is written is read back, what is damaged is refused by name."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from millstream.errors import Damaged, Fenced, InvalidInput, InvalidSpec
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.runs import (
    Run,
    Segment,
    batch_of,
    file_name,
    open_segment,
    write_segment,
)
from millstream.state.runs.view import View
from millstream.state.spec import StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC = StateSpec(pa.schema([("k", pa.string())]), (StateColumn("n", pa.int64(), "sum"),))
NAME = file_name(7, "incarnation", "0")


def rows(count: int = 100) -> pa.Table:
    keys = pa.array([f"key {number}" for number in range(count)])
    table = pa.table(
        {
            "_order": np.arange(count) % 3,
            "_hash": hash_keys([keys], count),
            "k": keys,
            "n": np.arange(count),
        }
    )
    return combine(table, SPEC)


def written(folder: Path) -> Segment:
    return write_segment(folder, NAME, rows(), buckets=(0, 256), of=256)


def test_a_segment_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    segment = written(tmp_path)
    assert segment == Segment(
        file="000000000007-incarnation-0.arrow",
        low=0,
        high=256,
        rows=100,
        bytes=(tmp_path / NAME).stat().st_size,
        least=0,
        greatest=2,
        checksum=segment.checksum,
    )
    assert pa.Table.from_batches([open_segment(tmp_path, segment)]).equals(rows())
    run = Run("r", (segment,), 2)
    assert Run.from_json(run.to_json()) == run


def test_a_segment_is_mapped_not_copied(tmp_path: Path) -> None:
    segment = written(tmp_path)
    before = pa.total_allocated_bytes()
    batch = open_segment(tmp_path, segment)
    assert pa.total_allocated_bytes() == before
    assert open_segment(tmp_path, segment) is batch


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    segment = written(tmp_path)
    with pytest.raises(Fenced, match=f"got {NAME}, which another attempt has written"):
        write_segment(tmp_path, NAME, rows(3), buckets=(0, 256), of=256)
    assert open_segment(tmp_path, segment).num_rows == 100


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-64])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def flip_a_bit_of_the_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def fill_with_nothing(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    "damage", [cut_short, flip_a_bit, flip_a_bit_of_the_footer, empty, remove, fill_with_nothing]
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    segment = written(tmp_path)
    damage(tmp_path / segment.file)
    with pytest.raises(Damaged, match=rf"the state file {NAME} needs to be as it was written; got"):
        open_segment(tmp_path, segment)
    view = View(tmp_path, SPEC, [Run("r", (segment,))], floor=0, buckets=(0, 256))
    with pytest.raises(Damaged, match=NAME):
        list(view.scan(0, None))
    with pytest.raises(Damaged, match=NAME):
        view.lookup(rows().select(["_order", "_hash", "k"]))


def test_a_file_of_another_format_or_hash_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = written(tmp_path)
    monkeypatch.setattr("millstream.state.runs.runs.HASH_VERSION", 2)
    with pytest.raises(Damaged, match=r"got format and hash version \(b'1', b'1'\)"):
        open_segment(tmp_path, segment)


def verify_in_a_new_process(folder: Path, segment: Segment) -> str:
    try:
        open_segment(folder, segment)
    except Damaged as error:
        return str(error)
    return "fine"


def test_every_process_verifies_for_itself(tmp_path: Path) -> None:
    segment = written(tmp_path)
    open_segment(tmp_path, segment)
    flip_a_bit(tmp_path / segment.file)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said = pool.apply(verify_in_a_new_process, (tmp_path, segment))
    assert "a different checksum than was written" in said


def test_a_file_with_the_checksum_of_another_is_refused(tmp_path: Path) -> None:
    segment = written(tmp_path)
    with pytest.raises(Damaged, match="a different checksum"):
        open_segment(tmp_path, replace(segment, checksum=segment.checksum ^ 1))


def test_rows_that_a_reader_would_not_find_are_not_written(tmp_path: Path) -> None:
    table = rows()
    backwards = table.take(pa.array(np.arange(len(table))[::-1]))
    with pytest.raises(InvalidInput, match="sorted by _order and _hash"):
        write_segment(tmp_path, NAME, backwards, buckets=(0, 256), of=256)
    with pytest.raises(InvalidInput, match=r"rows of the buckets \[0, 8\) of 256"):
        write_segment(tmp_path, NAME, table, buckets=(0, 8), of=256)
    with pytest.raises(InvalidInput, match="a segment needs rows; got none"):
        write_segment(tmp_path, NAME, table.slice(0, 0), buckets=(0, 256), of=256)
    assert list(tmp_path.iterdir()) == []


def test_state_of_another_spec_is_refused(tmp_path: Path) -> None:
    segment = written(tmp_path)
    other = StateSpec(SPEC.keys, (*SPEC.values, StateColumn("m", pa.int64(), "max")))
    view = View(tmp_path, other, [Run("r", (segment,))], floor=0, buckets=(0, 256))
    with pytest.raises(
        InvalidSpec, match=rf"the state in {NAME} needs the columns .*, m, _gone; got"
    ):
        list(view.scan(0, None))


def test_a_file_name_contains_its_batch() -> None:
    assert batch_of(file_name(12, "a", "b")) == 12
    assert batch_of("notes.txt") is None
    assert batch_of("lost+found") is None
    assert batch_of("x-1.arrow") is None
