"""`ForeachBatch`: user code that gets each batch as a Spark DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import InvalidSpec
from millstream.sinks.function import function_name, user_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from millstream.sinks.spec import Opening, Staged, Writer


@dataclass(frozen=True, init=False)
class ForeachBatch:
    """Passes each batch to a function as a Spark DataFrame: `ForeachBatch(lambda df, batch_id: …)`.

    The function runs on the driver, once per batch that has rows. `batch_id` is the number of the
    batch: it increases, and not every number occurs. A batch whose call has returned is recorded in
    the checkpoint and not passed again; after a crash before that, the function is called again
    with the same rows and the same `batch_id`. Its effects therefore happen at least once, and
    exactly once if it skips or overwrites what it did for that id. The DataFrame is valid during
    the call, and every action on it reads the rows again; `df.persist()` keeps them. If there are
    retractions, it has a column `_sign` with −1 for them.
    """

    fn: Callable[[Any, int], object]
    name: str
    accepts_retractions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True
    needs_spark: ClassVar[bool] = True

    def __init__(self, fn: Callable[[Any, int], object], name: str | None = None) -> None:
        if not callable(fn):
            raise InvalidSpec("ForeachBatch needs a callable", got=repr(fn),
                              do="write ForeachBatch(lambda df, batch_id: …)")  # fmt: skip
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "name", name or function_name(fn))

    @property
    def system(self) -> str:
        """Each function is its own system."""
        return f"function {self.name} of DataFrames"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer that calls the function."""
        from millstream.sinks.spark.writer import FrameWriter

        return FrameWriter(opening, _Calls())


class _Calls:
    """Calls the function of an output."""

    signed = True

    def check(self, spark: SparkSession) -> None:
        """A function may do anything."""

    def send(self, frame: DataFrame, staged: Staged, batch: int) -> None:
        """Call the function of the output."""
        assert isinstance(staged.sink, ForeachBatch)
        with user_function(staged):
            staged.sink.fn(frame, batch)
