"""The outbox: what waits to be told is packed into parcels, and each is sent until it is taken.

What is in a parcel is written down before it is first sent, so a parcel that is sent again after
a crash is the same one, under the same id.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec, MillstreamError
from millstream.sinks.alerts.rendering import mail_of_alerts, mail_of_rows, post_of
from millstream.sinks.alerts.smtp import Mail, PartlyDelivered, send
from millstream.sinks.webhook.post import Gone, Parcel, RetryLater, post

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from millstream.sinks.alerts.email import Email
    from millstream.sinks.alerts.store import NoticeStore
    from millstream.sinks.webhook.webhook import Webhook

MOST_SINGLE = 100
AT_ONCE = 20
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0
_GIVES_UP = 86_400.0
_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class Target:
    """Who is told: of an alert's episodes, or (`rows`) of the rows of an output."""

    to: Email | Webhook
    pipeline: str
    rows: bool = False


def target_names(alert: str, to: Sequence[Email | Webhook]) -> dict[str, float]:
    """The names of an alert's targets in the store, in order, each with the seconds for which
    it gathers what there is to tell."""
    return {
        f"{alert}\n{place}": (one.digest or 0) / 1e6 if one.kind == "Email" else 0.0
        for place, one in enumerate(to)
    }


class Outbox:
    """Sends what a store holds. `is_owner` says whether this process still owns sending,
    `is_closing` whether it is about to stop."""

    def __init__(
        self,
        store: NoticeStore,
        targets: dict[str, Target],
        is_owner: Callable[[], bool] = lambda: True,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._targets, self._is_owner, self._is_closing = (
            store,
            targets,
            is_owner,
            is_closing,
        )
        self._closed: set[str] = set()
        self.problems: dict[str, MillstreamError] = {}

    def send_due(self, *, everything: bool = False, deadline: float = float("inf")) -> int:
        """Pack what is due (or all of it) and try every parcel whose time has come; how many
        were sent. After the deadline (by the monotonic clock) none is begun."""
        if not self._store.rows("SELECT 1 FROM outbox WHERE outcome IS NULL LIMIT 1"):
            return 0
        now = time.time()
        with self._store.transaction():
            if not self._is_owner():
                return 0
            self._drop_what_silence_swallowed(now)
            for name, target in self._targets.items():
                if not target.rows:
                    self._store.bound(name)
                self._pack(name, target, now, everything=everything)
        sent = 0
        for name in list(self._targets):
            for parcel in self._due(name, now):
                if time.monotonic() > deadline or (self._is_closing() and not everything):
                    return sent
                if not self._try(parcel):
                    break
                sent += 1
        return sent

    def _due(self, name: str, now: float) -> list[sqlite3.Row]:
        """A target's next parcels, the oldest first: one that must wait lets none pass it."""
        found = self._store.rows(
            "SELECT * FROM parcels WHERE target = ? AND ended IS NULL ORDER BY parcel LIMIT ?",
            name, AT_ONCE,
        )  # fmt: skip
        return found if found and found[0]["again"] <= now else []

    def _drop_what_silence_swallowed(self, now: float) -> None:
        """An episode that began and ended in silence is never told."""
        if not self._store.rows("SELECT 1 FROM silences WHERE until > ? LIMIT 1", now):
            return
        self._store.run(
            "UPDATE outbox SET outcome = 'silenced' WHERE outcome IS NULL AND (target, episode) IN "
            "(SELECT target, episode FROM unpacked WHERE silent > ? GROUP BY target, episode "
            "HAVING count(*) = 2)", now,
        )  # fmt: skip

    def _pack(self, name: str, target: Target, now: float, *, everything: bool) -> None:
        due = self._store.rows("SELECT min(due) AS due FROM unpacked WHERE target = ? AND "
                               "silent <= ?", name, now)[0]["due"]  # fmt: skip
        if due is None or (due > now and not everything):
            return
        found = self._store.rows(
            "SELECT place, id FROM unpacked WHERE target = ? AND silent <= ? ORDER BY place",
            name, now,
        )  # fmt: skip
        alone = self._alone(name, target, now)
        groups = [[item] for item in found[:alone]]
        rest = found[alone:] if target.to.kind == "Email" else []
        if rest and (everything or not self._too_soon(name, target, now)):
            groups.append(rest)
        for group in groups:
            self._parcel(name, [item["place"] for item in group], group[0]["id"], now)

    def _alone(self, name: str, target: Target, now: float) -> int:
        """How many of those that wait go alone: posts (those that are sent next; the others stay
        unpacked, so that they can be given up), so many mails an hour, no digest."""
        if target.to.kind == "Webhook":
            return AT_ONCE - self._unsent(name)
        if target.to.digest is not None:
            return 0
        return max(0, MOST_SINGLE - self._made_since(name, now - _HOUR))

    def _too_soon(self, name: str, target: Target, now: float) -> bool:
        """Whether what is too much for single mails has to be gathered a little longer."""
        assert target.to.kind == "Email"
        return target.to.digest is None and self._made_since(name, now - _MINUTE) > 0 and (
            self._made_since(name, now - _HOUR) >= MOST_SINGLE
        )  # fmt: skip

    def _unsent(self, name: str) -> int:
        found = self._store.rows(
            "SELECT count(*) AS n FROM parcels WHERE target = ? AND ended IS NULL", name
        )
        return min(AT_ONCE, int(found[0]["n"]))

    def _made_since(self, name: str, at: float) -> int:
        found = self._store.rows(
            "SELECT count(*) AS n FROM parcels WHERE target = ? AND made > ?", name, at
        )
        return int(found[0]["n"])

    def _parcel(self, name: str, places: list[int], first: str, now: float) -> None:
        made = hashlib.sha256(f"{name}/{first}/{len(places)}".encode()).hexdigest()[:32]
        self._store.run("INSERT INTO parcels (id, target, made) VALUES (?, ?, ?)", made, name, now)
        number = self._store.rows("SELECT last_insert_rowid() AS n")[0]["n"]
        self._store.run_many(
            "UPDATE outbox SET parcel = ? WHERE place = ?", [(number, place) for place in places]
        )

    # -- one parcel -----------------------------------------------------------------

    def _try(self, parcel: sqlite3.Row) -> int:
        target = self._targets[parcel["target"]]
        items = self._store.rows(
            "SELECT id, body FROM outbox WHERE parcel = ? ORDER BY place", parcel["parcel"]
        )
        left = json.loads(parcel["left_over"]) if parcel["left_over"] else None
        if parcel["target"] in self._closed:
            self._end(parcel, "failed", f"{target.to!r} wanted nothing more (410)")
            return 0
        try:
            self._deliver(target, parcel["id"], items, left)
        except RetryLater as problem:
            self._later(parcel, target, problem)
        except Gone as problem:
            self._closed.add(parcel["target"])
            self._failed(parcel, target, problem)
        except InvalidSpec as problem:  # what is said wrongly, or a secret that is not set: here
            self.problems[parcel["target"]] = problem
            self._later(parcel, target, RetryLater(str(problem), _LONGEST_WAIT))
        except MillstreamError as problem:
            self._failed(parcel, target, problem)
        else:
            self.problems.pop(parcel["target"], None)
            self._end(parcel, "sent", None)
            return 1
        return 0

    def _deliver(
        self, target: Target, parcel: str, items: list[sqlite3.Row], left: list[str] | None
    ) -> None:
        bodies: list[dict[str, Any]] = [json.loads(item["body"]) for item in items]
        if target.to.kind == "Email":
            made = mail_of_rows if target.rows else mail_of_alerts
            subject, text = made(target.to, target.pipeline, bodies)
            send(target.to, Mail(parcel, subject, text), left)
            return
        for item, body in zip(items, bodies, strict=True):
            post(target.to, Parcel(f"msg_{item['id']}", post_of(target.pipeline, body)))

    def _later(self, parcel: sqlite3.Row, target: Target, problem: RetryLater) -> None:
        now, tries = time.time(), parcel["tries"] + 1
        if not target.rows and now - parcel["made"] > _GIVES_UP:
            self._end(parcel, "failed", f"given up after a day: {problem}")
            return
        wait = min(_FIRST_WAIT * 2 ** (tries - 1), _LONGEST_WAIT) * random.uniform(0.5, 1.0)
        left = json.dumps(problem.left) if isinstance(problem, PartlyDelivered) else None
        self._store.run(
            "UPDATE parcels SET tries = ?, again = ?, problem = ?, "
            "left_over = coalesce(?, left_over) WHERE parcel = ?",
            tries, now + (wait if problem.wait is None else problem.wait), str(problem), left,
            parcel["parcel"],
        )  # fmt: skip

    def _failed(self, parcel: sqlite3.Row, target: Target, problem: MillstreamError) -> None:
        """An alert's parcel is given up, and that is shown; rows wait until somebody mends it."""
        self.problems[parcel["target"]] = problem
        if target.rows:
            self._store.run(
                "UPDATE parcels SET tries = tries + 1, again = ?, problem = ? WHERE parcel = ?",
                time.time() + _LONGEST_WAIT, str(problem), parcel["parcel"],
            )  # fmt: skip
            return
        self._end(parcel, "failed", str(problem))

    def _end(self, parcel: sqlite3.Row, outcome: str, problem: str | None) -> None:
        with self._store.transaction():
            self._store.run("UPDATE parcels SET ended = ?, problem = ?, tries = tries + 1 "
                            "WHERE parcel = ?", time.time(), problem, parcel["parcel"])  # fmt: skip
            self._store.run("UPDATE outbox SET outcome = ? WHERE parcel = ?", outcome,
                            parcel["parcel"])  # fmt: skip
            self._store.trim_sent()
