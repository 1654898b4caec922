"""Addresses that may receive messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias

from nftsync.alerts import Destination
from nftsync.errors import InputError
from nftsync.provider.addresses import is_cloud_service, is_loopback, is_private

#: Whether a connected address may receive messages.
Accepts: TypeAlias = Callable[[str], bool]


def may_reach(address: str, *, host: str, allow_private: bool) -> bool:
    """Return whether messages for a host may reach an address or name."""
    try:
        outer = ip_address(address.partition("%")[0])
    except ValueError:
        return allow_private or is_loopback(address) or not is_private(address)
    if is_cloud_service(outer):
        return False
    if is_loopback(str(outer)):
        return allow_private or is_loopback(host)
    return allow_private or not is_private(str(outer))


def address_check(destination: Destination, host: str, *, is_encrypted: bool) -> Accepts:
    """Return the check of connected addresses; InputError for a refused host."""
    if not (is_encrypted or destination.allow_http or is_loopback(host)):
        raise InputError("its host needs TLS; use TLS, or set allow_http = true")
    check = partial(may_reach, host=host, allow_private=destination.allow_private)
    if not check(host):
        raise InputError(
            "its host is in a private network or a cloud service; for a private network, set"
            " allow_private = true"
        )
    return check
