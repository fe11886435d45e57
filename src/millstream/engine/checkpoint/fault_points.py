"""Named points of the protocol at which a test can stop a run and kill it.

Disabled unless `MILLSTREAM_HOLD` is set. With `MILLSTREAM_HOLD=<folder>`, a file
`<folder>/<point>@<batch or *>` arms a point: the run that reaches it writes
`<folder>/held` and waits to be killed, or continues when that file is removed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POINTS = (
    "before intent", "in the middle of writing intent", "after intent",
    "in the middle of a run",
    "before prepared", "in the middle of writing prepared", "after prepared",
    "before a sink's commit", "after a sink's commit",
    "before commit", "in the middle of writing commit", "after commit",
)  # fmt: skip

CLEAN_UP = (
    "before a new segment", "in the middle of a new segment", "after a new segment",
    "kept records written", "segments replaced", "in the middle of an archive", "state archived",
    "before clean-up deletes",
)  # fmt: skip

ON_SPARK = "the first batch on Spark"
IN_TASK = "in a task of a narrow batch"  # after it has written its files; in a worker process
PREFETCHED = "with rows prefetched"  # in another thread, at any moment of a batch

_FOLDER = os.environ.get("MILLSTREAM_HOLD")


def reached(point: str, batch: int) -> None:
    """Wait at a point that a test has armed."""
    if _FOLDER is None:
        return
    folder = Path(_FOLDER)
    armed = next(
        (p for p in (folder / f"{point}@{batch}", folder / f"{point}@*") if p.exists()), None
    )
    if armed is None:
        return
    armed.unlink()
    held = folder / "held"
    held.write_text(f"{point}@{batch}")
    while held.exists():
        time.sleep(0.01)
