"""Addresses that may receive messages."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import TypeAlias

from nftsync.provider.images import innermost_address, is_private

#: Whether a connected address may receive messages.
Accepts: TypeAlias = Callable[[str], bool]

_METADATA = "fd00:ec2::254", "100.100.100.200", "192.0.0.192"
#: Link-local networks, and cloud services that give credentials to machines.
_NEVER = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10", *_METADATA)))


def may_reach(address: str, *, host: str, allow_private: bool) -> bool:
    """Return whether a connected address, or a host's name, may receive messages for a host."""
    try:
        outer = ip_address(address.partition("%")[0])
    except ValueError:
        return allow_private or is_loopback(address) or not is_private(address)
    if any(x in network for network in _NEVER for x in (outer, innermost_address(outer))):
        return False
    if is_loopback(str(outer)):
        return allow_private or is_loopback(host)
    return allow_private or not is_private(str(outer))


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or innermost_address(address).is_loopback
