"""Alerts as tests play them: rows in batches, a receiver, and what it was told."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.sinks.batches import JOB

import millstream as ms
from millstream.sinks.alerts.writer import NoticeWriter
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.sinks.receiving import Receiver

SECOND = 1_000_000
Observed = tuple[str, int, int]


def alert(receiver: Receiver, **said: Any) -> ms.Alert:
    hook = ms.Webhook(receiver.url, allow_private=True)
    return ms.Alert("fails", **{"when": "n > 5", "to": hook, "hold": "0 seconds", **said})


def running(sink: ms.Alert, epoch: int = 1, idle: float = 0.0) -> NoticeWriter:
    opening = Opening("shop", JOB, epoch, (sink,), idle_seconds=lambda: idle)
    writer = NoticeWriter(opening)
    writer.recover(None)
    return writer


def batch(
    sink: ms.Alert, rows: Sequence[Observed], *, level: bool = False, **more: Any
) -> list[Staged]:
    """Rows of (page, second, n)."""
    table = pa.table(
        {
            "page": pa.array([page for page, _, _ in rows], pa.string()),
            "n": pa.array([n for _, _, n in rows], pa.int64()),
            "_time": pa.array([at * SECOND for _, at, _ in rows], pa.int64()),
            **more,
        }
    )
    parts = [table.slice(place, 3) for place in range(0, table.num_rows, 3)]
    return [Staged("fails", "result", sink, ("page",), len(rows), lambda: iter(parts),
                   is_table=level)]  # fmt: skip


def news(receiver: Receiver) -> list[tuple[str, str, str]]:
    """What was told: page, state, and when (its second of the first of January 1970)."""
    found = []
    for post in receiver.taken():
        body = json.loads(post.body)
        data = body["data"]
        found.append((data["key"].get("page", ""), data["state"], body["timestamp"][11:19]))
    return found


def at(second: int) -> str:
    return f"00:{second // 60:02d}:{second % 60:02d}"


def played(receiver: Receiver, sink: ms.Alert, *batches: Sequence[Observed], **said: Any
           ) -> list[tuple[str, str, str]]:  # fmt: skip
    """The batches one after the other, in one run; what was told."""
    writer = running(sink)
    for number, rows in enumerate(batches, start=1):
        writer.write(f"i{number}", number, batch(sink, rows, **said))
    writer.close()
    return news(receiver)


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
