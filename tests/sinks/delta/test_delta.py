"""`Delta`: the suite of all sinks, and its own tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import Damaged, InvalidSpec
from millstream.testing.sink_suite import SinkSuite

if TYPE_CHECKING:
    from pathlib import Path


class TestDelta(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "lake"

    def sink(self) -> ms.Delta:
        return ms.Delta(self.path)

    def keyed_sink(self) -> ms.Delta:
        return ms.Delta(self.path, key="k")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def test_the_version_before_a_batch_can_be_read(tmp_path: Path) -> None:
    sink = ms.Delta(tmp_path / "lake", key="k")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, k=[1], v=["a"])])
    writer.write("two", 2, [staged(sink, k=[1], v=["b"])])
    writer.close()
    before: list[dict[str, Any]] = (
        DeltaTable(tmp_path / "lake", version=0).to_pyarrow_table().to_pylist()
    )
    assert before == [{"k": 1, "v": "a"}]
    assert rows_of(tmp_path / "lake") == [{"k": 1, "v": "b"}]


def test_other_writers_may_append_and_optimize_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    sink = ms.Delta(path)

    def meanwhile(point: str) -> None:
        if point == "before a sink's commit" and DeltaTable.is_deltatable(str(path)) and strange:
            write_deltalake(path, pa.table({"n": [strange.pop()]}), mode="append")
            DeltaTable(path).optimize.compact()

    strange = [100]
    writer = opened(sink, on_step=meanwhile)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    assert sorted(row["n"] for row in rows_of(path)) == [1, 2, 100]
    writer = opened(sink, epoch=2, recovered=False)
    assert writer.recover("two") == "two"
    writer.close()


def test_a_committed_batch_is_not_written_again(tmp_path: Path) -> None:
    sink = ms.Delta(tmp_path / "lake")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("one", 1, [staged(sink, n=[1])])
    with pytest.raises(Damaged, match="restore the newest backup of the checkpoint"):
        writer.write("another", 1, [staged(sink, n=[1])])
    writer.close()
    assert rows_of(tmp_path / "lake") == [{"n": 1}]


def test_columns_that_do_not_match_are_named(tmp_path: Path) -> None:
    sink = ms.Delta(tmp_path / "lake")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    with pytest.raises(InvalidSpec, match="needs rows with columns that match"):
        writer.write("two", 2, [staged(sink, n=[1], more=["x"])])
    writer.close()


@pytest.mark.parametrize("path", ["", 7, "s3://bucket/lake"])
def test_a_path_that_is_not_a_folder_is_refused(path: Any) -> None:
    with pytest.raises(InvalidSpec, match="Delta needs a local folder"):
        ms.Delta(path)
