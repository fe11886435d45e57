"""The run log of a job: what its runs did, in one SQLite file.

The job's process is the only writer. It writes once a second, so that the cost does not grow
with the number of batches. A writer that is suspended blocks no reader.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millstream.jobs.database import open_database, open_read_only, rows_of, transaction
from millstream.jobs.policy import Ending
from millstream.jobs.reports.instances import instance_counts
from millstream.metrics.facts import place_of
from millstream.outages import Outage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

VERSION = 1
RUNNING = "running"
BATCHES_KEPT = 2000
RUNS_KEPT = 50
BUCKETS = ("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "+Inf")
_PENDING = 5000
_SCHEMA = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, pid INTEGER NOT NULL, began REAL NOT NULL, beat REAL NOT NULL,
    turned REAL NOT NULL, phase TEXT NOT NULL, about TEXT, positions TEXT,
    code INTEGER, kind TEXT, sentence TEXT
);
CREATE TABLE batches (
    batch INTEGER PRIMARY KEY, at REAL NOT NULL, rows INTEGER NOT NULL, seconds REAL NOT NULL,
    facts TEXT NOT NULL
);
CREATE TABLE totals (
    metric TEXT NOT NULL, part TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (metric, part)
);
"""
_OUTAGES = """
CREATE TABLE IF NOT EXISTS outages (
    run TEXT NOT NULL, system TEXT NOT NULL, why TEXT NOT NULL, since REAL NOT NULL, next_try REAL,
    kind TEXT NOT NULL, PRIMARY KEY (run, system)
)
"""  # not in `_SCHEMA`: files of earlier versions get it too


class RunLog:
    """The writer of a job's run log, for one run."""

    def __init__(self, path: Path, run: str, pid: int) -> None:
        self._connection = open_database(path, _SCHEMA, version=VERSION, durable=False)
        self._run, self._lock = run, threading.Lock()
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_PENDING)
        self._totals: dict[tuple[str, str], float] = {}
        self._about: str | None = None
        self.phase, self._outages = "starting", tuple[Outage, ...]()
        now = time.time()
        with transaction(self._connection):
            self._connection.execute(_OUTAGES)
            self._connection.execute("DELETE FROM outages")
            self._connection.execute(
                "INSERT INTO runs (run, pid, began, beat, turned, phase) VALUES (?, ?, ?, ?, ?, ?)",
                (run, pid, now, now, now, self.phase),
            )
            self._connection.execute(
                "DELETE FROM runs WHERE run NOT IN "
                "(SELECT run FROM runs ORDER BY began DESC LIMIT ?)", (RUNS_KEPT,),
            )  # fmt: skip

    def last_batch(self) -> int:
        """Return the newest batch in the run log; 0 if there is none."""
        row = self._connection.execute("SELECT coalesce(max(batch), 0) FROM batches").fetchone()
        return int(row[0])

    def about(self, facts: Mapping[str, Any]) -> None:
        """Set what this run executes: plan, sources, version of the file."""
        self._about = json.dumps(facts)

    def batch(self, facts: Mapping[str, Any], at: float | None = None) -> None:
        """Record a batch committed now, or at a given time; the next heartbeat writes it."""
        with self._lock:
            self._waiting.append((at or time.time(), dict(facts)))
            self._add("batches", place_of(facts), 1)
            self._add("busy_seconds", "", facts["seconds"])
            self._add("duration", next(b for b in BUCKETS if facts["seconds"] <= float(b)), 1)
            for source, rows in facts.get("read", {}).items():
                self._add("in", source, rows)
            for metric in ("rows", "late", "dead", "extra", "bytes"):
                self._add(metric, "", facts[metric])
            for output, rows in facts["outputs"].items():
                self._add("out", output, rows)
            for phase, seconds in facts["phases"].items():
                self._add("phase_seconds", phase, seconds)
            for step, counts in facts.get("steps", {}).items():
                for metric in ("in", "out", "late", "behind", "dead", "seconds"):
                    self._add(f"step_{metric}", step, counts.get(metric, 0))
            for metric, part, value in instance_counts(facts):
                self._add(metric, part, value)

    def _add(self, metric: str, part: str, value: float) -> None:
        self._totals[metric, part] = self._totals.get((metric, part), 0.0) + value

    def beat(
        self, last_poll: float, positions: Mapping[str, Mapping[int, int]] | None,
        outages: Sequence[Outage] = (),
    ) -> None:  # fmt: skip
        """Write a heartbeat, and everything recorded since the last one."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), deque(maxlen=_PENDING)
            totals, self._totals = self._totals, {}
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE runs SET beat = ?, turned = ?, phase = ?, about = coalesce(?, about), "
                "positions = coalesce(?, positions) WHERE run = ?",
                (time.time(), last_poll, self.phase, self._about,
                 None if positions is None else json.dumps(positions), self._run),
            )  # fmt: skip
            self._connection.executemany(
                "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?)",
                [(facts["batch"], at, facts["rows"], facts["seconds"], json.dumps(facts))
                 for at, facts in waiting],
            )  # fmt: skip
            self._connection.executemany(
                "INSERT INTO totals VALUES (?, ?, ?) "
                "ON CONFLICT (metric, part) DO UPDATE SET value = value + excluded.value",
                [(metric, part, value) for (metric, part), value in totals.items()],
            )
            self._write_outages(tuple(outages))
            if waiting:
                oldest = waiting[-1][1]["batch"] - BATCHES_KEPT
                self._connection.execute("DELETE FROM batches WHERE batch <= ?", (oldest,))

    def _write_outages(self, outages: tuple[Outage, ...]) -> None:
        if outages == self._outages:
            return
        self._outages = outages
        self._connection.execute("DELETE FROM outages")
        self._connection.executemany(
            "INSERT INTO outages VALUES (?, ?, ?, ?, ?, ?)",
            [(self._run, one.system, one.why, one.since, one.next_try, one.kind)
             for one in outages],
        )  # fmt: skip

    def end(self, ending: Ending) -> None:
        """Record how the run ended."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE runs SET code = ?, kind = ?, sentence = ? WHERE run = ?",
                (ending.code, ending.kind, ending.sentence, self._run),
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@dataclass(frozen=True)
class RunEntry:
    """One run. Times are seconds since the epoch.

    `beat` is its last heartbeat, `last_poll` when its loop last completed a round.
    """

    run: str
    pid: int
    began: float
    beat: float
    last_poll: float
    phase: str
    about: dict[str, Any] | None
    positions: dict[str, dict[int, int]] | None
    ending: Ending | None


