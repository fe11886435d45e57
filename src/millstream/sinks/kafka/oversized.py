"""Rows that a topic can never take: records larger than its `max.message.bytes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats.varints import byte_lengths
from millstream.sinks.kafka.messages import messages
from millstream.sinks.kafka.record_batches import BESIDE, batches
from millstream.sinks.row_checks import max_json_sizes
from millstream.sinks.rows import columns_of
from millstream.sinks.spec import Staged

if TYPE_CHECKING:
    from millstream.sinks.kafka.messages import Outgoing
    from millstream.sources.kafka.topic import Topic

BATCH = 61  # bytes of a batch before its records
_NAME = 8  # bytes around a column's name in JSON, or in front of a value elsewhere


@dataclass(frozen=True)
class TopicLimit:
    """The limit of one topic; `keys` are the columns of its records' keys."""

    sink: Topic
    keys: tuple[str, ...]
    most: int

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """As `Check`: only rows that may be too large are written, to see what they are."""
        suspects = self._suspects(rows)
        if not len(suspects):
            return None
        sizes = self._sizes(rows.take(pa.array(suspects)))
        too_large = sizes > self.most
        if not too_large.any():
            return None
        told: list[str | None] = [None] * rows.num_rows
        for place, size in zip(suspects[too_large], sizes[too_large], strict=True):
            told[place] = (
                f"a record of {size:,} bytes is larger than the topic {self.sink.name!r} takes "
                f"(max.message.bytes={self.most:,})"
            )
        return pa.array(told, pa.string())

    def _suspects(self, rows: pa.Table) -> np.ndarray:
        """The places of rows that a generous estimate finds too large."""
        total = np.zeros(rows.num_rows, np.int64) + BATCH
        for name in columns_of(rows):
            times = 2 if name in self.keys else 1
            total += times * (len(name.encode()) * 6 + _NAME)
            total += times * max_json_sizes(rows[name])
        return np.flatnonzero(total > self.most)

    def _sizes(self, rows: pa.Table) -> np.ndarray:
        """What each row takes as a batch of its own, packed as the sink packs it."""
        staged = Staged(self.sink.name, "result", self.sink, self.keys, rows.num_rows,
                        lambda: iter([rows]))  # fmt: skip
        return np.concatenate([_packed(some, self.most) for some in messages(staged)])


def _packed(some: Outgoing, most: int) -> np.ndarray:
    sizes = BATCH + BESIDE + byte_lengths(some.values.fill_null(b""))
    if some.keys is not None:
        sizes = sizes + byte_lengths(some.keys.fill_null(b""))
    for place in np.flatnonzero(sizes > most).tolist():
        [batch] = batches(some.take(np.array([place])), np.zeros(1, np.int64))
        sizes[place] = BATCH + len(batch.packed)
    return sizes
