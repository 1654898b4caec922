"""A database that mirrors the provider double: its syncs and stored data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nftsync
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Provider, wallet
from tests.kit.serve_process import query
from tests.kit.worlds import mirrored

#: From 500 wallets on, a process of its own reads them.
MANY = 510


class Mirror:
    """A database in the working directory, synced from a provider."""

    def __init__(self, provider: Provider, database: Path) -> None:
        self.provider, self.database = provider, database

    def sync(
        self, wallets: Iterable[str] | None = None, *, toml: str = "", **options: Any
    ) -> nftsync.SyncResult:
        """Sync as users do, with short timeouts and one attempt; `toml` are the settings."""
        Path("nftsync.toml").write_text(toml)
        flags = {"base_url": self.provider.url, "database": self.database, "progress": False}
        flags |= {"retries": 1, "timeout": 10, "concurrency": 4, **options}
        return nftsync.sync(None if wallets is None else list(wallets), **flags)

    def run(
        self, numbers: Iterable[int], *, at_once: int | None = None, **options: Any
    ) -> nftsync.SyncResult:
        """Sync wallets with short waits between attempts, which no setting allows."""
        asked = {x: options.pop(x) for x in SyncRequest._fields if x in options}
        how = {x: options.pop(x) for x in ("concurrency", "stopped") if x in options}
        client = {"base_url": self.provider.url, "attempts": 3, "first_wait": 0.01, **options}
        config = ClientConfig(**client)
        return sync_wallets(
            self.database,
            config,
            SyncRequest([WalletLine(wallet(n)) for n in numbers], **asked),
            progress=False,
            access=access_to(config, at_once=at_once) if at_once else None,
            **{"concurrency": 8, **how},
        )

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return query(self.database, statement, *parameters)

    def held(self) -> dict[str, dict[str, str]]:
        """Return the stored amounts by wallet and token."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for (wallet_id, token_id), amount in mirrored(self.database).items():
            found[wallet_id][token_id] = amount
        return dict(found)


def errors(result: nftsync.SyncResult) -> dict[str, str]:
    """Return the errors of failed wallets."""
    return {str(failure.wallet_id): failure.error for failure in result.failures}