@dataclass(frozen=True)
class BatchEntry:
    """One batch: when it was committed, and its facts."""

    at: float
    facts: dict[str, Any]


@dataclass
class RunLogReader:
    """A reader of a job's run log, whether the job is running or not."""

    path: Path
    _connection: sqlite3.Connection | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self, run: str | None = None) -> RunEntry | None:
        """Return a run by its id, or the newest."""
        where = "WHERE run = ?" if run is not None else ""
        rows = self._rows(
            f"SELECT * FROM runs {where} ORDER BY began DESC LIMIT 1",  # noqa: S608
            () if run is None else (run,),
        )
        return _run_entry(rows[0]) if rows else None

    def outages(self, run: str | None) -> tuple[Outage, ...]:
        """Return the systems a run waited for at its last heartbeat, the oldest outage first."""
        known = self._rows("SELECT 1 FROM sqlite_master WHERE name = 'outages'")
        if not known or run is None:
            return ()
        rows = self._rows(
            "SELECT system, why, since, next_try, kind FROM outages WHERE run = ? ORDER BY since",
            (run,),
        )
        return tuple(Outage(**dict(row)) for row in rows)

    def about(self) -> dict[str, Any] | None:
        """Return what the newest run executes, as set by `RunLog.about`."""
        rows = self._rows(
            "SELECT about FROM runs WHERE about IS NOT NULL ORDER BY began DESC LIMIT 1"
        )
        return json.loads(rows[0]["about"]) if rows else None

    def positions(self) -> dict[str, dict[int, int]] | None:
        """Return the next offset to read, per source and partition."""
        rows = self._rows(
            "SELECT positions FROM runs WHERE positions IS NOT NULL ORDER BY began DESC LIMIT 1"
        )
        return _positions(rows[0]["positions"]) if rows else None

    def batches(self, *, since: float = 0.0, last: int = BATCHES_KEPT) -> list[BatchEntry]:
        """Return the last batches, oldest first."""
        rows = self._rows(
            "SELECT at, facts FROM batches WHERE at > ? ORDER BY batch DESC LIMIT ?", (since, last)
        )
        return [BatchEntry(row["at"], json.loads(row["facts"])) for row in reversed(rows)]

    def rows_since(self, at: float) -> int:
        """Return how many rows the batches since then have read."""
        rows = self._rows("SELECT coalesce(sum(rows), 0) AS n FROM batches WHERE at > ?", (at,))
        return int(rows[0]["n"]) if rows else 0

    def rows_per_second(self, seconds: int) -> list[int]:
        """Return how many rows were read in each of the last whole seconds, oldest first."""
        now = int(time.time())
        rows = self._rows("SELECT at, rows FROM batches WHERE at >= ?", (now - seconds,))
        counts = [0] * seconds
        for row in rows:
            second = int(row["at"]) - (now - seconds)
            if 0 <= second < seconds:
                counts[second] += row["rows"]
        return counts

    def last_rows_at(self) -> float | None:
        """Return when a batch last read a row."""
        rows = self._rows("SELECT at FROM batches WHERE rows > 0 ORDER BY batch DESC LIMIT 1")
        return float(rows[0]["at"]) if rows else None

    def totals(self) -> dict[str, dict[str, float]]:
        """Return the totals of all runs, per metric and part."""
        found: dict[str, dict[str, float]] = {}
        for row in self._rows("SELECT metric, part, value FROM totals"):
            found.setdefault(row["metric"], {})[row["part"]] = row["value"]
        return found

    @contextmanager
    def at_once(self) -> Iterator[Self]:
        """Read one consistent snapshot inside the block; the file is closed afterwards."""
        try:
            self._rows("BEGIN")
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        with self._lock:
            if self._connection is None:
                self._connection = open_read_only(self.path)
            if self._connection is None:
                return []
            return rows_of(self._connection, sql, values)


def batches_by_place(totals: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """Return how many batches ran in each place; those of earlier versions ran in the driver."""
    found: dict[str, int] = {}
    for part, batches in totals.get("batches", {}).items():
        where = place_of({"where": part})
        found[where] = found.get(where, 0) + int(batches)
    return found


def _run_entry(row: sqlite3.Row) -> RunEntry:
    ended = row["kind"] is not None
    return RunEntry(
        run=row["run"],
        pid=row["pid"],
        began=row["began"],
        beat=row["beat"],
        last_poll=row["turned"],
        phase=row["phase"],
        about=None if row["about"] is None else json.loads(row["about"]),
        positions=_positions(row["positions"]),
        ending=Ending(code=row["code"], kind=row["kind"], sentence=row["sentence"])
        if ended else None,
    )  # fmt: skip


def _positions(text: str | None) -> dict[str, dict[int, int]] | None:
    if text is None:
        return None
    return {
        source: {int(partition): offset for partition, offset in offsets.items()}
        for source, offsets in json.loads(text).items()
    }
