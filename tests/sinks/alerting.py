"""Runs alerts on batches of rows and collects the notifications that a receiver got."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.sinks.batches import JOB

import millstream as ms
from millstream.sinks.alerts.writer import NotificationWriter
from millstream.sinks.spec import Opening, Staged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.sinks.receiving import Receiver

SECOND = 1_000_000
Observed = tuple[str, int, int]


def alert(receiver: Receiver, **options: Any) -> ms.Alert:
    hook = ms.Webhook(receiver.url, allow_private=True)
    return ms.Alert("fails", **{"when": "n > 5", "to": hook, "hold": "0 seconds", **options})


def opened_writer(sink: ms.Alert, epoch: int = 1, idle: float = 0.0) -> NotificationWriter:
    opening = Opening("shop", JOB, epoch, (sink,), idle_seconds=lambda: idle)
    writer = NotificationWriter(opening)
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


def notifications(receiver: Receiver) -> list[tuple[str, str, str]]:
    """The notifications: page, state, and when (a time on the first of January 1970)."""
    found = []
    for post in receiver.taken():
        body = json.loads(post.body)
        data = body["data"]
        found.append((data["key"].get("page", ""), data["state"], body["timestamp"][11:19]))
    return found


def at(second: int) -> str:
    return f"00:{second // 60:02d}:{second % 60:02d}"


def run_batches(receiver: Receiver, sink: ms.Alert, *batches: Sequence[Observed], **options: Any
           ) -> list[tuple[str, str, str]]:  # fmt: skip
    """Write the batches in one run; return the notifications."""
    writer = opened_writer(sink)
    for number, rows in enumerate(batches, start=1):
        writer.write(f"i{number}", number, batch(sink, rows, **options))
    writer.close()
    return notifications(receiver)


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
