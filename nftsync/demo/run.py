"""The run of the demo, from the year of history to the last webhook."""

from __future__ import annotations

import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nftsync.demo.provider import PORT, begin_provider, create, held
from nftsync.demo.year import named, picture, play_year, with_metadata
from nftsync.errors import StoreError
from nftsync.provider.access import access_to
from nftsync.provider.client import Client
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import merge_routes
from nftsync.pull.result import SyncResult
from nftsync.pull.run import SyncRequest, sync_wallets
from nftsync.replay.config import ReplayConfig
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.webhooks import Sandbox
from nftsync.serve.serve import ServeConfig, receiving
from nftsync.store.database import connect_reader, over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import WalletLine, register
from nftsync.times import now

if TYPE_CHECKING:
    import pandas as pd


_SEED = 7
_PLAIN_TRANSFERS = 8
#: All of them: the plain ones, one NFT that goes on and comes back, some copies, two into a wallet
#: that is new.
TRANSFERS = _PLAIN_TRANSFERS + 5
#: The label of the wallet that is opened while webhooks are followed.
NEW_WALLET = "Customer 040"


def happenings(sandbox: Sandbox, url: str) -> Iterator[tuple[list[str], str | None]]:
    """Change one thing after the other at the provider; the next is made up from what is left.

    Args:
        sandbox: the provider, with the wallets of the demo.
        url: its base URL.

    Yields:
        The ids of the webhooks that follow, and the wallet that is new, or None.
    """
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    world = sandbox.world
    wallets = world.wallets()
    for _ in range(_PLAIN_TRANSFERS):
        giver, taker = rng.sample(wallets, 2)
        yield sandbox.transfer(giver, taker, rng.choice(list(held(world, giver))), 1), None
    # One NFT is lent, from the first wallet to another and back.
    borrower = rng.choice(wallets[1:])
    amounts = held(world, wallets[0])
    token = rng.choice([token for token, amount in amounts.items() if amount == 1])
    yield sandbox.transfer(wallets[0], borrower, token, 1), None
    yield sandbox.transfer(borrower, wallets[0], token, 1), None
    # A third of the copies of one NFT changes hands, so that an amount changes.
    giver = max(wallets, key=lambda wallet: max(held(world, wallet).values()))
    amounts = held(world, giver)
    token = max(amounts, key=lambda token: amounts[token])
    taker = rng.choice([wallet for wallet in wallets if wallet != giver])
    yield sandbox.transfer(giver, taker, token, amounts[token] // 3), None
    # A wallet is opened and given two NFTs by others.
    new = world.add_wallet()
    for opened in (new, None):
        giver = rng.choice(wallets)
        yield sandbox.transfer(giver, new, rng.choice(list(held(world, giver))), 1), opened
    edition = {"editionId": 0, "totalEdition": 3}
    minted = {"name": "Freshly Minted", "image": picture(url, rng), **edition}
    yield sandbox.mint(wallets[0], 3, minted)[1], None
    renamed = next(iter(held(world, wallets[-1])))
    named_anew = with_metadata(world, renamed, name="Renamed while you watch")
    yield sandbox.edit_metadata(renamed, named_anew), None


#: Seconds between two changes, so that charts have a time to draw.
_PAUSE = 0.12
#: Seconds; what takes longer than this will not come.
_PATIENCE = 60.0


class DemoResult(NamedTuple):
    """What the demo has to show.

    Attributes:
        seconds: for each change at the provider, how long it took until the database said so.
        webhooks: how many came, by state.
        holdings: who holds what now, one of `frames.holdings`.
        transfers: the movements that webhooks led to, one of `frames.transfers`.
    """

    seconds: list[float]
    webhooks: dict[str, int]
    holdings: pd.DataFrame
    transfers: pd.DataFrame


def run_demo(
    database: Path,
    tell: Callable[[str], None],
    *,
    progress: bool | None = None,
    port: int = PORT,
) -> DemoResult:
    """Make up a year, sync a sandbox provider, and follow its webhooks while NFTs change hands.

    Args:
        database: where to keep what was read; it must not exist yet.
        tell: is told what happens, a line at a time.
        progress: show bars; None shows them on a terminal and in a notebook.
        port: where the provider listens, unless that is taken; 0 takes any free one.

    Raises:
        NftsyncError: the database cannot be written, or a server not be started.
    """
    from nftsync import frames

    create(database)
    with begin_provider(database, port) as provider:
        year = play_year(provider.world, provider.url, database, until=datetime.now(UTC))
        tell(f"A sandbox provider with {len(year.wallets)} wallets answers at {provider.url}.")
        tell(
            f"A year of it has been made up: {year.minted} NFTs minted, {year.moved} transfers, and"
            f" all wallets read {year.reads} times, the last a week ago."
        )
        tell("Reading all of them ...")
        config = ClientConfig(base_url=provider.url, proxy="")
        lines = named(year.wallets)
        first = sync_wallets(database, config, SyncRequest(wallets=lines), progress=progress)
        tell(first.summary())
        with _following(database, config) as url:
            tell(f"The receiver takes webhooks at {url}; the provider is told so.")
            tell(
                f"{TRANSFERS} transfers, two of them to a new wallet; one NFT is minted, and one "
                "gets a new name ..."
            )
            seconds = _let_change_hands(provider, database)
        # It may be started again, and nobody takes its webhooks then.
        provider.sandbox.configure(b'{"enabled": false}')
        tell("Reading all of them again, in case a webhook had gone missing ...")
        again = sync_wallets(database, config, SyncRequest(), progress=progress)
        tell(again.summary())
    with closing(connect_reader(database)) as connection:
        webhooks = dict(connection.execute("SELECT state, count(*) FROM webhooks GROUP BY state"))
    transfers = frames.transfers(database)
    followed = transfers[transfers["webhook_id"].notna()]
    return DemoResult(seconds, webhooks, frames.holdings(database), followed)


@contextmanager
def _following(database: Path, client: ClientConfig) -> Iterator[str]:
    """Receive webhooks during a block, as `nftsync serve` does; yields where."""
    secret = secrets.token_urlsafe(32)
    access = access_to(client, at_once=16)

    def run_sync(stopped: threading.Event) -> SyncResult:
        return sync_wallets(database, client, SyncRequest(), access=access, stopped=stopped)

    replay = ReplayConfig(client=client, access=access, routes=merge_routes({}), run_sync=run_sync)
    serving = ServeConfig(database=database, secrets=[secret], port=0, replay=replay)
    with receiving(serving, lambda: None) as receiver:
        try:
            config = {"enabled": True, "sharedSecret": secret, "webhookTypes": ["nft"]}
            with Client(client, access) as provider:
                provider.configure_webhooks({"url": receiver.url, **config})
            yield receiver.url
        finally:
            # Rather than that its work was waited for in vain.
            receiver.failures.raise_first()


def _let_change_hands(provider: SandboxServer, database: Path) -> list[float]:
    """Change things at the provider; how long each took until the database said so, in seconds."""
    seconds = []
    with closing(connect_reader(database)) as connection:
        for webhook_ids, opened in happenings(provider.sandbox, provider.url):
            began = time.monotonic()
            while not _are_done(connection, webhook_ids):
                if time.monotonic() - began > _PATIENCE:
                    raise StoreError(
                        f"webhooks of the sandbox were not worked off within {_PATIENCE:.0f} s"
                    )
                time.sleep(0.002)
            seconds.append(time.monotonic() - began)
            if opened is not None:
                line = WalletLine(opened, NEW_WALLET, "customers")
                with Mirror(database) as mirror, mirror.transaction() as transaction:
                    register(transaction.connection, [line], now())
            time.sleep(_PAUSE)
    return seconds


def _are_done(connection: sqlite3.Connection, webhook_ids: list[str]) -> bool:
    """Whether webhooks have come and been worked off."""
    (done,) = over_keys(
        connection,
        "SELECT count(*) FROM webhooks WHERE state = 'done'"
        " AND webhook_id IN (SELECT value FROM json_each(?))",
        webhook_ids,
    ).fetchone()
    return bool(done == len(webhook_ids))
