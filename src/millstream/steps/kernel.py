"""What every stateful operator's kernel promises the engine.

    rows -- prepare --> exchange table -- shuffle by _hash --> run(state) --> results, state delta

`prepare` runs before the shuffle, on any slice of the batch; `run` runs after it, on
one range of buckets. Both are pure: the same arguments give the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import pyarrow as pa

    from millstream.eventtime.moment import Moment
    from millstream.state.spec import StateSpec
    from millstream.state.view import View


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows on their way to the shuffle, and those that came too late for it.

    `late` holds indices into the prepared rows; `late_windows` holds, for each of
    them, the starts of the windows that are gone (None where there are no windows).
    """

    exchange: pa.Table
    late: np.ndarray
    late_windows: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one range of buckets gives for one batch.

    `results` are tables of the operator's columns with `_time` and `_sign`, each of
    bounded size, to be drained before `delta`, `floor` and `held` are final.
    `delta` is what the state gains (sorted, combined), `floor` the order below which
    it is forgotten, `held` the smallest event time that may still be emitted.
    """

    results: Iterable[pa.Table]
    delta: pa.Table | None
    floor: int | None
    held: int


class Kernel(Protocol):
    """A stateful operator over Arrow: it knows no Spark, no files and no clock of its own."""

    @property
    def state(self) -> StateSpec:
        """The columns this operator remembers."""

    def output(self) -> pa.Schema:
        """The columns of its results, without `_time` and `_sign`."""

    def due(self, watermark: int) -> int:
        """The order below which remembered rows leave at this watermark; MIN_TIME if none do."""

    def prepare(self, rows: pa.Table, moment: Moment) -> Prepared:
        """Hash, partially aggregate and part the late rows; sees only `before` and `clock`."""

    def run(self, inputs: Sequence[pa.Table], state: View, moment: Moment) -> Outcome:
        """Take the exchanged rows in, then close what `moment.after` allows."""
