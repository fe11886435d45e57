"""The current alerts of all jobs, their notifications, and silencing them.

Alerts on a pipeline's rows are stored with its job, alerts on the jobs themselves with the stack.
Both can be read and silenced whether or not the job runs.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, InvalidInput, NotFound
from millstream.jobs.database import open_read_only
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.overview import iso_time
from millstream.sinks.alerts.rendering import moment as iso_micros
from millstream.sinks.alerts.store import NotificationStore, episode_of, store_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.jobs.folders import StackFolder
    from millstream.jobs.registry import JobRow

LONGEST_SILENCE = 30 * 86_400.0
SHOWN = 1000
_ORDER = {"firing": 0, "pending": 1, "resolved": 2, "ok": 3}


def job_alerts_file(stack: StackFolder) -> Path:
    """Return the store of alerts on jobs themselves; each is named `<job>:<alert>` there."""
    return stack.path / "alerts.db"


def alerts(
    stack: StackFolder, job: str | None = None, alert: str | None = None
) -> list[dict[str, Any]]:
    """Return the alerts of every job (or of one) with the state of each key, the worst first.

    Each has `job`, `alert`, `on` (`rows` or `job`), `when`, `key` (None if no key is active),
    `state` (`firing`, `pending`, `resolved`, `ok`), `since`, `row` (the last that raised it),
    `episode`, `silenced_until`, `notified` (`yes`, `waiting`, `silenced`, `failed`; None without
    recipients), `problem` (why a notification failed), `to`, and `untracked` (how many active
    keys are beyond the limit and not tracked).

    Raises:
        NotFound: no such job.
    """
    with JobRegistry(stack.registry, read_only=True) as registry:
        jobs = registry.all() if job is None else [registry.job(job)]
    found = [row for one in jobs for row in _of_job(stack, one)]
    found = [row for row in found if alert in (None, row["alert"])]
    return sorted(found, key=lambda row: (_ORDER[row["state"]], row["job"], row["alert"],
                                          json.dumps(row["key"], sort_keys=True)))  # fmt: skip


def notifications(stack: StackFolder, job: str, alert: str, last: int = 50) -> list[dict[str, Any]]:
    """Return the last notifications of an alert with their outcome, newest first.

    Raises:
        NotFound: no such job or alert.
    """
    file, name = _find_store(stack, job, alert)
    with closing(_open_existing(file)) as store:
        rows = store.execute(
            "SELECT o.*, p.tries, p.problem, p.ended FROM outbox o LEFT JOIN parcels p "
            "USING (parcel) WHERE o.alert = ? ORDER BY o.place DESC LIMIT ?", (name, last),
        ).fetchall()  # fmt: skip
    return [
        {"at": iso_time(row["made"]), "state": row["kind"], "key": json.loads(row["key"]),
         "episode": row["episode"], "outcome": row["outcome"] or "waiting",
         "tries": row["tries"] or 0, "problem": row["problem"],
         "sent_at": None if row["outcome"] != "sent" else iso_time(row["ended"])}
        for row in rows
    ]  # fmt: skip


def silence(
    stack: StackFolder, job: str, alert: str, *, seconds: float,
    key: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Send no notifications of an alert, or of one of its keys, for `seconds`.

    The alert is still tracked; if it still fires at the end of the silence, it is sent then.

    Raises:
        NotFound: no such job or alert.
        InvalidInput: the length is not between a second and 30 days.
    """
    if not isinstance(seconds, int | float) or not 1 <= seconds <= LONGEST_SILENCE:
        raise InvalidInput("a silence needs a length from 1 second to 30 days", got=repr(seconds))
    file, name = _find_store(stack, job, alert)
    until = time.time() + seconds
    with closing(NotificationStore(file)) as store:
        store.silence(name, _key_text(file, name, key), until)
    return {"job": job, "alert": alert, "key": key, "silenced_until": iso_time(until)}


