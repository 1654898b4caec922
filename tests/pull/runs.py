"""Syncs of some wallets of a provider that answers as a test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nftsync
from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import SyncRequest
from nftsync.pull.run import sync_wallets
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet

#: Enough for reads to be made by a process of their own.
MANY = 510


def one_token_each(peer: Peer) -> bool:
    number = int(peer.seen.path.split("/")[3][-12:], 16)
    return reply(balances(entry(token(number))))(peer)


def path_of(number: int) -> str:
    return f"/v1/wallets/{wallet(number)}/nft-balances"


def attempts(provider: Provider) -> Counter[str]:
    """How often each path was asked for."""
    return Counter(seen.path for seen in provider.requests())


def run(
    provider: Provider,
    database: Path,
    numbers: Iterable[int],
    *,
    resume: bool = False,
    tokens: bool = False,
    concurrency: int = 8,
    **more: Any,
) -> nftsync.SyncResult:
    """Sync with options of `sync_wallets` and fields of `ClientConfig`."""
    lines = [WalletLine(wallet(number)) for number in numbers]
    beside = {name: more.pop(name) for name in ("access", "stopped") if name in more}
    return sync_wallets(
        database,
        ClientConfig(**{"base_url": provider.url, "attempts": 3, "first_wait": 0.01, **more}),
        SyncRequest(wallets=lines, resume=resume, tokens=tokens),
        concurrency=concurrency,
        progress=False,
        **beside,
    )
