"""The content of mails and posts: what happened, to which key, since when, and the row."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.sinks.alerts.email import Email

MOST_LISTED = 200
LARGEST_ROW, LARGEST_KEY = 16_384, 2_048
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"\{([^{}]*)\}")
Body = dict[str, Any]


def moment(micros: int) -> str:
    """Return a time in microseconds as ISO text."""
    try:
        at = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return str(micros)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shortened(row: str, most: int = LARGEST_ROW) -> str:
    """Return a row as JSON with long texts shortened.

    A shortened text ends with its length and a hash, so different texts stay different.

    >>> shortened('{"page": "/"}')
    '{"page": "/"}'
    >>> shortened('{"page": "' + "x" * 100 + '"}', 90)
    '{"page": "xxxxxxxxxx… (100 characters, 09ecb6eb)"}'
    """
    if len(row) <= most:
        return row
    share = most // 9
    return json.dumps({name: _cut(value, share) for name, value in json.loads(row).items()},
                      ensure_ascii=False)  # fmt: skip


def _cut(value: Any, share: int) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= share:
        return value
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[:share]}… ({len(text):,} characters, {mark})"


def post_body(pipeline: str, body: Body) -> bytes:
    """Return a transition as the body of a post, by Standard Webhooks."""
    data = {**body, "job": pipeline, "since": moment(body["since"])}
    at = moment(data.pop("at"))
    return json.dumps({"type": f"alert.{body['state']}", "timestamp": at, "data": data},
                      ensure_ascii=False, separators=(",", ":")).encode()  # fmt: skip


def mail_of_alerts(email: Email, pipeline: str, bodies: list[Body]) -> tuple[str, str]:
    """Return subject and text of one mail about some transitions."""
    first = bodies[0]
    if len(bodies) == 1:
        subject = f"[{first['state']}] {pipeline}: {first['alert']}{_of(first['key'])}"
    else:
        counts = [(state, sum(body["state"] == state for body in bodies))
                  for state in ("firing", "resolved")]  # fmt: skip
        shown = ", ".join(f"{count} {state}" for state, count in counts if count)
        subject = f"[{shown}] {pipeline}: {first['alert']}"
    if email.subject is not None:
        subject = f"[{first['state']}] {filled(email.subject, {**first['key'], **first['row']})}"
    lines = [_episode(body) for body in bodies[:MOST_LISTED]]
    return subject, "\n\n".join([*lines, *_more(len(bodies), "episode")]) + "\n"


def mail_of_rows(email: Email, pipeline: str, bodies: list[Body]) -> tuple[str, str]:
    """Return subject and text of one mail with some rows."""
    first, others = bodies[0], len(bodies) - 1
    if email.subject is None:
        subject = f"{pipeline}: {len(bodies):,} row{'s' if others else ''} of {email.name}"
    else:
        subject = filled(email.subject, first) + (f" (and {others:,} more)" if others else "")
    texts = [filled(email.body, row) if email.body is not None else _columns(row)
             for row in bodies[:MOST_LISTED]]  # fmt: skip
    return subject, "\n\n".join([*texts, *_more(len(bodies), "row")]) + "\n"


def filled(text: str, row: dict[str, Any]) -> str:
    """Replace each `{column}` in a text by the row's value.

    >>> filled("{page} fails: {n} times", {"page": "/", "n": 3})
    '/ fails: 3 times'
    """
    return _PLACE.sub(lambda found: _plain(row.get(found[1])), text)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def _more(count: int, noun: str) -> list[str]:
    left = count - MOST_LISTED
    return [f"… and {left:,} more {noun}{'s' if left > 1 else ''}"] if left > 0 else []


def _of(key: Body) -> str:
    return f" ({', '.join(_value(value) for value in key.values())})" if key else ""


def _episode(body: Body) -> str:
    at, since = moment(body["at"]), moment(body["since"])
    when = f"since {since}" if body["state"] == "firing" else f"at {at}, after it began at {since}"
    head = f"{body['alert']}{_of(body['key'])} is {body['state']}, {when}"
    row = _columns(body["row"], "  ")
    return f"{head}\n{row}\n  episode: {body['episode']}" if row else head


def _columns(row: Body, before: str = "") -> str:
    return "\n".join(f"{before}{name}: {_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2000 else text[:2000] + "…"
