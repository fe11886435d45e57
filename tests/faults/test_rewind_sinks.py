"""Each sink on its own: which rows it removes when a job is rewound, and which it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.engine.redirected_sinks import with_suffix
from millstream.errors import InvalidInput
from millstream.sinks.files.files import FilesSink
from millstream.sinks.files.writer import TOGETHER, committed
from millstream.sinks.live.store import live_outputs
from millstream.sinks.spec import ListsExisting, Rewindable

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sinks.spec import OpenSink, Writer


def filled(sink: OpenSink, batches: int, **options: Any) -> Any:
    """A writer that has written `batches` batches, each with its number as a row."""
    writer = opened(sink, **options)
    for batch in range(1, batches + 1):
        writer.write(f"intent {batch}", batch, [staged(sink, k=[batch])])
    return writer


def reopened(sink: OpenSink, epoch: int = 2) -> Any:
    writer: Writer = opened(sink, epoch=epoch)
    assert isinstance(writer, Rewindable)
    return writer


def files(folder: Path) -> list[int]:
    from pyarrow import parquet

    assert {path.name for path in folder.glob("*.parquet")} == {p.name for p in committed(folder)}
    return sorted(
        k for path in committed(folder) for k in parquet.ParquetFile(path).read()["k"].to_pylist()
    )


def test_a_folder_goes_back_to_an_earlier_manifest(tmp_path: Path) -> None:
    sink = FilesSink(ms.Files(tmp_path / "out"))
    filled(sink, 4).close()
    writer = reopened(sink)
    assert writer.rewind_obstacle(2, "intent 2") is None
    assert writer.rewind(2, "intent 2", "mark") == "mark"
    assert files(tmp_path / "out") == [1, 2]
    assert writer.rewind(2, "intent 2", "other") == "mark"
    writer.write("intent 6", 6, [staged(sink, k=[6])])
    assert files(tmp_path / "out") == [1, 2, 6]
    assert reopened(sink, epoch=3).recover("intent 6") == "intent 6"


def test_a_folder_killed_between_record_and_files_is_repaired_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FilesSink(ms.Files(tmp_path / "out"))
    filled(sink, 3).close()
    writer = reopened(sink)
    monkeypatch.setattr(writer, "_replaced", list)
    writer.rewind(1, "intent 1", "mark")
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 3
    assert reopened(sink, epoch=3).rewind(1, "intent 1", "mark") == "mark"
    assert files(tmp_path / "out") == [1]


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_a_folder_goes_back_to_the_middle_of_a_merged_file(tmp_path: Path, format: Any) -> None:
    sink = FilesSink(ms.Files(tmp_path / "out", format=format, schema="k long, t string"))

    def rows() -> list[tuple[Any, ...]]:
        found = [str(path) for path in committed(tmp_path / "out")]
        assert found == sorted(map(str, (tmp_path / "out").glob(f"part*.{format}")))
        read = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}[format]
        asked = duckdb.connect().execute(f"select k, t from {read}({found}) order by k")
        return list(asked.fetchall())

    writer: Any = opened(sink)
    for batch in range(1, 2 * TOGETHER + 3):
        two = staged(sink, k=[2 * batch, 2 * batch + 1], t=["a\nb", 'c,"d'])
        writer.write(f"intent {batch}", batch, [two])
    assert len(committed(tmp_path / "out")) == 4
    whole = rows()
    for epoch, target in enumerate((TOGETHER + 5, TOGETHER, 5), start=2):
        writer = reopened(sink, epoch=epoch)
        assert writer.rewind_obstacle(target, f"intent {target}") is None
        writer.rewind(target, f"intent {target}", f"mark-{epoch}")
        assert rows() == whole[: 2 * target]
    assert len(committed(tmp_path / "out")) == 1
    assert len(list((tmp_path / "out" / "_millstream").glob("parts-*"))) == 1


def test_a_folder_without_recorded_parts_goes_back_only_between_its_files(
    tmp_path: Path,
) -> None:
    sink = FilesSink(ms.Files(tmp_path / "out"))
    writer = filled(sink, TOGETHER + 2)
    for path in (tmp_path / "out" / "_millstream").glob("parts-*"):
        path.unlink()
    why = writer.rewind_obstacle(5, "intent 5")
    assert why is not None
    assert f"one file for the batches 1 to {TOGETHER}, without recorded parts" in why
    assert writer.rewind_obstacle(0, None) is None
    writer.rewind(TOGETHER, f"intent {TOGETHER}", "mark")
    assert files(tmp_path / "out") == list(range(1, TOGETHER + 1))
    unsure = opened(sink, epoch=9, delivery="at_least_once")
    assert isinstance(unsure, Rewindable)
    assert "no manifest" in (unsure.rewind_obstacle(1, None) or "")


@pytest.mark.parametrize("key", [None, "k"])
def test_a_delta_table_goes_back_to_an_earlier_version(tmp_path: Path, key: str | None) -> None:
    sink = ms.Delta(tmp_path / "lake", key=key)

    def rows() -> list[int]:
        return sorted(DeltaTable(tmp_path / "lake").to_pyarrow_table()["k"].to_pylist())

    filled(sink, 4).close()
    writer = reopened(sink)
    assert writer.rewind_obstacle(2, "intent 2") is None
    assert writer.rewind(2, "intent 2", "mark") == "mark"
    assert rows() == [1, 2]
    assert writer.rewind(2, "intent 2", "mark") == "mark"
    writer.write("intent 6", 6, [staged(sink, k=[6])])
    assert rows() == [1, 2, 6]
    writer = reopened(sink, epoch=3)
    assert writer.rewind_obstacle(0, None) is None
    assert writer.rewind(0, None, "start") == "start"
    assert rows() == []
    writer.write("intent 8", 8, [staged(sink, k=[8])])
    assert rows() == [8]


def test_a_delta_table_with_other_writers_is_not_changed(tmp_path: Path) -> None:
    import pyarrow as pa

    sink = ms.Delta(tmp_path / "lake")
    filled(sink, 2).close()
    DeltaTable(tmp_path / "lake").optimize.compact()
    writer = reopened(sink)
    assert writer.rewind_obstacle(1, "intent 1") is None
    write_deltalake(tmp_path / "lake", pa.table({"k": [9]}), mode="append")
    assert "other writers have changed" in str(writer.rewind_obstacle(1, "intent 1"))
    assert "does not reach back to batch 7" in str(writer.rewind_obstacle(7, "unknown"))


def test_charts_and_live_tables_lose_the_rows_of_later_batches() -> None:
    sink = ms.LiveTable("numbers")
    filled(sink, 3, job="b" * 32).close()
    writer: Any = opened(sink, job="b" * 32, epoch=2)
    assert writer.rewind_obstacle(1, "intent 1") is None
    assert writer.rewind(1, "intent 1", "mark") == "intent 3"
    [output] = live_outputs("b" * 32)
    assert output.rows == ['{"k":1}']


def test_an_existing_output_is_named(tmp_path: Path) -> None:
    for sink, name in (
        (FilesSink(ms.Files(tmp_path / "out")), f"the folder {tmp_path / 'out'}"),
        (ms.Delta(tmp_path / "lake"), f"the Delta table {tmp_path / 'lake'}"),
        (ms.Sqlite(tmp_path / "db", "t"), f"the table 't' in the SQLite file {tmp_path / 'db'}"),
    ):
        new = opened(sink, recovered=False)
        assert isinstance(new, ListsExisting)
        assert new.existing() == []
        new.close()
        filled(sink, 1).close()
        old = opened(sink, recovered=False)
        assert isinstance(old, ListsExisting)
        assert old.existing() == [name]
        old.close()


def test_every_sink_with_a_name_can_get_a_suffix() -> None:
    url = "postgresql://localhost/none"
    assert with_suffix(ms.Topic("hot", key="k"), "-2") == ms.Topic("hot-2", key="k")
    assert with_suffix(ms.Postgres("s.hot", url=url), "-2") == ms.Postgres("s.hot-2", url=url)
    assert with_suffix(ms.Sqlite("a.db", "t", key="k"), "_2") == ms.Sqlite("a.db", "t_2", key="k")
    assert with_suffix(ms.Files("out/", format="csv", schema="k long"), "-2") == ms.Files(
        "out-2", format="csv", schema="k long"
    )
    assert with_suffix(ms.Delta("lake/hot"), "-2") == ms.Delta("lake/hot-2")
    with pytest.raises(InvalidInput, match="rewind with --again instead"):
        with_suffix(ms.Function(print), "-2")
