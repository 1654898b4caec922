"""A sandbox and a database that mirrors it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nftsync
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.database import begun


class Site:
    """A sandbox, and a database that mirrors it."""

    def __init__(self, server: SandboxServer, database: Path) -> None:
        self.server = server
        self.world: World = server.world
        self.ids = self.world.wallets()
        self.database = begun(database)

    def sync(self, *wallets: str, **options: Any) -> Any:
        return nftsync.sync(
            list(wallets) or self.ids,
            base_url=self.server.url,
            database=self.database,
            progress=False,
            **options,
        )

    def held(self, wallet: str) -> list[str]:
        """Return the tokens of a wallet in the provider's order."""
        body = json.loads(self.world.balances_body(wallet) or b"{}")
        return [entry["tokenId"].lower() for entry in body["nftTokenBalances"]]
