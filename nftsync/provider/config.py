"""Client options."""

from __future__ import annotations

import os

import msgspec

#: Added to errors whose cause may be a server with TLS.
HTTPS_HINT = "; base_url starts with http: does the server expect https?"


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """The response field with the cursor, `next`, and the query parameter for it, `param`."""

    next: str
    param: str


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading a provider; can be sent to other processes. The repr shows no secret.

    Attributes:
        proxy: its URL; None: from the environment; blank: no proxy.
        ca_file: the only trusted certificates; None: the system's.
        rate_limit: requests per second.
        attempts: including the first.
        first_wait: before the first retry; later waits grow.
        max_bytes: per body, and for all pages of a wallet.
        large_bytes: few responses above this size are in memory at once.
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
    volatile_fields: list[str] = []
    paging: Paging | None = None

    def __repr__(self) -> str:
        return f"ClientConfig(base_url={self.base_url!r}, ...)"


def environment_without_settings() -> dict[str, str]:
    """Return the environment without nftsync's settings, which may be secret."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NFTSYNC_")}
