"""Sending one signed post, bounded in time and size, to an address that is checked again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from millstream.errors import InvalidSpec, MillstreamError
from millstream.kafka import secrets
from millstream.sinks.webhook.addresses import checked_address, is_public, signing_key
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from millstream.sinks.webhook.webhook import Webhook

MOST_BYTES = 1 << 20
LONGEST_WAIT = 3600.0
_ANSWER_BYTES = 1 << 14
_PATH = "/%:@!$&'()*+,;=~-._?"
_LATER = frozenset({408, 409, 425, 429})


class RetryLater(Exception):
    """The request may succeed later; `wait` is the receiver's `Retry-After` in seconds."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class Gone(InvalidSpec):
    """The receiver accepts no further posts: 410."""


@dataclass(frozen=True)
class Message:
    """A message by Standard Webhooks; its id stays the same over all attempts."""

    id: str
    body: bytes


def signature(key: bytes, message: Message, timestamp: int) -> str:
    """Return `v1,…` by Standard Webhooks: HMAC-SHA256 over id, timestamp and body.

    >>> signature(b"k" * 24, Message("msg_1", b"{}"), 1)
    'v1,Vmlv3+JA6+uwIIAIu7e/H4EIIl5fJFzZp8cyLkfxmYs='
    """
    signed = f"{message.id}.{timestamp}.".encode() + message.body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def post(hook: Webhook, message: Message) -> None:
    """Send a message once.

    Raises:
        RetryLater: the receiver did not accept it now.
        Gone: the receiver accepts no further posts.
        MillstreamError: the receiver will never accept it.
    """
    url = secrets.resolve(hook.url, setting=f"Webhook {hook.name}")
    checked_address(url, allow_private=hook.allow_private)
    headers = _headers(hook, message)
    try:
        status, wait = bounded(lambda: _exchange(hook, url, headers, message.body), hook.timeout)
    except UnicodeError as error:
        raise InvalidSpec(f"Webhook {hook.name} needs a host name that can be resolved",
                          got=hook.shown) from error  # fmt: skip
    except (OSError, http.client.HTTPException) as error:
        raise RetryLater(f"no answer from {hook.shown} ({_reason(error)})") from error
    _check_status(hook, status, wait)


def _headers(hook: Webhook, message: Message) -> dict[str, str]:
    now = int(time.time())
    keys = []
    for reference in hook.secret:
        key = signing_key(secrets.resolve(reference, setting=f"the secret of {hook.name}"))
        if key is None:
            raise InvalidSpec(f"the secret of Webhook {hook.name} needs 24 to 64 bytes, as whsec_ "
                              "and base64", got="something else")  # fmt: skip
        keys.append(key)
    given = {
        name: secrets.resolve(value, setting=f"the header {name} of {hook.name}")
        for name, value in hook.headers
    }
    if any("\n" in value or "\r" in value for value in given.values()):
        raise InvalidSpec(f"a header of Webhook {hook.name} needs text on one line",
                          got="a line break in the value of its reference")  # fmt: skip
    signed = " ".join(signature(key, message, now) for key in keys)
    return {
        "Content-Type": "application/json",
        "User-Agent": "millstream",
        **given,
        "webhook-id": message.id,
        "webhook-timestamp": str(now),
        **({"webhook-signature": signed} if signed else {}),
    }


def _exchange(
    hook: Webhook, url: str, headers: dict[str, str], body: bytes
) -> tuple[int, str | None]:
    parts = urlsplit(url)
    connection = _Pinned(parts.hostname or "", parts.port, tls=parts.scheme == "https",
                         private=hook.allow_private, timeout=hook.timeout)  # fmt: skip
    path = quote(parts.path or "/", safe=_PATH) + (
        f"?{quote(parts.query, safe=_PATH)}" if parts.query else ""
    )
    try:
        connection.request("POST", path, body=body, headers=headers)
        answer = connection.getresponse()
        answer.read(_ANSWER_BYTES)
        return answer.status, answer.getheader("Retry-After")
    finally:
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """A connection to the IP address that was checked: a second lookup could return another."""

    def __init__(
        self, host: str, port: int | None, *, tls: bool, private: bool, timeout: float
    ) -> None:
        super().__init__(host, port or (443 if tls else 80), timeout=timeout)
        self._tls, self._private = tls, private

    def connect(self) -> None:
        """Connect to the first permitted address of the host that answers."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [address for *_, address in found]
        if not self._private:
            addresses = [address for address in addresses if is_public(str(address[0]))]
        if not addresses:
            raise InvalidSpec(
                f"Webhook needs a public address behind {self.host}",
                got="one on this machine or a private network",
                do="write allow_private=True if that is intended",
            )
        self.sock = self._connect_first(addresses)
        if self._tls:
            trusted = _trusted(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))
            self.sock = trusted.wrap_socket(self.sock, server_hostname=self.host)

    def _connect_first(self, addresses: list[Any]) -> socket.socket:
        problem: OSError | None = None
        for address in addresses:
            try:
                return socket.create_connection(address[:2], timeout=self.timeout)
            except OSError as error:
                problem = error
        assert problem is not None
        raise problem


@cache
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return the TLS context of this machine, cached per certificate settings."""
    return ssl.create_default_context()


def _check_status(hook: Webhook, status: int, wait: str | None) -> None:
    if 200 <= status < 300:
        return
    if status == 410:
        raise Gone(
            f"{hook.shown} must accept posts", got="410 Gone",
            do="remove the webhook from the pipeline or fix the receiver, then restart the job",
        )  # fmt: skip
    if status in _LATER or status >= 500:
        raise RetryLater(f"{hook.shown} answered {status}", _seconds(wait))
    if 300 <= status < 400:
        raise InvalidSpec(f"{hook.shown} must accept posts itself", got=f"a redirect ({status})",
                          do="name the address it redirects to")  # fmt: skip
    raise MillstreamError(
        f"{hook.shown} must accept posts", got=f"the status {status}",
        do="find the reason at the receiver, then restart the job; it continues here",
    )  # fmt: skip


def _seconds(wait: str | None) -> float | None:
    """Parse `Retry-After`, seconds or a date: at most an hour, None if absent or invalid."""
    if wait is None:
        return None
    try:
        seconds = float(wait) if wait.strip().isdecimal() else (
            parsedate_to_datetime(wait).timestamp() - time.time()
        )  # fmt: skip
    except ValueError:
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(error) or type(error).__name__
