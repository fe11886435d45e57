"""What is to be told, and how alerts stand: one bounded SQLite file per job (and one per stack).

How a key stands and what is to be said about it change in one transaction, with the mark of the
batch they follow from: a batch that is written again changes nothing, and what was to be said is
said after a crash, under the same id. Readers open the file read-only and block nobody.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.errors import Unavailable
from millstream.sinks.alerts.rule import KeyState
from millstream.sinks.private_file import create_private_file
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from millstream.sinks.alerts.rule import Rule, Transition

VERSION = 1
MOST_KEYS = 10_000
RESOLVED_KEPT = 1000
SENT_KEPT = 10_000
MOST_PENDING = 2 * MOST_KEYS
TOO_MANY = "too many waited"
_ASKED_AT_ONCE = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), job TEXT, epoch INTEGER, intent TEXT, batch INTEGER
);
CREATE TABLE IF NOT EXISTS alerts (
    alert TEXT PRIMARY KEY, spec TEXT NOT NULL, clock INTEGER,
    untracked INTEGER NOT NULL DEFAULT 0, given_up INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS outputs (
    output TEXT PRIMARY KEY, kind TEXT NOT NULL, sink TEXT NOT NULL, print TEXT NOT NULL,
    level INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS standings (
    alert TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, time INTEGER NOT NULL,
    begun INTEGER NOT NULL, until INTEGER, resolved INTEGER, due INTEGER, since INTEGER NOT NULL,
    row TEXT NOT NULL, batch INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (alert, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS standings_due ON standings (alert, due) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS silences (
    alert TEXT NOT NULL, key TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (alert, key)
);
CREATE TABLE IF NOT EXISTS outbox (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, target TEXT NOT NULL, alert TEXT,
    key TEXT, episode TEXT, kind TEXT NOT NULL, body TEXT NOT NULL, made REAL NOT NULL,
    due REAL NOT NULL, batch INTEGER NOT NULL, parcel INTEGER, outcome TEXT, UNIQUE (target, id)
);
CREATE INDEX IF NOT EXISTS outbox_unpacked ON outbox (target, due)
    WHERE outcome IS NULL AND parcel IS NULL;
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (target) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS outbox_parcel ON outbox (parcel) WHERE parcel IS NOT NULL;
CREATE INDEX IF NOT EXISTS outbox_episode ON outbox (alert, key, episode);
CREATE TABLE IF NOT EXISTS parcels (
    parcel INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, target TEXT NOT NULL,
    made REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0, again REAL NOT NULL DEFAULT 0,
    left_over TEXT, problem TEXT, ended REAL
);
CREATE INDEX IF NOT EXISTS parcels_open ON parcels (again) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS parcels_made ON parcels (target, made);
CREATE VIEW IF NOT EXISTS unpacked AS
    SELECT place, id, target, alert, key, episode, due, coalesce(
        (SELECT max(until) FROM silences WHERE silences.alert = outbox.alert AND
         silences.key IN ('', outbox.key)), 0) AS silent
    FROM outbox WHERE parcel IS NULL AND outcome IS NULL
"""
_ADDED = (("alerts", "given_up"), ("standings", "batch"))


def store_file(job: str, home: Path | None = None) -> Path:
    """Where the alerts of a job are kept; `job` is the id of its checkpoint."""
    return (home or home_folder()) / "notices" / f"{job}.db"


def episode_of(alert: str, key: str, begun: int) -> str:
    """The id of an episode: the same alert, key and first row give the same one, always."""
    return hashlib.sha256(json.dumps([alert, key, begun]).encode()).hexdigest()[:24]


