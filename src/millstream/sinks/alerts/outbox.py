"""The outbox: groups notifications into deliveries, and sends each until it is accepted.

The content of a delivery is stored before it is first sent, so a delivery that is repeated after
a crash is the same, under the same id.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec, MillstreamError
from millstream.sinks.alerts.rendering import mail_of_alerts, mail_of_rows, post_body
from millstream.sinks.alerts.smtp import Mail, PartlyDelivered, send
from millstream.sinks.webhook.post import Gone, Message, RetryLater, post

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from millstream.sinks.alerts.email import Email
    from millstream.sinks.alerts.store import NotificationStore
    from millstream.sinks.webhook.webhook import Webhook

MOST_SINGLE = 100
AT_ONCE = 20
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0
_GIVES_UP = 86_400.0
_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class Recipient:
    """Where notifications go: those of an alert, or (`rows`) the rows of an output."""

    to: Email | Webhook
    pipeline: str
    rows: bool = False


def digest_seconds(alert: str, to: Sequence[Email | Webhook]) -> dict[str, float]:
    """Return the digest length of an alert's recipients, in order, by their names in the store."""
    return {
        f"{alert}\n{index}": (one.digest or 0) / 1e6 if one.kind == "Email" else 0.0
        for index, one in enumerate(to)
    }


