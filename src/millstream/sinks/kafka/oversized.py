"""Finds rows that a topic can never take: records larger than its `max.message.bytes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats.varints import byte_lengths
from millstream.sinks.kafka.messages import messages
from millstream.sinks.kafka.record_batches import OVERHEAD, batches
from millstream.sinks.row_checks import max_json_sizes
from millstream.sinks.rows import columns_of
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from millstream.sinks.kafka.messages import Outgoing
    from millstream.sources.kafka.topic import Topic

BATCH = 61  # bytes of a record batch before its records
_NAME = 8  # bytes around a column name in JSON, or before a value in other formats


@dataclass(frozen=True)
class TopicLimit:
    """The limit of one topic; `keys` are the columns of the record key."""

    sink: Topic
    keys: tuple[str, ...]
    limit: int

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """As `Check`. Only rows that may be too large are encoded."""
        suspects = self._suspects(rows)
        if not len(suspects):
            return None
        sizes = self._sizes(rows.take(pa.array(suspects)))
        too_large = sizes > self.limit
        if not too_large.any():
            return None
        reasons: list[str | None] = [None] * rows.num_rows
        for index, size in zip(suspects[too_large], sizes[too_large], strict=True):
            reasons[index] = (
                f"a record of {size:,} bytes is larger than the topic {self.sink.name!r} takes "
                f"(max.message.bytes={self.limit:,})"
            )
        return pa.array(reasons, pa.string())

    def _suspects(self, rows: pa.Table) -> np.ndarray:
        """The indexes of rows whose estimated maximum size is too large."""
        bound = np.zeros(rows.num_rows, np.int64) + BATCH
        for name in columns_of(rows):
            times = 2 if name in self.keys else 1
            bound += times * (len(name.encode()) * 6 + _NAME)
            bound += times * max_json_sizes(rows[name])
        return np.flatnonzero(bound > self.limit)

    def _sizes(self, rows: pa.Table) -> np.ndarray:
        """The size of each row as a compressed record batch."""
        staged = Staged(self.sink.name, "result", self.sink, self.keys, rows.num_rows,
                        lambda: iter([rows]))  # fmt: skip
        return np.concatenate([_batch_sizes(chunk, self.limit) for chunk in messages(staged)])


def _batch_sizes(chunk: Outgoing, limit: int) -> np.ndarray:
    sizes = BATCH + OVERHEAD + byte_lengths(chunk.values.fill_null(b""))
    if chunk.keys is not None:
        sizes = sizes + byte_lengths(chunk.keys.fill_null(b""))
    for index in np.flatnonzero(sizes > limit).tolist():
        [batch] = batches(chunk.take(np.array([index])), np.zeros(1, np.int64))
        sizes[index] = BATCH + len(batch.packed)
    return sizes
