"""Alerts of all jobs as they stand, and the word that keeps them quiet for a while.

Those of a pipeline's rows stand in a store of its job, those on a job's own facts in one of the
stack. Both can be read and silenced whether or not the job runs.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, InvalidInput, NotFound
from millstream.jobs.database import looked_at
from millstream.jobs.registry import Book
from millstream.jobs.reports.overview import moment
from millstream.sinks.alerts.notice_store import NoticeStore, episode_of, store_file
from millstream.sinks.alerts.notice_texts import moment as moment_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.jobs.folders import StackPlace
    from millstream.jobs.registry import JobRow

LONGEST_SILENCE = 30 * 86_400.0
SHOWN = 1000
_ORDER = {"firing": 0, "pending": 1, "resolved": 2, "ok": 3}


def job_alerts_file(place: StackPlace) -> Path:
    """Where alerts on jobs' own facts stand; each is called `<job>:<alert>` there."""
    return place.path / "alerts.db"


def alerts(
    place: StackPlace, job: str | None = None, alert: str | None = None
) -> list[dict[str, Any]]:
    """Every alert of every job (or of one): how each of its keys stands, the worst first.

    Each has `job`, `alert`, `on` (`rows` or `job`), `when`, `key` (None where no key stands
    out), `state` (`firing`, `pending`, `resolved`, `ok`), `since`, `row` (the last that raised
    it), `episode`, `silenced_until`, `notified` (`yes`, `waiting`, `silenced`, `failed`; None
    where there is nobody to tell), `problem` (why somebody could not be told), `to`, and
    `untracked` (how many keys too many were raised at once to be watched).

    Raises:
        NotFound: no such job.
    """
    with Book(place.book, read_only=True) as book:
        jobs = book.all() if job is None else [book.job(job)]
    found = [row for one in jobs for row in _of_job(place, one)]
    found = [row for row in found if alert in (None, row["alert"])]
    return sorted(found, key=lambda row: (_ORDER[row["state"]], row["job"], row["alert"],
                                          json.dumps(row["key"], sort_keys=True)))  # fmt: skip


def notifications(place: StackPlace, job: str, alert: str, last: int = 50) -> list[dict[str, Any]]:
    """What was last to be told of an alert, and what came of it, newest first.

    Raises:
        NotFound: no such job or alert.
    """
    file, name = _place_of(place, job, alert)
    with closing(_reading(file)) as store:
        rows = store.execute(
            "SELECT o.*, p.tries, p.problem, p.ended FROM outbox o LEFT JOIN parcels p "
            "USING (parcel) WHERE o.alert = ? ORDER BY o.place DESC LIMIT ?", (name, last),
        ).fetchall()  # fmt: skip
    return [
        {"at": moment(row["made"]), "state": row["kind"], "key": json.loads(row["key"]),
         "episode": row["episode"], "outcome": row["outcome"] or "waiting",
         "tries": row["tries"] or 0, "problem": row["problem"],
         "told": None if row["outcome"] != "sent" else moment(row["ended"])}
        for row in rows
    ]  # fmt: skip


