"""Hosts and IP addresses that are private, this machine's, or a cloud's own.

Networks may translate IPv6 addresses, so the IPv4 addresses that they contain are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

#: Domains outside the public DNS: RFC 6761, 6762 (appendix G) and 8375, Kubernetes.
_PRIVATE_NAMES = (
    *(".localhost", ".local", ".localdomain", ".home.arpa", ".svc", ".internal", ".intranet"),
    *(".private", ".corp", ".home", ".lan"),
)
#: Link-local networks, and clouds' services for their machines, some of which give credentials.
_CLOUD_IPV4 = ("169.254.0.0/16", "168.63.129.16", "100.100.100.200", "192.0.0.192")
_CLOUD_IPV6 = ("fe80::/10", "fd00:ec2::/32", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42")
_CLOUD_SERVICES = tuple(map(ip_network, _CLOUD_IPV4 + _CLOUD_IPV6))
#: IPv6 networks whose last 32 bits are an IPv4 address.
_TRANSLATED = ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
_HOLD_VERSION_4 = tuple(map(ip_network, _TRANSLATED))
#: The interface identifiers of ISATAP, before an IPv4 address (RFC 5214).
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
#: The network for address translation within one site.
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")


def is_private(host: str) -> bool:
    """Return whether a host is private, a cloud's service, or has no dot.

    A public name may still resolve to a private address, which connections check.
    """
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        host = host.removesuffix(".")
        return "." not in host or f".{host}".endswith(_PRIVATE_NAMES)
    if isinstance(address, IPv6Address) and (address.is_site_local or address in _LOCAL_NAT64):
        return True
    inner = _inner_addresses(address)
    return is_cloud_service(address) or any(not x.is_global or x.is_multicast for x in inner)


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or all(inner.is_loopback for inner in _inner_addresses(address))


def is_cloud_service(address: Address) -> bool:
    """Return whether an address is link-local, or a cloud's service."""
    addresses = (address, *_inner_addresses(address))
    return any(x in network for network in _CLOUD_SERVICES for x in addresses)


def _inner_addresses(address: Address) -> Sequence[Address]:
    if isinstance(address, IPv4Address):
        return [address]
    packed = address.packed
    if packed[8:12] in _ISATAP or any(address in network for network in _HOLD_VERSION_4):
        return [IPv4Address(packed[12:])]
    if address in _LOCAL_NAT64:  # for each length of its prefix (RFC 6052, section 2.2)
        packed = packed[:8] + packed[9:]
        return [IPv4Address(packed[start : start + 4]) for start in (6, 7, 8, 11)]
    return address.teredo or [address.sixtofour or address]
