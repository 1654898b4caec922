"""All that a client is made of, as a plain value that can be handed to another process."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from nftsync.provider.client import Client, Paging
from nftsync.provider.credentials import Auth
from nftsync.provider.exchange import Health
from nftsync.provider.rate_limiter import Pace

__all__ = ["Access", "ClientConfig"]


class Access(NamedTuple):
    """What all clients of one provider share in a process.

    Attributes:
        pace: how fast all of them together ask.
        auth: the credentials; a token command runs once for all.
    """

    pace: Pace
    auth: Auth


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

    def access(self, *, at_once: int | None = None) -> Access:
        """Make what several clients can share.

        Args:
            at_once: requests in flight over all of them, or None for no bound.

        Raises:
            SettingsError: the credentials cannot be sent, or the token command is none.
        """
        auth = Auth(self.api_token, token_command=self.token_command, headers=self.headers)
        return Access(Pace(self.rate_limit, at_once=at_once), auth)

    def connect(
        self, access: Access | None = None, *, urgent: bool = False
    ) -> tuple[Client, Health]:
        """Make a client, and the health that it reports to, which is its own.

        Args:
            access: shared with other clients; None for one of its own.
            urgent: its requests go before those of clients that share the access and are not.

        Raises:
            SettingsError: the client cannot be made so.
        """
        pace, auth = access or self.access()
        health = Health()
        client = Client(
            self.base_url,
            auth=auth,
            pace=pace.lane(urgent=urgent),
            health=health,
            timeout=self.timeout,
            attempts=self.attempts,
            ignore_fields=self.ignore_fields,
            paging=self.paging,
        )
        return client, health
