"""`ClientConfig`: address, timeout, retries, rate limit, paging and the other client options.

What the provider's document does not show is a field: the credentials, the paging, the rate.
"""

from __future__ import annotations

import os

import msgspec


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """How the provider pages, where it does (provider's document: not shown).

    Attributes:
        next: the response field that carries a cursor.
        param: the query parameter that takes it.
    """

    next: str
    param: str


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a provider; it can be handed to another process. Its repr shows no secret.

    Attributes:
        base_url: the provider's base address.
        api_token: sent as `Authorization: Bearer ...`.
        token_command: a command line whose standard output is the token.
        headers: sent as they are.
        proxy: the URL of a proxy; None for the environment's, blank for none at all.
        proxy_source: where `proxy` came from, for messages.
        ca_file: trust only what these certificates signed; None for the system's.
        client_certificate: shows who we are.
        client_key: its private key, where it is in another file.
        rate_limit: requests per second, or None.
        timeout: seconds for a whole attempt.
        attempts: attempts per request, the first included.
        first_wait: seconds before the first repeat; later waits grow from it.
        max_bytes: the greatest body that is read, and all pages of a wallet together.
        max_entries: of one wallet, on all its pages; the memory that they take is bounded by it.
        large_bytes: a larger answer is one of few that are held at once.
        ignore_fields: top-level fields of a balances response that are known to mean nothing.
        paging: how the provider pages, or None where it doesn't.
    """

    base_url: str
    api_token: str | None = None
    token_command: str | None = None
    headers: dict[str, str] = {}
    proxy: str | None = None
    proxy_source: str = "the caller"
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    rate_limit: float | None = None
    timeout: float = 30.0
    attempts: int = 5
    first_wait: float = 0.5
    max_bytes: int = 64 * 1024 * 1024
    max_entries: int = 250_000
    large_bytes: int = 4 * 1024 * 1024
    ignore_fields: list[str] = []
    paging: Paging | None = None

    def __repr__(self) -> str:
        return f"ClientConfig(base_url={self.base_url!r}, ...)"


def without_our_settings() -> dict[str, str]:
    """The environment for programs that have no use for our settings, secrets among them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}
