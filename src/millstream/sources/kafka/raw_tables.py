"""Parsed records as tables of raw records (`raw_schema`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol.record_batches import Records
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.kafka.protocol.single_records import Headers

_FEW = 256  # records of several partitions that become one table
_MAX_TIMESTAMP_MS = (1 << 63) // 1000 - 1


def joined(found: Mapping[int, Sequence[Records]], columns: Sequence[str]) -> pa.Table:
    """The records of several partitions; a few of them as one chunk, which decodes faster."""
    parts = [piece for some in found.values() for piece in some]
    owners = [partition for partition, some in found.items() for _ in some]
    counts = [len(part.offsets) for part in parts]
    if len(parts) > 1 and sum(counts) <= _FEW:
        whole = Records(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
            pa.concat_arrays([part.keys for part in parts]) if "key" in columns else None,
            next=0,
        )
        return raw_table(whole, np.repeat(owners, counts), columns)
    tables = [raw_table(part, partition, columns)
              for part, partition in zip(parts, owners, strict=True)]  # fmt: skip
    return pa.concat_tables([raw_schema(columns).empty_table(), *tables])


def raw_table(found: Records, partition: int | np.ndarray, columns: Sequence[str]) -> pa.Table:
    """The records of one partition, or of the partition that each belongs to."""
    count = len(found.offsets)
    timestamps = np.clip(found.timestamps, -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS)
    arrays = {
        "value": found.values,
        "key": found.keys,
        "partition": pa.array(np.full(count, partition, np.int32)),
        "offset": pa.array(found.offsets),
        "timestamp": pa.array(timestamps * 1000).view(pa.timestamp("us", "UTC")),
    }
    if found.headers is not None:
        arrays["headers"] = pa.array(
            [*map(_header_rows, found.headers)], raw_schema().field("headers").type
        )
    return pa.table([arrays[name] for name in columns], schema=raw_schema(columns))


def _header_rows(headers: Headers) -> list[dict[str, Any]] | None:
    """Headers as in a row: names are text, and a record without headers has null."""
    return [
        {"key": name.decode(errors="replace"), "value": value} for name, value in headers
    ] or None
