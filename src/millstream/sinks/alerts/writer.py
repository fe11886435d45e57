"""Alerts and mails of one run: taken in with the batch, told in the background."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from millstream.errors import DataGone, Fenced, MillstreamError, Unavailable
from millstream.sinks.alerts.outbox import Outbox, Target, target_names
from millstream.sinks.alerts.rendering import shortened
from millstream.sinks.alerts.rule import advance, observe
from millstream.sinks.alerts.store import MOST_KEYS, NoticeStore, standing, store_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.alerts.alert import Alert
    from millstream.sinks.alerts.email import Email
    from millstream.sinks.alerts.rule import KeyState, Rule, Step
    from millstream.sinks.spec import Opening, Sink, Staged

MOST_WAITING = 100_000
_TURN = 0.5
_QUIET = 10.0
_CLOSE_SECONDS = 10.0


class NoticeWriter:
    """The store opened for one run, and the thread that tells what is in it.

    A receiver that is down does not hold the pipeline: what is to be told waits in the store.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._store: NoticeStore | None = None
        self._last: str | None = None
        self._rules: dict[str, tuple[Alert, Rule]] = {}
        self._heard: dict[str, float] = {}
        self._targets: dict[str, Target] = {}
        self._outbox: Outbox | None = None
        self._over, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._telling, name="notices", daemon=True)

    @property
    def _open(self) -> NoticeStore:
        assert self._store is not None
        return self._store

    def recover(self, expected: str | None) -> str | None:
        """Take the store, tell the intent it has taken last, and begin to tell what waits."""
        path = store_file(self._opening.job)
        self._store = NoticeStore(path, self._opening.patience)
        with self._store.transaction():
            found = self._store.rows("SELECT epoch, intent FROM ledger")
            epoch, self._last = tuple(found[0]) if found else (0, None)
            if epoch > self._opening.epoch:
                raise self._fenced()
            if expected is not None and self._last is None:
                if self._opening.delivery == "exactly_once":
                    raise DataGone(
                        f"the job needs the store of its alerts in {path}",
                        got="an empty one, though an earlier batch wrote to it",
                        do="put it back, or begin anew with another --checkpoint",
                    )
                self._last = expected
            self._mark(self._last, 0)
            self._remember()
        self._outbox = Outbox(self._store, self._targets, self._mine, self._over.is_set)
        self._thread.start()
        return self._last

    def _mark(self, intent: str | None, batch: int) -> None:
        self._open.run(
            "INSERT INTO ledger VALUES (1, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET "
            "epoch = excluded.epoch, intent = excluded.intent, batch = max(batch, excluded.batch)",
            self._opening.job, self._opening.epoch, intent, batch,
        )  # fmt: skip

    def _remember(self) -> None:
        """Who is told of what earlier runs have left: the outputs they had, in this pipeline.

        What was meant for somebody who is no longer in it is given up, and said to be.
        """
        lost = 0
        for row in self._open.rows("SELECT * FROM outputs"):
            alike = [sink for sink in map(_sink, self._opening.sinks)
                     if (sink.kind, sink.name) == (row["kind"], row["sink"])]  # fmt: skip
            alike.sort(key=lambda sink: _print(sink) != row["print"])
            if alike:
                self._know(row["output"], alike[0], level=bool(row["level"]))
            else:
                lost += self._open.forget(row["output"])
        self._open.run("UPDATE parcels SET again = 0 WHERE ended IS NULL")
        for row in self._open.rows("SELECT DISTINCT target FROM outbox WHERE outcome IS NULL"):
            if row["target"] not in self._targets:
                lost += self._open.give_up(
                    "SELECT place FROM outbox WHERE target = ? AND outcome IS NULL", row["target"]
                )
        if lost:
            self._opening.on_wait(f"{lost:,} that were to be told are given up: who was to hear "
                                  "of them is no longer in the pipeline")  # fmt: skip

    def _know(self, name: str, sink: Alert | Email, *, level: bool) -> None:
        """An output of this run: who is told of it, and by which rule."""
        self._open.run("INSERT OR REPLACE INTO outputs VALUES (?, ?, ?, ?, ?)", name,
                       sink.kind, sink.name, _print(sink), level)  # fmt: skip
        if sink.kind == "Email":
            self._targets[name] = Target(sink, self._opening.pipeline, rows=True)
            return
        self._rules[name] = (sink, sink.rule(level=level))
        self._heard.setdefault(name, time.monotonic())
        self._open.register(name, sink.describe())
        for target, place in zip(sink.to, target_names(name, sink.to), strict=True):
            self._targets[place] = Target(target, self._opening.pipeline)

    def _mine(self) -> bool:
        found = self._open.rows("SELECT epoch FROM ledger")
        return bool(found) and found[0]["epoch"] == self._opening.epoch

    def _fenced(self) -> Fenced:
        return Fenced(
            f"the job {self._opening.job[:8]} needs to be the only one with its alerts",
            got="a newer run, which has taken them over",
            do="let that one work; this one stops, and nothing it had begun is visible",
        )

    # -- a batch --------------------------------------------------------------------

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """What the rows of a batch mean, and its mark, in one transaction."""
        self._refuse_what_cannot_be_sent(outputs)
        store = self._open
        with store.transaction():
            found = store.rows("SELECT epoch, intent FROM ledger")
            if tuple(found[0]) != (self._opening.epoch, self._last):
                raise self._fenced()
            for staged in outputs:
                sink = _sink(staged.sink)
                self._know(staged.output, sink, level=staged.is_table)
                if sink.kind == "Alert":
                    self._judge(staged, sink, batch)
                else:
                    self._gather(staged, sink, intent, batch)
            self._mark(intent, batch)
            self._opening.on_step("before a sink's commit")
        self._opening.on_step("after a sink's commit")
        self._last = intent
        self._wake.set()

    def _refuse_what_cannot_be_sent(self, outputs: Sequence[Staged]) -> None:
        """Rows that no server will ever take stop the job, and so do too many that wait."""
        assert self._outbox is not None
        for staged in outputs:
            sink = _sink(staged.sink)
            if sink.kind == "Alert":
                continue
            problem = self._outbox.problems.get(staged.output)
            if problem is not None:
                raise MillstreamError(problem.need, got=problem.got, do=problem.do)
            if self._open.waiting(staged.output) > MOST_WAITING:
                raise Unavailable(
                    f"the mails of {staged.output!r} need to be taken by {sink.shown}",
                    got=f"more than {MOST_WAITING:,} rows that wait",
                    do="see whether the server is up; the job goes on from here when it is "
                    "started again",
                )

    def _gather(self, staged: Staged, sink: Email, intent: str, batch: int) -> None:
        """Rows for a mail wait in the store, each under an id of its own."""
        from millstream.sinks.webhook.writer import json_rows

        now = time.time()
        due = now + (sink.digest or 0) / 1e6
        self._open.run_many(
            "INSERT OR IGNORE INTO outbox (id, target, kind, body, made, due, batch) "
            "VALUES (?, ?, 'row', ?, ?, ?, ?)",
            ((_row_id(intent, index), staged.output, shortened(row.decode()), now, due, batch)
             for index, row in enumerate(json_rows(staged))),
        )  # fmt: skip

    def _judge(self, staged: Staged, alert: Alert, batch: int) -> None:
        """How each key stands after these rows, and what is to be told of it."""
        from millstream.sinks.alerts.rows import AlertRows

        name, store, rule = staged.output, self._open, self._rules[staged.output][1]
        tracked = store.tracked(name)
        room = MOST_KEYS - sum(map(_active, tracked.values()))
        rows, turned_away = AlertRows(staged, alert), set()
        for one in rows.observed(tracked):
            before = tracked.get(one.key)
            if not _active(before) and one.seen.raises and room <= 0:
                turned_away.add(one.key)
                continue
            after, told = observe(before, one.seen, rule)
            if after is before and not told:
                continue
            room -= _active(after) - _active(before)
            self._stands(name, one.key, (after, told), batch, one.row)
            if after is None:
                tracked.pop(one.key, None)
            else:
                tracked[one.key] = after
        if turned_away:
            store.untracked(name, len(turned_away))
        if rows.clock is not None:
            store.heard(name, rows.clock)
            self._advance(name, max(rows.clock, store.clock(name) or rows.clock), batch)
            self._heard[name] = time.monotonic()
        store.trim(name)

    def _stands(self, name: str, key: str, step: Step, batch: int, row: str | None = None) -> None:
        (alert, rule), (after, told) = self._rules[name], step
        targets = target_names(name, alert.to)
        kept = row or self._open.row_of(name, key)
        self._open.save_state(name, key, after, rule, row, batch)
        for one in told:
            self._open.enqueue(name, key, one, targets, batch, kept)

    def _advance(self, name: str, clock: int, batch: int) -> None:
        _, rule = self._rules[name]
        for row in self._open.due(name, clock):
            self._stands(name, row["key"], advance(standing(row), clock, rule), batch)

    # -- going back -------------------------------------------------------------------

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """It always can: what was told is known by its id, and is not told again."""
        return None

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Episodes that began later begin anew with the rows that come again, those that began
        before go on; rows that wait for a mail leave."""
        with self._open.transaction():
            self._open.run("DELETE FROM standings WHERE batch > ?", batch)
            self._open.run("UPDATE alerts SET clock = NULL")
            self._open.run("DELETE FROM outbox WHERE batch > ? AND kind = 'row' AND "
                           "parcel IS NULL", batch)  # fmt: skip
        return self._last

    # -- telling ------------------------------------------------------------------------

    def _telling(self) -> None:
        while not self._over.is_set():
            self._wake.wait(_TURN)
            self._wake.clear()
            while not self._over.is_set() and self._turn():
                pass

    def _turn(self, *, everything: bool = False, deadline: float = float("inf")) -> int:
        """Let time pass for alerts that hear nothing, and send what is due.

        What goes wrong is said, and tried again in the next turn: nothing may end the telling.
        """
        assert self._outbox is not None
        try:
            self._let_time_pass()
            return self._outbox.send_due(everything=everything, deadline=deadline)
        except Exception as problem:
            self._opening.on_wait(f"nobody can be told of alerts and mails: {problem}")
            return 0

    def _let_time_pass(self) -> None:
        """Where a run has nothing to do, time goes on from the last row, one second per second."""
        now, calm = time.monotonic(), self._opening.idle_seconds()
        for name, heard in list(self._heard.items()):
            silent = min(calm, now - heard)
            clock = self._open.clock(name)
            if clock is None or silent < _QUIET:
                continue
            here = clock + int(silent * 1e6)
            if self._open.due(name, here):
                with self._open.transaction():
                    if self._mine():
                        self._advance(name, here, 0)

    def close(self) -> None:
        """Tell what waits, for as long as that is quick, and let go of the file."""
        self._over.set()
        self._wake.set()
        if self._store is None:
            return
        if self._thread.ident is not None:
            self._thread.join()
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._outbox is not None and time.monotonic() < deadline:
            if not self._turn(everything=True, deadline=deadline):
                break
        with suppress(sqlite3.Error):
            left = sum(self._store.waiting(name) for name in self._targets)
            if left:
                self._opening.on_wait(f"{left:,} that are to be told wait for the next run")
        self._store.close()


def _active(one: KeyState | None) -> bool:
    return one is not None and one.state != "resolved"


def _sink(sink: Sink) -> Alert | Email:
    return cast("Alert | Email", sink)


def _print(sink: Alert | Email) -> str:
    """A mark by which a sink is known again, that tells no secret."""
    parts = [sink] if sink.kind == "Email" else list(sink.to)
    body = json.dumps([sink.name, *(part.to_json() for part in parts)])
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _row_id(intent: str, index: int) -> str:
    return hashlib.sha256(json.dumps([intent, index]).encode()).hexdigest()[:32]
