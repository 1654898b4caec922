"""A sync does not call what it wrote to a file that is gone a success."""

from __future__ import annotations

from pathlib import Path

import pytest
from provider import Peer, Provider, balances, entry, reply, token, wallet

import nftsync
from nftsync.errors import StoreError


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_is_gone_at_the_end_is_an_error(tmp_path: Path, how: str) -> None:
    database = tmp_path / "nftsync.db"
    other = tmp_path / "other.db"
    other.touch()

    def answer(peer: Peer) -> bool:
        if how == "removed":
            database.unlink()
        else:
            other.rename(database)
        return reply(balances(entry(token(1))))(peer)

    with Provider() as provider:
        provider.always(answer)
        with pytest.raises(StoreError, match=r"nftsync\.db was moved, removed or replaced"):
            nftsync.sync(wallets=[wallet(1)], base_url=provider.url, database=database)
