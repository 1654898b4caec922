"""A database that mirrors the provider double: its syncs and stored data."""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import nftsync
from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror as Store
from nftsync.store.wallets import WalletLine
from nftsync.times import now
from tests.kit.provider import Provider, entry, token, wallet
from tests.kit.worlds import mirrored

#: From this number of wallets on, a process of its own reads them.
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
        flags: dict[str, Any] = {
            "base_url": self.provider.url,
            "database": self.database,
            "retries": 1,
        }
        flags |= {"timeout": 10, "concurrency": 4, "progress": False, **options}
        return nftsync.sync(None if wallets is None else list(wallets), **flags)

    def run(
        self,
        numbers: Iterable[int],
        *,
        resume: bool = False,
        tokens: bool = False,
        allow_removals: bool = False,
        concurrency: int = 8,
        at_once: int | None = None,
        stopped: threading.Event | None = None,
        **more: Any,
    ) -> nftsync.SyncResult:
        """Sync wallets with short waits between attempts; `more` are client options."""
        request = SyncRequest(
            [WalletLine(wallet(n)) for n in numbers],
            tokens=tokens,
            resume=resume,
            allow_removals=allow_removals,
        )
        options = {"base_url": self.provider.url, "attempts": 3, "first_wait": 0.01, **more}
        config = ClientConfig(**options)
        return sync_wallets(
            self.database,
            config,
            request,
            concurrency=concurrency,
            progress=False,
            access=access_to(config, at_once=at_once) if at_once else None,
            stopped=stopped,
        )

    def fill(self, count: int) -> list[str]:
        """Let wallets hold two tokens each; return the wallets."""
        for number in range(count):
            tokens = (entry(token(2 * number + n), str(n)) for n in (0, 1))
            self.provider.holds(wallet(number), *tokens)
        return [wallet(number) for number in range(count)]

    def apply(self, number: int, amount: str) -> None:
        """Apply a read of a wallet that holds the token of its number, as another process does."""
        with Store(self.database) as store, store.transaction() as transaction:
            read = WalletRead(
                wallet_id=wallet(number),
                sequence=store.numbers.take(),
                started_at=now(),
                outcome="ok",
                entries=[(token(number), amount, None)],
            )
            transaction.apply([read])

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    def held(self) -> dict[str, dict[str, str]]:
        """Return the stored amounts by wallet and token."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for (wallet_id, token_id), amount in mirrored(self.database).items():
            found[wallet_id][token_id] = amount
        return dict(found)


def errors(result: nftsync.SyncResult) -> dict[str, str]:
    """Return the errors of failed wallets."""
    return {str(failure.wallet_id): failure.error for failure in result.failures}