class Outbox:
    """Sends what a store holds, while this process owns the store (`is_owner`) and until it is
    about to stop (`is_closing`)."""

    def __init__(
        self,
        store: NotificationStore,
        recipients: dict[str, Recipient],
        is_owner: Callable[[], bool] = lambda: True,
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._recipients = store, recipients
        self._is_owner, self._is_closing = is_owner, is_closing
        self._closed: set[str] = set()
        self.problems: dict[str, MillstreamError] = {}

    def send_due(self, *, everything: bool = False, deadline: float = float("inf")) -> int:
        """Group what is due (or everything) and try every delivery that is due.

        Returns how many were sent. No delivery starts after the deadline (monotonic clock).
        """
        if not self._store.rows("SELECT 1 FROM outbox WHERE outcome IS NULL LIMIT 1"):
            return 0
        now = time.time()
        with self._store.transaction():
            if not self._is_owner():
                return 0
            self._drop_silenced(now)
            for name, recipient in self._recipients.items():
                if not recipient.rows:
                    self._store.drop_excess(name)
                self._group(name, recipient, now, everything=everything)
        sent = 0
        for name in list(self._recipients):
            for delivery in self._due(name, now):
                if time.monotonic() > deadline or (self._is_closing() and not everything):
                    return sent
                if not self._try(delivery):
                    break
                sent += 1
        return sent

    def _due(self, name: str, now: float) -> list[sqlite3.Row]:
        """Return a recipient's next deliveries in order; a delayed one also delays later ones."""
        found = self._store.rows(
            "SELECT * FROM parcels WHERE target = ? AND ended IS NULL ORDER BY parcel LIMIT ?",
            name, AT_ONCE,
        )  # fmt: skip
        return found if found and found[0]["again"] <= now else []

    def _drop_silenced(self, now: float) -> None:
        """Drop the notifications of episodes that began and ended while silenced."""
        if not self._store.rows("SELECT 1 FROM silences WHERE until > ? LIMIT 1", now):
            return
        self._store.run(
            "UPDATE outbox SET outcome = 'silenced' WHERE outcome IS NULL AND (target, episode) IN "
            "(SELECT target, episode FROM unpacked WHERE silent > ? GROUP BY target, episode "
            "HAVING count(*) = 2)", now,
        )  # fmt: skip

    def _group(self, name: str, recipient: Recipient, now: float, *, everything: bool) -> None:
        due = self._store.rows("SELECT min(due) AS due FROM unpacked WHERE target = ? AND "
                               "silent <= ?", name, now)[0]["due"]  # fmt: skip
        if due is None or (due > now and not everything):
            return
        found = self._store.rows(
            "SELECT place, id FROM unpacked WHERE target = ? AND silent <= ? ORDER BY place",
            name, now,
        )  # fmt: skip
        singles = self._single_count(name, recipient, now)
        groups = [[item] for item in found[:singles]]
        rest = found[singles:] if recipient.to.kind == "Email" else []
        if rest and (everything or not self._is_too_soon(name, recipient, now)):
            groups.append(rest)
        for group in groups:
            self._create_delivery(name, [item["place"] for item in group], group[0]["id"], now)

    def _single_count(self, name: str, recipient: Recipient, now: float) -> int:
        """Return how many notifications get a delivery each: the next posts (later ones stay
        ungrouped, so that they can be dropped), or mails without a digest up to an hourly limit."""
        if recipient.to.kind == "Webhook":
            return AT_ONCE - self._unsent(name)
        if recipient.to.digest is not None:
            return 0
        return max(0, MOST_SINGLE - self._made_since(name, now - _HOUR))

    def _is_too_soon(self, name: str, recipient: Recipient, now: float) -> bool:
        """Whether mails beyond the hourly limit must be collected longer."""
        assert recipient.to.kind == "Email"
        return recipient.to.digest is None and self._made_since(name, now - _MINUTE) > 0 and (
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

    def _create_delivery(self, name: str, places: list[int], first: str, now: float) -> None:
        delivery = hashlib.sha256(f"{name}/{first}/{len(places)}".encode()).hexdigest()[:32]
        self._store.run(
            "INSERT INTO parcels (id, target, made) VALUES (?, ?, ?)", delivery, name, now
        )
        number = self._store.rows("SELECT last_insert_rowid() AS n")[0]["n"]
        self._store.run_many(
            "UPDATE outbox SET parcel = ? WHERE place = ?", [(number, place) for place in places]
        )

    # -- one delivery ---------------------------------------------------------------

    def _try(self, delivery: sqlite3.Row) -> bool:
        """Send a delivery once; return whether it was accepted."""
        name = delivery["target"]
        recipient = self._recipients[name]
        if name in self._closed:
            self._end(delivery, "failed", f"{recipient.to!r} is gone (410)")
            return False
        try:
            self._send(delivery, recipient)
        except RetryLater as problem:
            self._retry_later(delivery, recipient, problem)
        except Gone as problem:
            self._closed.add(name)
            self._fail(delivery, recipient, problem)
        except InvalidSpec as problem:  # a wrong setting here, or a secret that is not set
            self.problems[name] = problem
            self._retry_later(delivery, recipient, RetryLater(str(problem), _LONGEST_WAIT))
        except MillstreamError as problem:
            self._fail(delivery, recipient, problem)
        else:
            self.problems.pop(name, None)
            self._end(delivery, "sent", None)
            return True
        return False

    def _send(self, delivery: sqlite3.Row, recipient: Recipient) -> None:
        items = self._store.rows(
            "SELECT id, body FROM outbox WHERE parcel = ? ORDER BY place", delivery["parcel"]
        )
        bodies: list[dict[str, Any]] = [json.loads(item["body"]) for item in items]
        if recipient.to.kind == "Email":
            render = mail_of_rows if recipient.rows else mail_of_alerts
            subject, text = render(recipient.to, recipient.pipeline, bodies)
            left = json.loads(delivery["left_over"]) if delivery["left_over"] else None
            send(recipient.to, Mail(delivery["id"], subject, text), left)
            return
        for item, body in zip(items, bodies, strict=True):
            post(recipient.to, Message(f"msg_{item['id']}", post_body(recipient.pipeline, body)))

    def _retry_later(
        self, delivery: sqlite3.Row, recipient: Recipient, problem: RetryLater
    ) -> None:
        now, tries = time.time(), delivery["tries"] + 1
        if not recipient.rows and now - delivery["made"] > _GIVES_UP:
            self._end(delivery, "failed", f"given up after a day: {problem}")
            return
        wait = min(_FIRST_WAIT * 2 ** (tries - 1), _LONGEST_WAIT) * random.uniform(0.5, 1.0)
        left = json.dumps(problem.left) if isinstance(problem, PartlyDelivered) else None
        self._store.run(
            "UPDATE parcels SET tries = ?, again = ?, problem = ?, "
            "left_over = coalesce(?, left_over) WHERE parcel = ?",
            tries, now + (wait if problem.wait is None else problem.wait), str(problem), left,
            delivery["parcel"],
        )  # fmt: skip

    def _fail(self, delivery: sqlite3.Row, recipient: Recipient, problem: MillstreamError) -> None:
        """End an alert's delivery as failed; rows of an output wait until the cause is fixed."""
        self.problems[delivery["target"]] = problem
        if recipient.rows:
            self._store.run(
                "UPDATE parcels SET tries = tries + 1, again = ?, problem = ? WHERE parcel = ?",
                time.time() + _LONGEST_WAIT, str(problem), delivery["parcel"],
            )  # fmt: skip
            return
        self._end(delivery, "failed", str(problem))

    def _end(self, delivery: sqlite3.Row, outcome: str, problem: str | None) -> None:
        with self._store.transaction():
            number = delivery["parcel"]
            self._store.run("UPDATE parcels SET ended = ?, problem = ?, tries = tries + 1 "
                            "WHERE parcel = ?", time.time(), problem, number)  # fmt: skip
            self._store.run("UPDATE outbox SET outcome = ? WHERE parcel = ?", outcome, number)
            self._store.trim_sent()
