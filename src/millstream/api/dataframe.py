"""`Pipeline.dataframe`: the rows of one output as a Spark DataFrame.

The output runs in a job of its own, whose environment keeps the rows as Parquet files instead of
sending them to a sink. The files are removed when the process ends.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.engine.job import Job
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.engine.spark.session import session
from millstream.errors import InvalidInput
from millstream.plan.columns import record_keys
from millstream.schema import Schema
from millstream.sinks.rows import SIGN, visible
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from millstream.api.pipeline import Pipeline
    from millstream.plan.graph import Output
    from millstream.sinks.spec import Sink, Staged, Writer

LOG = logging.getLogger("millstream.job")
_KEPT = "rows"
_PLACE = "_place"  # of a row among the changes of a table
_OWN = ("checkpoint", "take_over")
_LONGEST = 90


def dataframe(
    pipeline: Pipeline, name: str, until: Literal["caught_up", "finished"], **options: Any
) -> DataFrame:
    """The rows of the output with that name.

    Raises:
        InvalidInput: there is none of that name, the run would not end, or an option does not fit.
    """
    output = _named(pipeline, name)
    if until not in ("caught_up", "finished"):
        raise InvalidInput('dataframe needs until="caught_up" or "finished"', got=repr(until))
    for option in _OWN:
        if option in options:
            raise InvalidInput(f"dataframe needs no {option}=: every call computes the rows again",
                               got=f"{option}={options[option]!r}", do="leave it out")  # fmt: skip
    alone = type(pipeline)(
        f"{pipeline.name[:_LONGEST]}-dataframe", output, buckets=pipeline.buckets,
        batch=f"{pipeline.batch} microseconds", on_bad=pipeline.on_bad, engine=pipeline.engine,
    )  # fmt: skip
    folder = home_folder() / "dataframes" / f"{alone.name}-{uuid.uuid4().hex[:12]}"
    folder.mkdir(mode=0o700, parents=True)
    atexit.register(partial(shutil.rmtree, folder, ignore_errors=True))
    job = _Collecting(alone, until=until, checkpoint=folder / "checkpoint",
                      **{"warn": _ignore, **options})  # fmt: skip
    job.run()
    rows = job.frame(output, options.get("spark") or session())
    shutil.rmtree(job.folder / "state", ignore_errors=True)
    if job.late or job.dead:
        LOG.warning("%s: %d late and %d bad rows are not in the DataFrame", name, job.late,
                    job.dead)  # fmt: skip
    return rows


def _ignore(text: str) -> None:
    """Late and bad rows are counted once, at the end."""


def _named(pipeline: Pipeline, name: str) -> Output:
    for output in pipeline.outputs:
        if output.name == name:
            return output
    known = ", ".join(output.name for output in pipeline.outputs)
    raise InvalidInput("dataframe needs an output of the pipeline", got=repr(name),
                       do=f"name one of {known}")  # fmt: skip


class _Kept(KafkaEnvironment):
    """All rows stay in the checkpoint; no sink is opened."""

    def writer_of(self, sink: Sink) -> str:
        return _KEPT

    def writer(self, name: str, job: str) -> Writer:
        assert self._folder is not None
        return _Keeping(self._folder / _KEPT)


class _Keeping:
    """Writes the results of each batch to a file; late and bad rows are only counted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recover(self, expected: str | None) -> str | None:
        """The job has one run."""
        return expected

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a file of the rows, with their signs and places."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for staged in outputs:
            if staged.kind != "result":
                continue
            writer, place = None, 0
            for table in staged.tables():
                rows = _marked(table, batch, place)
                place += table.num_rows
                writer = writer or pq.ParquetWriter(
                    self._folder / f"{batch:012d}.parquet", rows.schema
                )
                writer.write_table(rows)
            if writer is not None:
                writer.close()

    def close(self) -> None:
        """Nothing to close."""


def _marked(table: pa.Table, batch: int, place: int) -> pa.Table:
    """Rows with a sign, and their place in the order of changes."""
    count = table.num_rows
    sign = table[SIGN] if SIGN in table.column_names else pa.array([1] * count, pa.int8())
    places = pa.array(range((batch << 32) + place, (batch << 32) + place + count), pa.int64())
    return visible(table).append_column(SIGN, sign).append_column(_PLACE, places)


class _Collecting(Job):
    """A job whose rows are kept."""

    environment = _Kept

    def frame(self, output: Output, spark: SparkSession) -> DataFrame:
        """The rows it has kept."""
        assert self._engine is not None
        typed = self._engine.typed
        stage = next(stage for stage in typed.stages.stages for one in stage.outputs
                     if one.name == output.name)  # fmt: skip
        made = visible(typed.output(stage).empty_table()).schema
        names, ddl = made.names, Schema.from_arrow(made).ddl()
        files = sorted(map(str, (self.folder / _KEPT).glob("*.parquet")))
        if not files:
            return spark.createDataFrame([], ddl)
        rows = spark.read.schema(f"{ddl}, {SIGN} tinyint, {_PLACE} long").parquet(*files)
        keys = output.keys or record_keys(output.input)
        if output.table and keys:
            return _current(rows, keys, names)
        if not rows.where(f"{SIGN} < 0").isEmpty():
            return rows.select(*map(_quoted, names), SIGN)
        return rows.select(*map(_quoted, names))


def _current(changes: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """The rows of a table after its last change."""
    from pyspark.sql import Window
    from pyspark.sql.functions import desc, row_number

    newest = Window.partitionBy(*map(_quoted, keys)).orderBy(desc(_PLACE))
    last = changes.withColumn("_newest", row_number().over(newest))
    return last.where(f"_newest = 1 and {SIGN} > 0").select(*map(_quoted, names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
