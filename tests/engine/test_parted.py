"""Exchanged rows are split by the owner of their bucket, in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.engine.lanes.tasks import parted

EDGES = [0, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("buckets", [1, 4, 256])
@pytest.mark.parametrize("parallel", [1, 2, 3, 8])
def test_every_row_goes_to_the_part_that_owns_its_bucket(buckets: int, parallel: int) -> None:
    random = np.random.default_rng(3)
    hashes = [*EDGES, *(int(one) for one in random.integers(0, 2**64, 500, dtype=np.uint64))]
    rows = pa.table({"_hash": pa.array(hashes, pa.uint64()), "n": np.arange(len(hashes))})
    cut = parted(rows, buckets, parallel)
    for part, table in enumerate(cut):
        low, high = part * buckets // parallel, (part + 1) * buckets // parallel
        mine = [n for n, one in enumerate(hashes) if low <= one * buckets // 2**64 < high]
        assert table["n"].to_pylist() == mine
