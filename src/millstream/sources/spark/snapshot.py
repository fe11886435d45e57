"""The rows of a `Spark` source, read once: Parquet files in the checkpoint.

sources/<source>/rows/part-….parquet     the rows, written by Spark's tasks at the first start
sources/<source>/draft-…                 rows of a first start that did not end

The folder gets its name when all files are durable, and nothing is read before. From then on it is
read as a folder of files: offsets are row numbers, and the files' order is in the source's notes.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.errors import DataGone, InvalidSpec, MillstreamError
from millstream.sources.files.files import Files
from millstream.sources.files.parquet import schema_of
from millstream.sources.files.reader import FilesReader
from millstream.sources.spark.frames import described, read_frame, selected, spark_errors
from millstream.toolchain.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.sources.spark.spark import Spark
    from millstream.sources.spec import SourceOpening

_ROWS = "rows"
_GROUP = 100_000
_WRITTEN = "name string, rows long"


def snapshot_reader(source: Spark, opening: SourceOpening) -> FilesReader:
    """The rows of the first start.

    Raises:
        InvalidSpec: Spark cannot read them, or they do not have the columns of the schema.
        DataGone: the job has begun, and its rows are no longer in the checkpoint.
    """
    assert opening.folder is not None, "a source with a snapshot needs a checkpoint"
    place = opening.folder / _ROWS
    if not place.exists():
        if opening.notes.all():
            raise DataGone(f"the job needs the rows of {source.name!r} in {place}",
                           got="no such folder",
                           do="restore it, or start with a fresh --checkpoint")  # fmt: skip
        _take(source, opening, place)
    _check_columns(source, place)
    files = Files(f"{escape(str(place.absolute()))}/*.parquet", schema=source.row_schema())
    return FilesReader(files, opening)


def _take(source: Spark, opening: SourceOpening, place: Path) -> None:
    """Let Spark's tasks write the rows, and name the folder once they are durable."""
    opening.on_wait(f"reading {source.name} with Spark")
    spark = opening.spark()
    frame = selected(source, read_frame(source, spark))
    draft = place.with_name(f"draft-{uuid.uuid4().hex}")
    draft.mkdir(mode=0o700, parents=True)
    try:
        need = f"reading {source!r} needs rows that Spark can read"
        with (
            described(spark, f"{source.name} · rows of the first start"),
            spark_errors(source, need, kind=MillstreamError),
        ):
            written = frame.mapInArrow(_Part(str(draft.absolute())), _WRITTEN).collect()
        kept, now = {row["name"] for row in written}, opening.clock() * 1000
        for file in draft.iterdir():
            if file.name in kept:
                os.utime(file, ns=(now, now))  # files are read in order of time, then name
            else:
                file.unlink()
        sync_folder(draft)
        try:
            draft.rename(place)
        except OSError:
            if not place.exists():  # else another run was first, and its rows count
                raise
        sync_folder(place.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """Writes the rows of a partition to a file, in a Spark task."""

    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        name = f"part-{task.partitionId():05d}-{task.taskAttemptId()}.parquet"
        writer, rows = None, 0
        with (Path(self.folder) / name).open("xb") as file:
            for group in _groups(batches):
                writer = writer or pq.ParquetWriter(file, group.schema)
                writer.write_table(group)
                rows += group.num_rows
            if writer is None:
                return
            writer.close()
            file.flush()
            os.fsync(file.fileno())
        yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows]})


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of a row group each."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= _GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _check_columns(source: Spark, place: Path) -> None:
    """Refuse columns that were not read at the first start."""
    for file in sorted(place.glob("*.parquet"))[:1]:
        there = schema_of(file).names
        new = [name for name in source.row_schema().names if name not in there]
        if new:
            raise InvalidSpec(f"the job has read {source.name!r} with the columns "
                              f"{', '.join(there)}", got=f"a schema that adds {', '.join(new)}",
                              do="change it back, or start with a fresh --checkpoint")  # fmt: skip
