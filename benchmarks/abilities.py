"""Why an engine does not do a drained row: said in its cell of the page."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.processes import WHEN_NAMED

_NOT_MEASURED = dict.fromkeys(WHEN_NAMED, "not measured")
_CHECK = {"duckdb": "computes the answer that the others are held against"}
_NO_STATE = dict.fromkeys(("spark-rocksdb", "flink-rocksdb"), "the store plays no part in it")
_NO_AS_OF = dict.fromkeys(("spark-heap", "spark-rocksdb"), "no as-of join in its streaming")
WHY_NOT = {
    "decode": _NOT_MEASURED | _NO_STATE,
    "hopping": _CHECK,
    "session": _CHECK | {"quix": "no session windows",
                         "pathway": "its sessions know no lateness: each is sent as it grows"},
    "distinct": _CHECK,
    "join": _CHECK | _NOT_MEASURED,
    "as_of": _CHECK | _NOT_MEASURED | _NO_AS_OF,
    "q1": _CHECK,
    "q2": _CHECK,
    "q5": _CHECK | _NOT_MEASURED,
    "q7": _CHECK | _NOT_MEASURED,
    "q8": _CHECK | _NOT_MEASURED,
}  # fmt: skip


def why_not(row: str, engine: str) -> str:
    """The reason why this engine is left out of a row; empty if it can be measured.

    A peer's environment is made if it is not there; if that fails, it is the reason.
    """
    return WHY_NOT.get(row, {}).get(engine, "") or peers.hindrance(engine)
