"""Why an engine is excluded from a row, as shown on the page."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.processes import WHEN_NAMED

_NO_COLUMNS = dict.fromkeys(WHEN_NAMED, "decodes record by record, not to columns: q1 measures it")
_CHECK = {"duckdb": "computes the answer that the others are compared with"}
_NO_STATE = dict.fromkeys(("spark-rocksdb", "flink-rocksdb"), "does not use the store")
_NO_AS_OF = dict.fromkeys(("spark-heap", "spark-rocksdb"), "no as-of join in its streaming")
WHY_NOT = {
    "decode": _NO_COLUMNS | _NO_STATE,
    "hopping": _CHECK,
    "session": _CHECK | {"quix": "closing a session scans all keys: 92,000 bids took more "
                         "than five minutes",
                         "pathway": "its sessions have no lateness: each update is sent"},
    "distinct": _CHECK,
    "join": _CHECK | {"bytewax": "no interval join, only window joins",
                      "quix": "finds a pair only if its earlier row is read first: 121,412 of "
                      "150,815 were missing"},
    "as_of": _CHECK | _NO_AS_OF | {"bytewax": "no as-of join",
                                   "quix": "needs co-partitioned topics, bids do not wait"},
    "q1": _CHECK,
    "q2": _CHECK,
    "q5": _CHECK | {"quix": "no second grouping: counts cannot be compared"},
    "q7": _CHECK,
    "q8": _CHECK | {"quix": "no window join; with its interval join 685 of 1,501 rows were "
                    "missing, as a pair is found only if its earlier row is read first"},
}  # fmt: skip


def why_not(row: str, engine: str) -> str:
    """Why this engine is excluded from a row; empty if it can be measured.

    The environment of another engine is created if missing; if that fails, it is the reason.
    """
    return WHY_NOT.get(row, {}).get(engine, "") or peers.hindrance(engine)
