"""Names of wallets and NFTs, for rows that have their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from nftsync.store.contracts import nft_name
from nftsync.store.database import Queryable, over_keys
from nftsync.store.wallets import wallet_names

_NFTS = """
    SELECT t.name, coalesce(c.collection, t.contract_short), blockchain_token_id, token_id
    FROM json_each(?) k JOIN tokens t ON t.token_id = k.value
    LEFT JOIN contracts c ON c.contract = t.contract
"""


class Names:
    """Names in a database, as in frames."""

    def __init__(self, database: Queryable) -> None:
        self._database = database

    @cached_property
    def _wallets(self) -> dict[str, str]:
        rows = self._database.execute("SELECT wallet_id, label FROM wallets").fetchall()
        return dict(zip((wallet_id for wallet_id, _ in rows), wallet_names(rows), strict=True))

    def of_wallets(self, wallet_ids: Iterable[str]) -> dict[str, str | None]:
        """Map ids to names; None: unknown."""
        return {wallet_id: self._wallets.get(wallet_id) for wallet_id in wallet_ids}

    def of_nfts(self, token_ids: Iterable[str]) -> dict[str, str]:
        rows = over_keys(self._database, _NFTS, token_ids).fetchall()
        return {row[-1]: nft_name(*row) for row in rows}

    def add_to(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add `nft`, and `wallet` to rows with a `wallet_id`; None: unknown."""
        names = self.of_nfts({row["token_id"] for row in rows})
        for row in rows:
            row["nft"] = names.get(row["token_id"])
            if "wallet_id" in row:
                row["wallet"] = self._wallets.get(row["wallet_id"])
