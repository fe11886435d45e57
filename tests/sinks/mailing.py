"""A mail server on this machine (aiosmtpd) that keeps the mails it gets."""

from __future__ import annotations

import ssl
from collections import deque
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any, Self

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import EmailMessage


@dataclass
class MailServer:
    """Accepts mails; answers each `DATA` with the next of `answers` first, and each recipient with
    the next answer in `refused`."""

    scheme: str = "smtp"
    login: bool = False
    mails: list[EmailMessage] = field(default_factory=list)
    people: list[list[str]] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)
    refused: dict[str, deque[str]] = field(default_factory=dict)
    authority: trustme.CA = field(default_factory=trustme.CA)
    on_data: Callable[[], object] | None = None
    user: str = "ops"
    password: str = "canary"

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if self.refused.get(address):
            return self.refused[address].popleft()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        made = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append(made)
        self.people.append(list(envelope.rcpt_tos))
        if self.on_data is not None:
            self.on_data()
        return self.answers.popleft() if self.answers else "250 taken"

    @property
    def url(self) -> str:
        user = f"{self.user}:{self.password}@" if self.login else ""
        return f"{self.scheme}://{user}localhost:{self._controller.port}"

    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mails]

    def __enter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("localhost").configure_cert(context)
        options: dict[str, Any] = {"hostname": "localhost", "port": 0}
        if self.scheme == "smtps":
            options["ssl_context"] = context
        self._controller = _Controller(self, context, **options)
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


class _Controller(Controller):
    def __init__(self, server: MailServer, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(server, **options)
        self._mails, self._context = server, context

    def factory(self) -> SMTP:
        starttls = self._mails.scheme == "smtp+starttls"
        return SMTP(
            self._mails,
            tls_context=self._context if starttls else None,
            require_starttls=starttls,
            auth_required=self._mails.login,
            auth_require_tls=starttls,
            authenticator=self._authenticate if self._mails.login else None,
        )

    def _authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, login: Any
    ) -> AuthResult:
        wanted = (self._mails.user.encode(), self._mails.password.encode())
        right = isinstance(login, LoginPassword) and (login.login, login.password) == wanted
        return AuthResult(success=right, handled=False)

    def _trigger_server(self) -> None:
        """The chosen port is known only now; the base class connects to it once."""
        self.port = self.server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        super()._trigger_server()  # type: ignore[no-untyped-call]
