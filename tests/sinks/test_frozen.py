"""A process that is suspended in the middle of a transaction, and its successor."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.sinks.batches import opened, staged

import millstream as ms
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def frozen(kind: str, place: str) -> Iterator[subprocess.Popen[str]]:
    """A run stopped by SIGSTOP just before its commit."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sinks.frozen", kind, place],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def thawed(process: subprocess.Popen[str]) -> str:
    """Wake it and return how it ends."""
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate("go on\n", timeout=120)
    return said.strip()


def test_a_frozen_run_in_postgres_is_terminated_by_its_successor_and_stops_when_it_wakes(
    database: str,
) -> None:
    sink = ms.Postgres("hot", url=database)
    with frozen("postgres", database) as process:
        successor = opened(sink, epoch=2, patience=60.0)
        successor.write("one", 1, [staged(sink, n=[1])])
        assert thawed(process) == "Fenced"
        successor.write("two", 2, [staged(sink, n=[2])])
        successor.close()
    with psycopg.connect(database) as connection:
        assert connection.execute("select n from hot order by n").fetchall() == [(1,), (2,)]


def test_a_frozen_run_in_sqlite_is_named_and_blocks_no_one_once_it_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.db"
    sink = ms.Sqlite(path, "hot")
    with frozen("sqlite", str(path)) as process:
        with pytest.raises(Unavailable, match="another process may hold it"):
            opened(sink, epoch=2, patience=0.2)
        process.kill()
        process.wait()
        successor = opened(sink, epoch=2, patience=60.0, recovered=False)
        assert successor.recover(None) is None
        successor.write("one", 1, [staged(sink, n=[1])])
        successor.close()
    connection = sqlite3.connect(path)
    assert connection.execute("select n from hot").fetchall() == [(1,)]
    connection.close()
