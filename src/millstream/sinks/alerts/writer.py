"""Stores a run's notifications with each batch, and sends them in the background."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from millstream.errors import MillstreamError, Unavailable
from millstream.outages import impaired
from millstream.sinks.alerts.outbox import Outbox, Recipient, digest_seconds
from millstream.sinks.alerts.rendering import shortened
from millstream.sinks.alerts.rule import advance, observe
from millstream.sinks.alerts.store import MOST_KEYS, NotificationStore, key_state, store_file
from millstream.sinks.ownership import fenced, missing_entry
from millstream.sinks.spec import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.errors import Fenced
    from millstream.sinks.alerts.alert import Alert
    from millstream.sinks.alerts.email import Email
    from millstream.sinks.alerts.rule import KeyState, Rule, Update
    from millstream.sinks.spec import Opening, Sink, Staged

MOST_WAITING = 100_000
_POLL_SECONDS = 0.5
_NOTIFICATIONS = "notifications"
_IDLE_AFTER = 10.0
_CLOSE_SECONDS = 10.0


class NotificationWriter:
    """The notification store of one run, and the thread that sends from it.

    A receiver that is down does not delay the pipeline: notifications wait in the store.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._opened: NotificationStore | None = None
        self._impaired = False
        self._last: str | None = None
        self._rules: dict[str, tuple[Alert, Rule]] = {}
        self._last_rows: dict[str, float] = {}
        self._recipients: dict[str, Recipient] = {}
        self._outbox: Outbox | None = None
        self._closing, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send_loop, name="notifications", daemon=True)

    @property
    def _store(self) -> NotificationStore:
        assert self._opened is not None
        return self._opened

    def recover(self, expected: str | None) -> str | None:
        """Claim the store, return the intent it has last, and start to send."""
        path = store_file(self._opening.job)
        self._opened = NotificationStore(path, min(PATIENCE, self._opening.patience))
        with self._store.transaction():
            found = self._store.rows("SELECT epoch, intent FROM ledger")
            epoch, self._last = tuple(found[0]) if found else (0, None)
            if epoch > self._opening.epoch:
                raise self._fenced()
            if expected is not None and self._last is None:
                if self._opening.delivery == "exactly_once":
                    raise missing_entry(str(path), None, restore="restore the file")
                self._last = expected
            self._write_ledger(self._last, 0)
            self._restore_outputs()
        self._outbox = Outbox(self._store, self._recipients, self._owns_store, self._closing.is_set)
        self._thread.start()
        return self._last

    def _write_ledger(self, intent: str | None, batch: int) -> None:
        self._store.run(
            "INSERT INTO ledger VALUES (1, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET "
            "epoch = excluded.epoch, intent = excluded.intent, batch = max(batch, excluded.batch)",
            self._opening.job, self._opening.epoch, intent, batch,
        )  # fmt: skip

    def _restore_outputs(self) -> None:
        """Match what earlier runs have left in the store to this pipeline's sinks.

        Notifications to recipients that are no longer in the pipeline are dropped and reported.
        """
        dropped = 0
        for row in self._store.rows("SELECT * FROM outputs"):
            alike = [sink for sink in map(_sink, self._opening.sinks)
                     if (sink.kind, sink.name) == (row["kind"], row["sink"])]  # fmt: skip
            alike.sort(key=lambda sink: _fingerprint(sink) != row["print"])
            if alike:
                self._add_output(row["output"], alike[0], level=bool(row["level"]))
            else:
                dropped += self._store.remove_alert(row["output"])
        self._store.run("UPDATE parcels SET again = 0 WHERE ended IS NULL")
        for row in self._store.rows("SELECT DISTINCT target FROM outbox WHERE outcome IS NULL"):
            if row["target"] not in self._recipients:
                dropped += self._store.drop(
                    "SELECT place FROM outbox WHERE target = ? AND outcome IS NULL", row["target"]
                )
        if dropped:
            self._opening.on_wait(f"dropped {dropped:,} notifications: their recipients are no "
                                  "longer in the pipeline")  # fmt: skip

    def _add_output(self, name: str, sink: Alert | Email, *, level: bool) -> None:
        """Register an output of this run: its recipients, and the rule of an alert."""
        self._store.run("INSERT OR REPLACE INTO outputs VALUES (?, ?, ?, ?, ?)", name,
                        sink.kind, sink.name, _fingerprint(sink), level)  # fmt: skip
        if sink.kind == "Email":
            self._recipients[name] = Recipient(sink, self._opening.pipeline, rows=True)
            return
        self._rules[name] = (sink, sink.rule(level=level))
        self._last_rows.setdefault(name, time.monotonic())
        self._store.register(name, sink.describe())
        for recipient, key in zip(sink.to, digest_seconds(name, sink.to), strict=True):
            self._recipients[key] = Recipient(recipient, self._opening.pipeline)

    def _owns_store(self) -> bool:
        found = self._store.rows("SELECT epoch FROM ledger")
        return bool(found) and found[0]["epoch"] == self._opening.epoch

    def _fenced(self) -> Fenced:
        return fenced(self._opening.job, str(self._store.path))

    # -- a batch --------------------------------------------------------------------

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write a batch's alert states, notifications and intent in one transaction."""
        self._check_mail_outputs(outputs)
        store = self._store
        with store.transaction():
            found = store.rows("SELECT epoch, intent FROM ledger")
            if tuple(found[0]) != (self._opening.epoch, self._last):
                raise self._fenced()
            for staged in outputs:
                sink = _sink(staged.sink)
                self._add_output(staged.output, sink, level=staged.is_table)
                if sink.kind == "Alert":
                    self._evaluate(staged, sink, batch)
                else:
                    self._enqueue_rows(staged, sink, intent, batch)
            self._write_ledger(intent, batch)
            self._opening.on_step("before a sink's commit")
        self._opening.on_step("after a sink's commit")
        self._last = intent
        self._wake.set()

    def _check_mail_outputs(self, outputs: Sequence[Staged]) -> None:
        """Stop the job if a mail server rejects an output's rows, or too many of them wait."""
        assert self._outbox is not None
        for staged in outputs:
            sink = _sink(staged.sink)
            if sink.kind == "Alert":
                continue
            problem = self._outbox.problems.get(staged.output)
            if problem is not None:
                raise MillstreamError(problem.need, got=problem.got, do=problem.do)
            if self._store.waiting(staged.output) > MOST_WAITING:
                raise Unavailable(
                    f"{sink.shown} must accept the mails of {staged.output!r}",
                    got=f"more than {MOST_WAITING:,} rows waiting to be sent",
                    do="check whether the server is up, then restart the job; it continues here",
                )

    def _enqueue_rows(self, staged: Staged, sink: Email, intent: str, batch: int) -> None:
        from millstream.sinks.webhook.writer import json_rows

        now = time.time()
        due = now + (sink.digest or 0) / 1e6
        self._store.run_many(
            "INSERT OR IGNORE INTO outbox (id, target, kind, body, made, due, batch) "
            "VALUES (?, ?, 'row', ?, ?, ?, ?)",
            ((_row_id(intent, index), staged.output, shortened(row.decode()), now, due, batch)
             for index, row in enumerate(json_rows(staged))),
        )  # fmt: skip

    def _evaluate(self, staged: Staged, alert: Alert, batch: int) -> None:
        """Update the state of each key from a batch's rows, and enqueue notifications."""
        from millstream.sinks.alerts.rows import AlertRows

        name, store, rule = staged.output, self._store, self._rules[staged.output][1]
        tracked = store.tracked(name)
        room = MOST_KEYS - sum(map(_is_active, tracked.values()))
        rows, untracked = AlertRows(staged, alert), set()
        for observed in rows.observed(tracked):
            before = tracked.get(observed.key)
            if not _is_active(before) and observed.seen.raises and room <= 0:
                untracked.add(observed.key)
                continue
            after, transitions = observe(before, observed.seen, rule)
            if after is before and not transitions:
                continue
            room -= _is_active(after) - _is_active(before)
            self._save(name, observed.key, (after, transitions), batch, observed.row)
            if after is None:
                tracked.pop(observed.key, None)
            else:
                tracked[observed.key] = after
        if untracked:
            store.count_untracked(name, len(untracked))
        if rows.clock is not None:
            store.advance_clock(name, rows.clock)
            self._advance(name, max(rows.clock, store.clock(name) or rows.clock), batch)
            self._last_rows[name] = time.monotonic()
        store.trim_resolved(name)

    def _save(
        self, name: str, key: str, update: Update, batch: int, row: str | None = None
    ) -> None:
        (alert, rule), (state, transitions) = self._rules[name], update
        recipients = digest_seconds(name, alert.to)
        raised_by = row or self._store.row_of(name, key)
        self._store.save_state(name, key, state, rule, row, batch)
        for transition in transitions:
            self._store.enqueue(name, key, transition, recipients, batch, raised_by)

    def _advance(self, name: str, clock: int, batch: int) -> None:
        _, rule = self._rules[name]
        for row in self._store.due(name, clock):
            self._save(name, row["key"], advance(key_state(row), clock, rule), batch)

    # -- rewinding --------------------------------------------------------------------

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """Always possible: notifications that were sent are known by id and not sent again."""
        return None

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Forget the episodes that began after the batch, and drop the rows not yet mailed."""
        with self._store.transaction():
            self._store.run("DELETE FROM standings WHERE batch > ?", batch)
            self._store.run("UPDATE alerts SET clock = NULL")
            self._store.run("DELETE FROM outbox WHERE batch > ? AND kind = 'row' AND "
                            "parcel IS NULL", batch)  # fmt: skip
        return self._last

    # -- sending ----------------------------------------------------------------------

    def _send_loop(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_POLL_SECONDS)
            self._wake.clear()
            while not self._closing.is_set() and self._send_once():
                pass

    def _send_once(self, *, everything: bool = False, deadline: float = float("inf")) -> int:
        """Advance the clock of idle alerts and send what is due; return how many were sent.

        Errors are reported and the next call tries again: nothing may end the thread.
        """
        assert self._outbox is not None
        try:
            self._advance_idle()
            sent = self._outbox.send_due(everything=everything, deadline=deadline)
        except Exception as problem:
            self._impaired = True
            self._opening.on_wait(impaired(_NOTIFICATIONS, f"cannot be sent: {problem}"))
            return 0
        if self._impaired:
            self._impaired = False
            self._opening.on_answer(_NOTIFICATIONS)
        return sent

    def _advance_idle(self) -> None:
        """While the run is idle, continue each alert's clock from its last row in real time."""
        now, idle = time.monotonic(), self._opening.idle_seconds()
        for name, last_row in list(self._last_rows.items()):
            idle_for = min(idle, now - last_row)
            clock = self._store.clock(name)
            if clock is None or idle_for < _IDLE_AFTER:
                continue
            clock += int(idle_for * 1e6)
            if self._store.due(name, clock):
                with self._store.transaction():
                    if self._owns_store():
                        self._advance(name, clock, 0)

    def close(self) -> None:
        """Send what waits within ten seconds, then close the store."""
        self._closing.set()
        self._wake.set()
        if self._opened is None:
            return
        if self._thread.ident is not None:
            self._thread.join()
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._outbox is not None and time.monotonic() < deadline:
            if not self._send_once(everything=True, deadline=deadline):
                break
        with suppress(sqlite3.Error):
            left = sum(map(self._store.waiting, self._recipients))
            if left:
                self._opening.on_wait(f"{left:,} notifications wait for the next run")
        self._store.close()


def _is_active(state: KeyState | None) -> bool:
    return state is not None and state.state != "resolved"


def _sink(sink: Sink) -> Alert | Email:
    return cast("Alert | Email", sink)


def _fingerprint(sink: Alert | Email) -> str:
    """A hash by which later runs recognise a sink; it reveals no secret."""
    parts = [sink] if sink.kind == "Email" else list(sink.to)
    body = json.dumps([sink.name, *(part.to_json() for part in parts)])
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _row_id(intent: str, index: int) -> str:
    return hashlib.sha256(json.dumps([intent, index]).encode()).hexdigest()[:32]
