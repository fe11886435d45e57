"""Addresses of machines: which of them lie in the open internet."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def surely_private(host: str) -> bool:
    """Whether a host as it is written can only mean this machine or a private network.

    >>> [surely_private(host) for host in ("localhost", "10.0.0.1", "::1", "ops.example")]
    [True, True, True, False]
    """
    try:
        return not is_public(host)
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def is_public(text: str) -> bool:
    """Whether an address lies in the open internet, also behind what wraps one in another.

    >>> [is_public(a) for a in ("1.1.1.1", "127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1")]
    [True, False, False, False]
    """
    return all(
        one.is_global and not one.is_multicast and not one.is_reserved
        for one in _wrapped(ipaddress.ip_address(text.partition("%")[0]))
    )


def _wrapped(address: Address) -> list[Address]:
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
