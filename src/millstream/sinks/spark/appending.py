"""Appends DataFrames to what a `Spark` value names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from millstream.errors import InvalidSpec, Unavailable
from millstream.sinks.retries import CONTINUES
from millstream.sources.spark.frames import PACKAGE, options_of, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Staged
    from millstream.sources.spark.spark import Spark


@dataclass(frozen=True, slots=True)
class Appending:
    """One target; its columns are found by name."""

    sink: Spark
    signed = False

    def check(self, spark: SparkSession) -> None:
        """Refuse a target that Spark cannot write.

        Raises:
            InvalidSpec: Spark does not know the format, or the table's name.
        """
        sink = self.sink
        with spark_errors(sink, f"writing {sink!r} needs a target that Spark knows"):
            options_of(sink, spark)
            if sink.catalog_table is not None:
                spark.catalog.tableExists(sink.catalog_table)
            elif not _known(spark, str(sink.format)):
                raise InvalidSpec(f"Spark needs the data source {sink.format!r}",
                                  got="no such one", do=PACKAGE)  # fmt: skip

    def send(self, frame: DataFrame, staged: Staged, batch: int) -> None:
        """Append the rows of one output."""
        sink = self.sink
        need = f"{sink!r} needs to take batch {batch} of the output {staged.output!r}"
        with spark_errors(sink, need, do=f"check that system; {CONTINUES}", kind=Unavailable):
            options = options_of(sink, frame.sparkSession)
            writer = frame.write.mode("append").options(**options)
            if sink.catalog_table is not None:
                writer.saveAsTable(sink.catalog_table)
            else:
                writer.format(str(sink.format)).save()


def _known(spark: SparkSession, format_: str) -> bool:
    """Whether Spark has a data source of that name, in Java or registered from Python."""
    from py4j.protocol import Py4JJavaError

    state, java = spark._jsparkSession.sessionState(), cast("Any", spark)._jvm
    if state.dataSourceManager().dataSourceExists(format_):
        return True
    lookup = java.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    try:
        lookup(format_, state.conf())
    except Py4JJavaError:
        return False
    return True