def unsilence(
    stack: StackFolder, job: str, alert: str, *, key: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """End a silence.

    Raises:
        NotFound: no such job or alert, or it was not silenced.
    """
    file, name = _find_store(stack, job, alert)
    with closing(NotificationStore(file)) as store:
        if not store.unsilence(name, _key_text(file, name, key)):
            raise NotFound(f"the alert {alert!r} must be silenced to end its silence", got="none",
                           do="see `millstream alerts list`")  # fmt: skip
    return {"job": job, "alert": alert, "key": key, "silenced_until": None}


def _key_text(file: Path, alert: str, key: Mapping[str, Any] | None) -> str:
    """Return the stored form of an active key; its values may be given as text."""
    if key is None:
        return ""
    with closing(_open_existing(file)) as store:
        rows = store.execute("SELECT key FROM standings WHERE alert = ?", (alert,)).fetchall()
    for row in rows:
        known = json.loads(row["key"])
        if known == dict(key) or {n: str(v) for n, v in known.items()} == dict(key):
            return str(row["key"])
    raise NotFound(f"the alert {alert!r} needs one of its active keys",
                   got=json.dumps(dict(key), default=str),
                   do="see `millstream alerts list`")  # fmt: skip


def _stores(stack: StackFolder, job: JobRow) -> Iterator[tuple[Path, str, str]]:
    """Yield the stores of a job's alerts: file, prefix of their names, what they are on."""
    checkpoint = Path(job.checkpoint)
    if (checkpoint / "job").exists():
        from millstream.engine.inspection.inspect import open_checkpoint

        yield store_file(open_checkpoint(checkpoint).job, stack.path.parent), "", "rows"
    yield job_alerts_file(stack), f"{job.name}:", "job"


def _find_store(stack: StackFolder, job: str, alert: str) -> tuple[Path, str]:
    with JobRegistry(stack.registry, read_only=True) as registry:
        row = registry.job(job)
    known = []
    for file, before, _ in _stores(stack, row):
        store = _open_store(file)
        if store is None:
            continue
        with closing(store):
            names = [one["alert"] for one in store.execute("SELECT alert FROM alerts")]
        if before + alert in names:
            return file, before + alert
        known += [name.removeprefix(before) for name in names if name.startswith(before)]
    raise NotFound(f"the job {job} has no alert {alert!r}",
                   do=f"its alerts are {', '.join(known)}" if known else "it has none")  # fmt: skip


def _open_existing(file: Path) -> sqlite3.Connection:
    store = _open_store(file)
    assert store is not None
    return store


def _open_store(file: Path) -> sqlite3.Connection | None:
    """Open a store for reading; return None if it does not exist yet."""
    try:
        return open_read_only(file)
    except sqlite3.DatabaseError as error:
        raise Damaged(
            f"{file} must be a database of alerts", got=str(error),
            do="move it away; the next batch writes a new one",
        ) from error  # fmt: skip


def _of_job(stack: StackFolder, job: JobRow) -> Iterator[dict[str, Any]]:
    for file, before, on in _stores(stack, job):
        store = _open_store(file)
        if store is None:
            continue
        with closing(store):
            store.execute("BEGIN")
            for row in store.execute("SELECT * FROM alerts ORDER BY alert").fetchall():
                if row["alert"].startswith(before):
                    about = {"job": job.name, "alert": row["alert"].removeprefix(before), "on": on}
                    yield from _keys_of(store, row, about)


def _keys_of(
    store: sqlite3.Connection, alert: sqlite3.Row, about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    spec, name, now = json.loads(alert["spec"]), alert["alert"], time.time()
    silent = {row["key"]: row["until"] for row in store.execute(
        "SELECT key, until FROM silences WHERE alert = ? AND until > ?", (name, now))}  # fmt: skip
    always = {**about, "when": spec["when"], "for": spec["for"], "to": spec["to"],
              "untracked": alert["untracked"]}  # fmt: skip
    rows = store.execute(
        "SELECT * FROM standings WHERE alert = ? ORDER BY state = 'resolved', since DESC LIMIT ?",
        (name, SHOWN),
    ).fetchall()
    for row in rows:
        episode = episode_of(name, row["key"], row["begun"])
        until = max(filter(None, (silent.get(""), silent.get(row["key"]))), default=None)
        notified, problem = _notification_state(store, name, row["key"], episode)
        yield {
            **always, "key": json.loads(row["key"]), "state": row["state"],
            "since": iso_micros(row["since"]), "row": json.loads(row["row"]), "episode": episode,
            "silenced_until": None if until is None else iso_time(until),
            "notified": notified, "problem": problem,
        }  # fmt: skip
    if not rows:
        quiet = silent.get("")
        yield {**always, "key": None, "state": "ok", "since": None, "row": None, "episode": None,
               "silenced_until": None if quiet is None else iso_time(quiet), "notified": None,
               "problem": None}  # fmt: skip


def _notification_state(
    store: sqlite3.Connection, alert: str, key: str, episode: str
) -> tuple[str | None, str | None]:
    """Return the state of an episode's notifications, and why one failed."""
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
