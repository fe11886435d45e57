"""Outputs of the job under test to every kind of sink, besides its topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import millstream as ms

if TYPE_CHECKING:
    from millstream.plan.graph import Output


def outputs_of(folder: str, database: str, windows: ms.Stream, once: ms.Stream) -> list[Output]:
    """Tables with a key, and append-only tables, which show rows that were sent twice."""
    place = Path(folder)
    return [
        windows.to(ms.Postgres("windows", key=["key", "window_start"], url=database),
                   name="postgres-windows"),
        once.to(ms.Postgres("once", url=database), name="postgres-once"),
        windows.to(ms.Sqlite(place / "out.db", "windows"), name="sqlite-windows"),
        once.to(ms.Sqlite(place / "out.db", "once", key="id"), name="sqlite-once"),
        windows.to(ms.Files(place / "windows"), name="files-windows"),
        once.to(ms.Delta(place / "once"), name="delta-once"),
        windows.to(ms.Delta(place / "by-key", key=["key", "window_start"]), name="delta-windows"),
    ]  # fmt: skip


SYSTEMS = ("kafka", "postgres", "sqlite", "files", "delta once", "delta windows")
