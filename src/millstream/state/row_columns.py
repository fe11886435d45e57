"""The columns that the engine adds to the columns of a row: origin, event time and sign."""

from __future__ import annotations

import pyarrow as pa

TIME, SIGN = "_time", "_sign"
ORIGIN_TYPES = {
    "_source": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_sub": pa.int64(),
}
ORIGIN = tuple(ORIGIN_TYPES)
ORIGIN_FIELDS = tuple(pa.field(name, kind) for name, kind in ORIGIN_TYPES.items())
