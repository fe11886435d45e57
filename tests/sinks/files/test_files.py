"""`Files` as a sink: the suite of all sinks, and its own tests."""

from __future__ import annotations

import json
import resource
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sinks.batches import JOB, opened, staged

import millstream as ms
from millstream.errors import Damaged, InvalidSpec, Unavailable
from millstream.sinks.files import writer as files_writer
from millstream.sinks.files.files import FilesSink
from millstream.sinks.files.writer import committed
from millstream.testing.sink_suite import Crash, SinkSuite

if TYPE_CHECKING:
    from pathlib import Path

Format = Literal["parquet", "json", "csv"]


class TestParquetFiles(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out"

    def sink(self) -> FilesSink:
        return FilesSink(ms.Files(self.path))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a glob finds, as any reader sees them."""
        files = sorted(self.path.glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]


class TestJsonFiles(SinkSuite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "out"

    def sink(self) -> FilesSink:
        return FilesSink(ms.Files(self.path, format="json"))

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.path.glob("*.json"))
        return [json.loads(line) for f in files for line in f.read_text().split("\n")[:-1]]

    def seen(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if isinstance(value, date | Decimal):
            return str(value)
        if isinstance(value, bytes):
            return "AP9c"
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)


def sink_of(folder: Path, format: Format = "parquet") -> FilesSink:
    return FilesSink(ms.Files(folder, format=format))


def total(folder: Path, format: Format) -> tuple[int, int]:
    """The number of rows and the sum of `n`, as DuckDB reads them from a glob."""
    question = f"select count(*), sum(n)::bigint from '{folder}/*.{format}'"
    ((rows, added),) = duckdb.connect().execute(question).fetchall()
    return rows, added


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_small_files_are_compacted_without_losing_or_repeating_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    monkeypatch.setattr(files_writer, "TOGETHER", 4)
    monkeypatch.setattr(files_writer, "FULL_EVERY", 7)
    sink = sink_of(tmp_path / "out", format)
    writer = opened(sink)
    for batch in range(1, 31):
        text = ["plain", 'with "quotes", and\nbreaks', None]
        writer.write(f"intent {batch}", batch, [staged(sink, n=[batch] * 3, text=text)])
    writer.close()

    files = sorted((tmp_path / "out").glob(f"*.{format}"))
    assert len(files) < 10
    assert total(tmp_path / "out", format) == (90, 3 * sum(range(1, 31)))
    assert committed(tmp_path / "out") == files
    assert len(list((tmp_path / "out" / "_millstream").glob("*.json"))) <= 7 + 2
    assert not list((tmp_path / "out" / "_millstream").glob("draft-*"))
    writer = opened(sink, epoch=2, recovered=False)
    assert writer.recover("intent 30") == "intent 30"
    writer.close()


def test_files_with_different_columns_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_writer, "TOGETHER", 2)
    sink = sink_of(tmp_path / "out", "csv")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("two", 2, [staged(sink, n=[2], more=["x"])])
    writer.write("three", 3, [staged(sink, n=[3])])
    writer.close()
    texts = sorted(path.read_text() for path in (tmp_path / "out").glob("*.csv"))
    assert texts == ["n\n1\n3\n", "n,more\n2,x\n"]


@pytest.mark.parametrize("moment", ["committed", "published"])
def test_a_compaction_of_a_killed_run_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(files_writer, "TOGETHER", 2)
    sink = sink_of(tmp_path / "out")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    publish = files_writer.FilesWriter._publish

    def killed(self: files_writer.FilesWriter, names: Any) -> None:
        names = list(names)
        compacted = any("-to-" in name for name in names)
        if not compacted or moment == "published":
            publish(self, names)
        if compacted:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(files_writer.FilesWriter, "_publish", killed)
        with pytest.raises(Crash):
            writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    writer = opened(sink, epoch=2, recovered=False)
    assert writer.recover("two") == "two"
    writer.close()
    assert total(tmp_path / "out", "parquet") == (2, 3)
    assert len(committed(tmp_path / "out")) == 1


class SmallFiles:
    """No file may grow beyond 100 kB, which simulates a full disk.

    Only while the writer writes: the output of the test run may be a larger file.
    """

    def __enter__(self) -> SmallFiles:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, self._before[1]))
        return self

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)

    def __exit__(self, *_: object) -> None:
        self.free()


def many() -> pa.Table:
    numbers = range(60_000)
    return pa.table({"n": pa.array(numbers), "x": [f"{n * 7919:x}" for n in numbers]})


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_full_disk_is_reported_and_no_partial_file_is_visible(
    tmp_path: Path, format: Format
) -> None:
    sink = sink_of(tmp_path / "out", format)
    writer = opened(sink, patience=0.0)
    writer.write("one", 1, [staged(sink, n=[1])])
    sentence = "to take batch 2; got no success in 0 s: File too large"
    with pytest.raises(Unavailable, match=sentence), SmallFiles():
        writer.write("two", 2, [staged(sink, table=many())])
    assert total(tmp_path / "out", format) == (1, 1)
    writer.write("two", 2, [staged(sink, table=many())])
    writer.close()
    assert total(tmp_path / "out", format) == (60_001, 1 + sum(range(60_000)))


def test_a_batch_waits_until_a_full_disk_has_space(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out")
    heard: list[str] = []

    def hear(why: str) -> None:
        heard.append(why)
        disk.free()

    writer = opened(sink, on_wait=hear)
    with SmallFiles() as disk:
        writer.write("one", 1, [staged(sink, table=many())])
    writer.close()
    assert heard == [f"waiting for the folder {tmp_path / 'out'}: File too large"]
    assert total(tmp_path / "out", "parquet") == (60_000, sum(range(60_000)))


def test_a_changed_manifest_stops_the_job(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1])])
    writer.write("two", 2, [staged(sink, n=[2])])
    writer.close()
    records = sorted((tmp_path / "out" / "_millstream").glob("*.json"))
    body = records[1].read_text()
    records[1].write_text(body.replace("one", "won"))
    with pytest.raises(Damaged, match="truncated or changed"):
        opened(sink, epoch=2)
    records[1].unlink()
    with pytest.raises(Damaged, match="no such file, although a later record"):
        opened(sink, epoch=2)
    records[1].write_text(body)
    opened(sink, epoch=2).close()


def test_csv_files_begin_with_a_header(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out", "csv")
    writer = opened(sink)
    columns: dict[str, Any] = {'a "b"': [1, None], "c,d": ["", None]}
    writer.write("one", 1, [staged(sink, table=pa.table(columns))])
    writer.close()
    (file,) = (tmp_path / "out").glob("*.csv")
    assert file.read_text() == '"a ""b""","c,d"\n1,""\n,\n'


def test_an_unsupported_format_is_refused_while_building(tmp_path: Path) -> None:
    rows = ms.read(ms.Topic("bids", schema="auction long"))
    with pytest.raises(InvalidSpec, match="needs a format among parquet, json, csv"):
        rows.to(ms.Files("out", format="text"))
    with pytest.raises(InvalidSpec, match="needs a folder"):
        rows.to(ms.Files("out/*.parquet"))


def test_the_manifest_names_the_job_and_the_intent(tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "out")
    writer = opened(sink)
    writer.write("one", 1, [staged(sink, n=[1, 2])])
    writer.close()
    last = sorted((tmp_path / "out" / "_millstream").glob("*.json"))[-1]
    body = json.loads(last.read_text().splitlines()[1])
    assert (body["job"], body["intent"], body["batch"]) == (JOB, "one", 1)
    assert [facts["rows"] for facts in body["add"].values()] == [2]
