"""Addresses that may receive messages."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import TypeAlias

from nftsync.provider.addresses import is_cloud_service, is_loopback, is_private

#: Whether a connected address may receive messages.
Accepts: TypeAlias = Callable[[str], bool]


def may_reach(address: str, *, host: str, allow_private: bool) -> bool:
    """Return whether a connected address, or a host's name, may receive messages for a host."""
    try:
        outer = ip_address(address.partition("%")[0])
    except ValueError:
        return allow_private or is_loopback(address) or not is_private(address)
    if is_cloud_service(outer):
        return False
    if is_loopback(str(outer)):
        return allow_private or is_loopback(host)
    return allow_private or not is_private(str(outer))
