"""All that a client is made of, as a plain value that can be handed to another process."""

from __future__ import annotations

import msgspec

from nftsync.client.auth import Auth
from nftsync.client.client import Client, Paging
from nftsync.client.health import Health
from nftsync.client.pace import Pace

__all__ = ["ClientConfig"]


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a provider. Its repr shows no credentials.

    Attributes:
        base_url: the provider's base address.
        api_token: sent as `Authorization: Bearer ...`.
        token_command: a command line whose standard output is the token.
        headers: sent as they are.
        rate_limit: requests per second, or None.
        timeout: seconds for a whole attempt.
        attempts: attempts per request, the first included.
        ignore_fields: top-level fields of a balances answer that are known to mean nothing.
        paging: how the provider pages, or None where it doesn't.
    """

    base_url: str
    api_token: str | None = None
    token_command: str | None = None
    headers: dict[str, str] = {}
    rate_limit: float | None = None
    timeout: float = 30.0
    attempts: int = 5
    ignore_fields: list[str] = []
    paging: Paging | None = None

    def __repr__(self) -> str:
        return f"ClientConfig(base_url={self.base_url!r}, ...)"

    def connect(self) -> tuple[Client, Health]:
        """Make a client, and the health that it reports to."""
        health = Health()
        client = Client(
            self.base_url,
            auth=Auth(self.api_token, token_command=self.token_command, headers=self.headers),
            pace=Pace(self.rate_limit),
            health=health,
            timeout=self.timeout,
            attempts=self.attempts,
            ignore_fields=self.ignore_fields,
            paging=self.paging,
        )
        return client, health
