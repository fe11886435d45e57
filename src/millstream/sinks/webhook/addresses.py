"""Checks of webhook addresses and signing secrets."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from urllib.parse import urlsplit

from millstream.errors import InvalidSpec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
REFERENCE = re.compile(r"\$\{[^}]*\}")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def surely_private(host: str) -> bool:
    """Return whether a host name can only mean this machine or a private network.

    >>> [surely_private(host) for host in ("localhost", "10.0.0.1", "::1", "ops.example")]
    [True, True, True, False]
    """
    try:
        return not is_public(host)
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def is_public(text: str) -> bool:
    """Return whether an IP address is public, also if it embeds another address.

    >>> [is_public(a) for a in ("1.1.1.1", "127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1")]
    [True, False, False, False]
    """
    return all(
        one.is_global and not one.is_multicast and not one.is_reserved
        for one in _embedded(ipaddress.ip_address(text.partition("%")[0]))
    )


def _embedded(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[Address] = [address]
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside += address.teredo
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return inside


def checked_address(url: object, *, allow_private: bool) -> None:
    """Check the URL of a web server. References are checked again when they are resolved.

    Raises:
        InvalidSpec: the URL is invalid, contains a password, or does not use TLS.
    """
    if not isinstance(url, str) or not url.strip() or re.search(r"[\s\x00-\x1f\x7f]", url):
        raise InvalidSpec("Webhook needs an address", got=_outline(url),
                          do='write "https://…" or "${env:HOOK_URL}"')  # fmt: skip
    if REFERENCE.match(url):
        return
    try:
        parts = urlsplit(REFERENCE.sub("x", url))
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in ("https", "http") or not host:
        raise InvalidSpec("Webhook needs an address such as https://host/path",
                          got=_outline(url))  # fmt: skip
    if parts.username is not None:
        raise InvalidSpec("Webhook needs an address without a name and password in it",
                          got=_outline(url),
                          do='write headers={"Authorization": "${env:…}"}')  # fmt: skip
    if not allow_private and surely_private(host):
        raise InvalidSpec("Webhook needs a public address", got=f"the host {host}",
                          do="write allow_private=True if that is intended")  # fmt: skip
    if parts.scheme == "http" and not allow_private:
        raise InvalidSpec("Webhook needs https", got=_outline(url),
                          do="write https://…, or allow_private=True at home")  # fmt: skip


def _outline(url: object) -> str:
    """Describe an invalid address without quoting it: it may hold a secret."""
    if not isinstance(url, str):
        return type(url).__name__
    scheme = re.match(r"[a-z]{1,20}://", url)
    return "text without ://" if scheme is None else repr(scheme[0] + "…")


def signing_key(secret: str) -> bytes | None:
    """Decode a signing secret `whsec_…`; None if it is invalid."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if 24 <= len(key) <= 64 else None