def silence(
    place: StackPlace, job: str, alert: str, *, seconds: float,
    key: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tell nobody of an alert (of one key of it, or of all) for so long; it goes on standing.

    What still fires when the silence is over is told then.

    Raises:
        NotFound: no such job or alert.
        InvalidInput: not a length from a second to 30 days.
    """
    if not isinstance(seconds, int | float) or not 1 <= seconds <= LONGEST_SILENCE:
        raise InvalidInput("a silence needs a length from 1 second to 30 days", got=repr(seconds))
    file, name = _place_of(place, job, alert)
    until = time.time() + seconds
    with closing(NoticeStore(file)) as store:
        store.silence(name, _key_text(file, name, key), until)
    return {"job": job, "alert": alert, "key": key, "silenced_until": moment(until)}


def unsilence(
    place: StackPlace, job: str, alert: str, *, key: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """End a silence.

    Raises:
        NotFound: no such job or alert, or it was not silent.
    """
    file, name = _place_of(place, job, alert)
    with closing(NoticeStore(file)) as store:
        if not store.unsilence(name, _key_text(file, name, key)):
            raise NotFound(f"this needs a silence of the alert {alert!r}", got="none",
                           do="see `millstream alerts list`")  # fmt: skip
    return {"job": job, "alert": alert, "key": key, "silenced_until": None}


def _key_text(file: Path, alert: str, key: Mapping[str, Any] | None) -> str:
    """A key as the store writes it: found among those that stand, whatever its spelling."""
    if key is None:
        return ""
    with closing(_reading(file)) as store:
        rows = store.execute("SELECT key FROM standings WHERE alert = ?", (alert,)).fetchall()
    for row in rows:
        known = json.loads(row["key"])
        if known == dict(key) or {n: str(v) for n, v in known.items()} == dict(key):
            return str(row["key"])
    raise NotFound(f"this needs a key of the alert {alert!r} that stands out",
                   got=json.dumps(dict(key), default=str),
                   do="see `millstream alerts list`")  # fmt: skip


def _stores(place: StackPlace, job: JobRow) -> Iterator[tuple[Path, str, str]]:
    """Where a job's alerts stand: file, what their names begin with, what they are on."""
    checkpoint = Path(job.checkpoint)
    if (checkpoint / "job").exists():
        from millstream.engine.inspection.inspect import looked_at as look

        yield store_file(look(checkpoint).job, place.path.parent), "", "rows"
    yield job_alerts_file(place), f"{job.name}:", "job"


def _place_of(place: StackPlace, job: str, alert: str) -> tuple[Path, str]:
    with Book(place.book, read_only=True) as book:
        row = book.job(job)
    known = []
    for file, before, _ in _stores(place, row):
        store = _opened(file)
        if store is None:
            continue
        with closing(store):
            names = [one["alert"] for one in store.execute("SELECT alert FROM alerts")]
        if before + alert in names:
            return file, before + alert
        known += [name.removeprefix(before) for name in names if name.startswith(before)]
    raise NotFound(f"this needs an alert {alert!r} of the job {job}",
                   got=", ".join(known) or "no alerts",
                   do="see `millstream alerts list`")  # fmt: skip


def _reading(file: Path) -> sqlite3.Connection:
    store = _opened(file)
    assert store is not None
    return store


def _opened(file: Path) -> sqlite3.Connection | None:
    """A store opened for reading; None while there is none."""
    try:
        return looked_at(file)
    except sqlite3.DatabaseError as error:
        raise Damaged(
            f"{file} needs to be a store of alerts", got=str(error),
            do="move it away; alerts stand anew from the next batch on",
        ) from error  # fmt: skip


def _of_job(place: StackPlace, job: JobRow) -> Iterator[dict[str, Any]]:
    for file, before, on in _stores(place, job):
        store = _opened(file)
        if store is None:
            continue
        with closing(store):
            store.execute("BEGIN")
            for row in store.execute("SELECT * FROM alerts ORDER BY alert").fetchall():
                if row["alert"].startswith(before):
                    told = {"job": job.name, "alert": row["alert"].removeprefix(before), "on": on}
                    yield from _keys(store, row, told)


def _keys(
    store: sqlite3.Connection, alert: sqlite3.Row, told: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    spec, name, now = json.loads(alert["spec"]), alert["alert"], time.time()
    silent = {row["key"]: row["until"] for row in store.execute(
        "SELECT key, until FROM silences WHERE alert = ? AND until > ?", (name, now))}  # fmt: skip
    always = {**told, "when": spec["when"], "for": spec["for"], "to": spec["to"],
              "untracked": alert["untracked"]}  # fmt: skip
    rows = store.execute(
        "SELECT * FROM standings WHERE alert = ? ORDER BY state = 'resolved', since DESC LIMIT ?",
        (name, SHOWN),
    ).fetchall()
    for row in rows:
        episode = episode_of(name, row["key"], row["begun"])
        until = max(filter(None, (silent.get(""), silent.get(row["key"]))), default=None)
        notified, problem = _notified(store, name, row["key"], episode)
        yield {
            **always, "key": json.loads(row["key"]), "state": row["state"],
            "since": moment_of(row["since"]), "row": json.loads(row["row"]), "episode": episode,
            "silenced_until": None if until is None else moment(until),
            "notified": notified, "problem": problem,
        }  # fmt: skip
    if not rows:
        quiet = silent.get("")
        yield {**always, "key": None, "state": "ok", "since": None, "row": None, "episode": None,
               "silenced_until": None if quiet is None else moment(quiet), "notified": None,
               "problem": None}  # fmt: skip


def _notified(
    store: sqlite3.Connection, alert: str, key: str, episode: str
) -> tuple[str | None, str | None]:
    """Whether everybody who is to be told of an episode has been, and if not why."""
    rows = store.execute(
        "SELECT o.outcome, p.problem FROM outbox o LEFT JOIN parcels p USING (parcel) "
        "WHERE o.alert = ? AND o.key = ? AND o.episode = ?", (alert, key, episode),
    ).fetchall()  # fmt: skip
    outcomes = {row["outcome"] or "waiting" for row in rows}
    problem = next((row["problem"] for row in rows if row["problem"]), None)
    for outcome in ("failed", "waiting", "silenced"):
        if outcome in outcomes:
            return outcome, problem
    return ("yes" if outcomes else None), problem