class NoticeStore:
    """The file opened for writing; its calls may come from any thread."""

    def __init__(self, path: Path, patience: float = 30.0) -> None:
        self.path = path
        self._lock = threading.RLock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_private_file(path)
        self._connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        self._connection.row_factory = sqlite3.Row
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA + f"; PRAGMA user_version = {VERSION}")
            self._add_columns()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unavailable(error) from error

    def _add_columns(self) -> None:
        """What a file of an earlier version does not have."""
        if not self._missing():
            return
        with self.transaction():
            for table, column in self._missing():
                self.run(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")

    def _missing(self) -> list[tuple[str, str]]:
        known = {table: [row["name"] for row in self.rows(f"PRAGMA table_info({table})")]
                 for table, _ in _ADDED}  # fmt: skip
        return [(table, column) for table, column in _ADDED if column not in known[table]]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing.

        Raises:
            Unavailable: the file cannot be written.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"alerts need their store in {self.path}",
            got=str(error),
            do="see whether the disk is full or something else writes to it",
        )

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """What a query finds."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:
        """Run one statement; how many rows it has changed."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of these."""
        with self._lock:
            self._connection.executemany(sql, values)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    # -- how keys stand ----------------------------------------------------------

    def register(self, alert: str, spec: dict[str, Any]) -> None:
        """An alert, as it may be shown."""
        self.run(
            "INSERT INTO alerts (alert, spec) VALUES (?, ?) "
            "ON CONFLICT (alert) DO UPDATE SET spec = excluded.spec",
            alert, json.dumps(spec),
        )  # fmt: skip

    def clock(self, alert: str) -> int | None:
        """The largest time of a row so far."""
        found = self.rows("SELECT clock FROM alerts WHERE alert = ?", alert)
        return found[0]["clock"] if found else None

    def heard(self, alert: str, clock: int) -> None:
        """Time has come so far."""
        self.run("UPDATE alerts SET clock = max(coalesce(clock, ?), ?) WHERE alert = ?",
                 clock, clock, alert)  # fmt: skip

    def tracked(self, alert: str) -> dict[str, KeyState]:
        """Every key that stands somehow."""
        found = self.rows("SELECT * FROM standings WHERE alert = ?", alert)
        return {row["key"]: standing(row) for row in found}

    def due(self, alert: str, clock: int) -> list[sqlite3.Row]:
        """Keys that stand otherwise once time has passed the clock."""
        return self.rows("SELECT * FROM standings WHERE alert = ? AND due < ?", alert, clock)

    def save_state(
        self, alert: str, key: str, after: KeyState | None, rule: Rule, row: str | None,
        batch: int = 0,
    ) -> None:  # fmt: skip
        """How a key stands from now on, after a batch; the row that raised it stays if no other
        is given, and so does the batch in which its episode began."""
        if after is None:
            self.run("DELETE FROM standings WHERE alert = ? AND key = ?", alert, key)
            return
        since = after.begun if after.state != "resolved" else (after.resolved or after.begun)
        self.run(
            "INSERT INTO standings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, '{}'), ?) "
            "ON CONFLICT (alert, key) DO UPDATE SET state = excluded.state, time = excluded.time, "
            "batch = iif(begun = excluded.begun, batch, excluded.batch), "
            "begun = excluded.begun, until = excluded.until, resolved = excluded.resolved, "
            "due = excluded.due, since = excluded.since, row = coalesce(?, row)",
            alert, key, after.state, after.time, after.begun, after.until, after.resolved,
            after.due(rule), since, row, batch, row,
        )  # fmt: skip

    def row_of(self, alert: str, key: str) -> str:
        """The row that a key was last raised by, as JSON."""
        found = self.rows("SELECT row FROM standings WHERE alert = ? AND key = ?", alert, key)
        return found[0]["row"] if found else "{}"

    def untracked(self, alert: str, count: int) -> None:
        """Keys that were raised while too many others were: counted, as they cannot be kept."""
        self.run("UPDATE alerts SET untracked = untracked + ? WHERE alert = ?", count, alert)

    def trim(self, alert: str) -> None:
        """Forget the oldest of what is over."""
        self.run(
            "DELETE FROM standings WHERE alert = ? AND state = 'resolved' AND key NOT IN (SELECT "
            "key FROM standings WHERE alert = ? AND state = 'resolved' ORDER BY resolved DESC "
            "LIMIT ?)", alert, alert, RESOLVED_KEPT,
        )  # fmt: skip

    def forget(self, alert: str) -> int:
        """An alert that is no more; what somebody was still to be told of it is given up, and
        counted."""
        self.run("DELETE FROM outputs WHERE output = ?", alert)
        self.run("DELETE FROM alerts WHERE alert = ?", alert)
        self.run("DELETE FROM standings WHERE alert = ?", alert)
        self.run("DELETE FROM silences WHERE alert = ?", alert)
        return self.give_up("SELECT place FROM outbox WHERE alert = ? AND outcome IS NULL", alert)

    def give_up(self, places: str, value: str) -> int:
        """End what waits, by the query that finds it, for it is no longer in the pipeline; how
        much that was."""
        found = [row["place"] for row in self.rows(places, value)]
        self.run_many(
            "UPDATE parcels SET ended = ?, problem = 'no longer in the pipeline' WHERE ended IS "
            "NULL AND parcel = (SELECT parcel FROM outbox WHERE place = ?)",
            [(time.time(), place) for place in found],
        )
        self.run_many("UPDATE outbox SET outcome = 'failed' WHERE place = ?",
                      [(place,) for place in found])  # fmt: skip
        return len(found)

    # -- what is to be told -------------------------------------------------------

    def enqueue(
        self, alert: str, key: str, change: Transition, targets: dict[str, float], batch: int,
        row: str, *, called: str | None = None,
    ) -> None:  # fmt: skip
        """Something happened: each target hears of it, when its time has come, once.

        `called` is what people call the alert, where the store has another name for it.
        """
        episode = episode_of(alert, key, change.begun)
        body = json.dumps({"alert": called or alert, "key": json.loads(key), "state": change.kind,
                           "at": change.at, "since": change.begun, "episode": episode,
                           "row": json.loads(row)})  # fmt: skip
        now = time.time()
        for target, gathers in targets.items():
            self.run(
                "INSERT OR IGNORE INTO outbox (id, target, alert, key, episode, kind, body, made, "
                "due, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                f"{episode}_{change.kind}", target, alert, key, episode, change.kind, body, now,
                max(now, self._last_parcel(target) + gathers), batch,
            )  # fmt: skip

    def bound(self, target: str) -> None:
        """Where more waits for a target than may, the oldest that is not under way to it is
        given up, and counted."""
        excess = self.waiting(target) - MOST_PENDING
        if excess <= 0:
            return
        oldest = self.rows("SELECT place, alert FROM unpacked WHERE target = ? ORDER BY place "
                           "LIMIT ?", target, excess)  # fmt: skip
        self.run_many("UPDATE alerts SET given_up = given_up + 1 WHERE alert = ?",
                      [(row["alert"],) for row in oldest])  # fmt: skip
        kept = self.rows("SELECT parcel FROM parcels WHERE target = ? AND id = ?", target, TOO_MANY)
        if not kept:
            self.run("INSERT INTO parcels (id, target, made, problem, ended) "
                     "VALUES (?, ?, 0, ?, ?)", TOO_MANY, target, TOO_MANY,
                     time.time())  # fmt: skip
            kept = self.rows("SELECT last_insert_rowid() AS parcel")
        self.run_many("UPDATE outbox SET outcome = 'failed', parcel = ? WHERE place = ?",
                      [(kept[0]["parcel"], row["place"]) for row in oldest])  # fmt: skip
        self.trim_sent()

    def trim_sent(self) -> None:
        """Keep of what is done with as much as is shown."""
        self.run("DELETE FROM outbox WHERE outcome IS NOT NULL AND place <= "
                 "(SELECT max(place) FROM outbox) - ?", SENT_KEPT)  # fmt: skip
        self.run("DELETE FROM parcels WHERE ended IS NOT NULL AND parcel <= "
                 "(SELECT max(parcel) FROM parcels) - ?", SENT_KEPT)  # fmt: skip

    def _last_parcel(self, target: str) -> float:
        found = self.rows("SELECT max(made) AS made FROM parcels WHERE target = ?", target)
        return found[0]["made"] or 0.0

    def waiting(self, target: str) -> int:
        """How much a target has not been told yet."""
        found = self.rows(
            "SELECT count(*) AS n FROM outbox WHERE target = ? AND outcome IS NULL", target
        )
        return int(found[0]["n"])

    # -- silence ------------------------------------------------------------------

    def silence(self, alert: str, key: str, until: float) -> None:
        """Say nothing of an alert (of one key, or with "" of all) until then."""
        with self.transaction():
            self.run("DELETE FROM silences WHERE until <= ?", time.time())
            self.run("INSERT OR REPLACE INTO silences VALUES (?, ?, ?)", alert, key, until)

    def unsilence(self, alert: str, key: str) -> bool:
        """Speak again; whether there was a silence."""
        with self.transaction():
            return self.run("DELETE FROM silences WHERE alert = ? AND key = ?", alert, key) > 0


def standing(row: sqlite3.Row) -> KeyState:
    """A row of `standings` as the rules know it."""
    return KeyState(row["state"], row["time"], row["begun"], row["until"], row["resolved"])
