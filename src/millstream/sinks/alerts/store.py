"""The states of alerts and the notifications to send: one bounded SQLite file per job and stack.

States and notifications change in one transaction with the ledger entry of their batch: a batch
that is written again changes nothing, and a notification that a crash interrupted is sent again
under the same id. Readers open the file read-only and do not block the writer.

Tables and columns keep the names of version 1: `standings` holds the states of keys, `outbox` the
notifications, and `parcels` their deliveries.
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
TOO_MANY = "too many waited"  # a stored id, and shown as the reason
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
    """Return the file with the alerts of a job; `job` is the id of its checkpoint."""
    return (home or home_folder()) / "notices" / f"{job}.db"


def episode_of(alert: str, key: str, begun: int) -> str:
    """Return the id of an episode: the same alert, key and first row give the same id."""
    return hashlib.sha256(json.dumps([alert, key, begun]).encode()).hexdigest()[:24]


class NotificationStore:
    """The file opened for writing; its methods may be called from any thread."""

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
        """Add the columns that a file of an earlier version lacks."""
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
        """Run the block in one transaction.

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
            do="check whether the disk is full or another process writes to the file",
        )

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> int:
        """Run one statement; return how many rows it changed."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def run_many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """Run one statement with each of the values."""
        with self._lock:
            self._connection.executemany(sql, values)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    # -- states of keys ----------------------------------------------------------

    def register(self, alert: str, spec: dict[str, Any]) -> None:
        """Store the description of an alert."""
        self.run(
            "INSERT INTO alerts (alert, spec) VALUES (?, ?) "
            "ON CONFLICT (alert) DO UPDATE SET spec = excluded.spec",
            alert, json.dumps(spec),
        )  # fmt: skip

    def clock(self, alert: str) -> int | None:
        """Return the largest time of a row so far."""
        found = self.rows("SELECT clock FROM alerts WHERE alert = ?", alert)
        return found[0]["clock"] if found else None

    def advance_clock(self, alert: str, clock: int) -> None:
        """Advance the clock of an alert; it never goes back."""
        self.run("UPDATE alerts SET clock = max(coalesce(clock, ?), ?) WHERE alert = ?",
                 clock, clock, alert)  # fmt: skip

    def tracked(self, alert: str) -> dict[str, KeyState]:
        """Return the state of every tracked key."""
        found = self.rows("SELECT * FROM standings WHERE alert = ?", alert)
        return {row["key"]: key_state(row) for row in found}

    def due(self, alert: str, clock: int) -> list[sqlite3.Row]:
        """Return the keys whose state changes once time has passed `clock`."""
        return self.rows("SELECT * FROM standings WHERE alert = ? AND due < ?", alert, clock)

    def save_state(
        self, alert: str, key: str, state: KeyState | None, rule: Rule, row: str | None,
        batch: int = 0,
    ) -> None:  # fmt: skip
        """Store the state of a key; without `row` the row that raised it stays, and during an
        episode so does the batch in which it began."""
        if state is None:
            self.run("DELETE FROM standings WHERE alert = ? AND key = ?", alert, key)
            return
        since = state.begun if state.state != "resolved" else (state.resolved or state.begun)
        self.run(
            "INSERT INTO standings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, '{}'), ?) "
            "ON CONFLICT (alert, key) DO UPDATE SET state = excluded.state, time = excluded.time, "
            "batch = iif(begun = excluded.begun, batch, excluded.batch), "
            "begun = excluded.begun, until = excluded.until, resolved = excluded.resolved, "
            "due = excluded.due, since = excluded.since, row = coalesce(?, row)",
            alert, key, state.state, state.time, state.begun, state.until, state.resolved,
            state.due(rule), since, row, batch, row,
        )  # fmt: skip

    def row_of(self, alert: str, key: str) -> str:
        """Return the row that last raised a key, as JSON."""
        found = self.rows("SELECT row FROM standings WHERE alert = ? AND key = ?", alert, key)
        return found[0]["row"] if found else "{}"

    def count_untracked(self, alert: str, count: int) -> None:
        """Count keys that were raised while the limit of tracked keys was reached."""
        self.run("UPDATE alerts SET untracked = untracked + ? WHERE alert = ?", count, alert)

    def trim_resolved(self, alert: str) -> None:
        """Delete the oldest resolved keys beyond the limit."""
        self.run(
            "DELETE FROM standings WHERE alert = ? AND state = 'resolved' AND key NOT IN (SELECT "
            "key FROM standings WHERE alert = ? AND state = 'resolved' ORDER BY resolved DESC "
            "LIMIT ?)", alert, alert, RESOLVED_KEPT,
        )  # fmt: skip

    def remove_alert(self, alert: str) -> int:
        """Delete an alert; return how many of its notifications are dropped unsent."""
        self.run("DELETE FROM outputs WHERE output = ?", alert)
        self.run("DELETE FROM alerts WHERE alert = ?", alert)
        self.run("DELETE FROM standings WHERE alert = ?", alert)
        self.run("DELETE FROM silences WHERE alert = ?", alert)
        return self.drop("SELECT place FROM outbox WHERE alert = ? AND outcome IS NULL", alert)

    def drop(self, query: str, value: str) -> int:
        """Drop the notifications a query finds, because their recipient is no longer in the
        pipeline; return how many."""
        found = [row["place"] for row in self.rows(query, value)]
        self.run_many(
            "UPDATE parcels SET ended = ?, problem = 'no longer in the pipeline' WHERE ended IS "
            "NULL AND parcel = (SELECT parcel FROM outbox WHERE place = ?)",
            [(time.time(), place) for place in found],
        )
        self.run_many("UPDATE outbox SET outcome = 'failed' WHERE place = ?",
                      [(place,) for place in found])  # fmt: skip
        return len(found)

    # -- notifications ------------------------------------------------------------

    def enqueue(
        self, alert: str, key: str, transition: Transition, recipients: dict[str, float],
        batch: int, row: str, *, shown_name: str | None = None,
    ) -> None:  # fmt: skip
        """Enqueue a transition once for each recipient, with the seconds of its digest.

        `shown_name` is the alert's name in the text, if the store has another name for it.
        """
        kind, begun = transition.kind, transition.begun
        episode = episode_of(alert, key, begun)
        body = json.dumps({"alert": shown_name or alert, "key": json.loads(key), "state": kind,
                           "at": transition.at, "since": begun, "episode": episode,
                           "row": json.loads(row)})  # fmt: skip
        now = time.time()
        for recipient, digest in recipients.items():
            self.run(
                "INSERT OR IGNORE INTO outbox (id, target, alert, key, episode, kind, body, made, "
                "due, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                f"{episode}_{kind}", recipient, alert, key, episode, kind, body, now,
                max(now, self._last_delivery(recipient) + digest), batch,
            )  # fmt: skip

    def drop_excess(self, recipient: str) -> None:
        """Drop and count the oldest notifications to a recipient for which too many wait, except
        those already in a delivery."""
        excess = self.waiting(recipient) - MOST_PENDING
        if excess <= 0:
            return
        oldest = self.rows("SELECT place, alert FROM unpacked WHERE target = ? ORDER BY place "
                           "LIMIT ?", recipient, excess)  # fmt: skip
        self.run_many("UPDATE alerts SET given_up = given_up + 1 WHERE alert = ?",
                      [(row["alert"],) for row in oldest])  # fmt: skip
        dropped = self.rows(
            "SELECT parcel FROM parcels WHERE target = ? AND id = ?", recipient, TOO_MANY
        )
        if not dropped:
            self.run("INSERT INTO parcels (id, target, made, problem, ended) "
                     "VALUES (?, ?, 0, ?, ?)", TOO_MANY, recipient, TOO_MANY,
                     time.time())  # fmt: skip
            dropped = self.rows("SELECT last_insert_rowid() AS parcel")
        self.run_many("UPDATE outbox SET outcome = 'failed', parcel = ? WHERE place = ?",
                      [(dropped[0]["parcel"], row["place"]) for row in oldest])  # fmt: skip
        self.trim_sent()

    def trim_sent(self) -> None:
        """Delete the oldest finished notifications beyond the limit."""
        self.run("DELETE FROM outbox WHERE outcome IS NOT NULL AND place <= "
                 "(SELECT max(place) FROM outbox) - ?", SENT_KEPT)  # fmt: skip
        self.run("DELETE FROM parcels WHERE ended IS NOT NULL AND parcel <= "
                 "(SELECT max(parcel) FROM parcels) - ?", SENT_KEPT)  # fmt: skip

    def _last_delivery(self, recipient: str) -> float:
        found = self.rows("SELECT max(made) AS made FROM parcels WHERE target = ?", recipient)
        return found[0]["made"] or 0.0

    def waiting(self, recipient: str) -> int:
        """Return how many notifications wait for a recipient."""
        found = self.rows(
            "SELECT count(*) AS n FROM outbox WHERE target = ? AND outcome IS NULL", recipient
        )
        return int(found[0]["n"])

    # -- silences -----------------------------------------------------------------

    def silence(self, alert: str, key: str, until: float) -> None:
        """Silence an alert until a time: one key, or with "" all keys."""
        with self.transaction():
            self.run("DELETE FROM silences WHERE until <= ?", time.time())
            self.run("INSERT OR REPLACE INTO silences VALUES (?, ?, ?)", alert, key, until)

    def unsilence(self, alert: str, key: str) -> bool:
        """End a silence; return whether there was one."""
        with self.transaction():
            return self.run("DELETE FROM silences WHERE alert = ? AND key = ?", alert, key) > 0


def key_state(row: sqlite3.Row) -> KeyState:
    """Return a row of `standings` as a `KeyState`."""
    return KeyState(row["state"], row["time"], row["begun"], row["until"], row["resolved"])
