"""`Spark` as a sink: each batch is appended by Spark's DataFrameWriter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer
    from millstream.sources.spark.spark import Spark


@dataclass(frozen=True)
class SparkSink:
    """A `Spark` value that is used as a sink."""

    spark: Spark

    @property
    def name(self) -> str:
        """The default name of an output that writes here."""
        return self.spark.name

    @property
    def system(self) -> str:
        """Each target is its own system."""
        return self.spark.system

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for the target."""
        from millstream.sinks.spark.appending import Appending
        from millstream.sinks.spark.writer import FrameWriter

        return FrameWriter(opening, Appending(self.spark))
