"""A small pipeline in a file, and bids for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.command import Command

FILE = """import millstream as ms

bids = ms.read(
    ms.Topic({topic!r}, schema="auction long, price double, ts timestamp"),
    time="ts",
    idle=None,
)
hot = bids.where("price > 0").by("auction").window(ms.tumbling({size!r})).agg(
    n=ms.count(), total=ms.sum("price")
)
pipeline = ms.Pipeline({topic!r}, hot.to(ms.Topic({topic!r} + ".out")))
"""


def pipeline_file(folder: Path, topic: str, size: str = "10 seconds") -> str:
    file = folder / "hot.py"
    file.write_text(FILE.format(topic=topic, size=size))
    return str(file)


def lines(seconds: list[int], auction: int = 7) -> str:
    """One bid of 2.0 at each of these seconds, for `millstream produce`."""
    return "".join(
        json.dumps({"auction": auction, "price": 2.0, "ts": (1_767_225_600 + at) * 1000}) + "\n"
        for at in seconds
    )


def windows(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Start and count of every result row, in the order of the topic."""
    return sorted((r["value"]["window_start"], r["value"]["n"]) for r in records)


def two_batches(millstream: Command, topic: str, folder: Path) -> list[str]:
    """Run a job of two batches with one closed and one open window; return its options."""
    place = ["--checkpoint", str(folder / "job")]
    file = pipeline_file(folder, topic)
    millstream.ok("topics", "create", topic)
    for seconds in ([1, 2, 11], [12, 3]):
        millstream.ok("produce", topic, stdin=lines(seconds))
        millstream.ok("run", file, *place, "--until", "caught-up")
    return place
