"""`Email`: rows sent by mail, collected into digests, at least once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidSpec
from millstream.kafka import secrets
from millstream.sinks.alerts.server import DEFAULT, REFERENCE, SERVER, checked_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Opening, Writer

SYSTEM = "notices"  # as checkpoints have it
MOST_RECIPIENTS = 50
_WORD = r"[^\s@<>,;:\"\\()\[\]\x00-\x1f\x7f]"
_ADDRESS = re.compile(rf"(?!.*=\?){_WORD}{{1,64}}@{_WORD}{{1,255}}\Z")
_PLACE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, init=False)
class Email:
    """Rows by mail: one mail for the rows of a `digest`, or with `digest=None` one for each.

    In `subject` and `body`, `{column}` is replaced by the row's value; without `body` all columns
    are listed. `url` names the server: `smtp+starttls://user@host:587`, `smtps://user@host:465`,
    or `smtp://localhost:25` (unencrypted only on this machine, unless `allow_plain`); the default
    is `MILLSTREAM_SMTP`. The password is a reference in it (`user:${env:SMTP_PASSWORD}@`), or
    `MILLSTREAM_SMTP_PASSWORD`. Rows wait in the job's store until they are sent, and every retry
    of a mail has the same `Message-ID`.

    >>> Email("ops@example.com", url="smtps://me:secret@mail.example")
    Email('ops@example.com', url='smtps://me:***@mail.example')
    """

    to: tuple[str, ...]
    subject: str | None
    body: str | None = field(repr=False)
    url: str | None = field(repr=False)
    sender: str | None
    digest: int | None
    allow_plain: bool
    name: str
    kind: ClassVar[Literal["Email"]] = "Email"
    accepts_retractions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True

    def __init__(
        self,
        to: str | Sequence[str],
        subject: str | None = None,
        body: str | None = None,
        *,
        url: str | None = None,
        sender: str | None = None,
        digest: Duration | None = "1 minute",
        allow_plain: bool = False,
        name: str | None = None,
    ) -> None:
        people = (to,) if isinstance(to, str) else tuple(to)
        if not 1 <= len(people) <= MOST_RECIPIENTS:
            raise InvalidSpec(f"Email(to=…) needs 1 to {MOST_RECIPIENTS} addresses",
                              got=f"{len(people)}",
                              do='write Email("ops@example.com")')  # fmt: skip
        for address in (*people, *([] if sender is None else [sender])):
            if not isinstance(address, str) or not _ADDRESS.match(address):
                raise InvalidSpec("Email needs addresses such as ops@example.com",
                                  got=repr(address))  # fmt: skip
        for part, text in (("subject", subject), ("body", body)):
            _check_text(part, text)
        if url is not None:
            checked_server(url, allow_plain=allow_plain)
        length = None if digest is None else positive_micros(digest, what="Email(digest=…)")
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise InvalidSpec("Email(name=…) needs a name", got=repr(name), do="leave it out")
        for part, value in (("to", people), ("subject", subject), ("body", body), ("url", url),
                            ("sender", sender), ("digest", length), ("allow_plain", allow_plain),
                            ("name", name or "email")):  # fmt: skip
            object.__setattr__(self, part, value)

    def __repr__(self) -> str:
        return f"Email({', '.join(self.to)!r}, url={self.shown!r})"

    @property
    def shown(self) -> str:
        """The server without its password; references stay as written."""
        found = SERVER.match(self.url or DEFAULT)
        if found is None or found["user"] is None:
            return self.url or DEFAULT
        password = self._password
        hidden = "" if password is None else ":" + secrets.masked("password", password)
        return f"{found['scheme']}://{found['user']}{hidden}@{found['place']}"

    @property
    def _password(self) -> str | None:
        """The password in the address, unresolved."""
        found = SERVER.match(self.url or DEFAULT)
        return None if found is None else found["password"]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its texts name."""
        named = [name for text in (self.subject, self.body) for name in _PLACE.findall(text or "")]
        return tuple(dict.fromkeys(named))

    @property
    def system(self) -> str:
        """All alerts and mails of a job share one store, for all recipients."""
        return SYSTEM

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the supervisor, with references unresolved."""
        return {"kind": self.kind, "to": list(self.to), "subject": self.subject, "url": self.url,
                "sender": self.sender, "allow_plain": self.allow_plain,
                "digest": self.digest, "name": self.name}  # fmt: skip

    def literal_secret(self) -> str | None:
        """Return the part that holds a literal secret instead of a reference, if any."""
        password = self._password
        return "url" if password and not REFERENCE.fullmatch(password) else None

    def writer(self, opening: Opening) -> Writer:
        """Return the writer of the job's alerts and mails."""
        from millstream.sinks.alerts.writer import NotificationWriter

        return NotificationWriter(opening)


def _check_text(part: str, text: object) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not text.strip() or len(text) > 10_000:
        raise InvalidSpec(f"Email({part}=…) needs text of at most 10,000 characters",
                          got=repr(text)[:60])  # fmt: skip
    if part == "subject" and re.search(r"[\r\n]", text):
        raise InvalidSpec("Email(subject=…) needs text on one line", got="a line break")
    if any(not name.strip() for name in _PLACE.findall(text)):
        raise InvalidSpec(f"Email({part}=…) needs names of columns in its braces", got="{}",
                          do="write {page}")  # fmt: skip
