"""The whole product on one machine with nothing to configure."""

from __future__ import annotations

import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nftsync.client import ClientConfig
from nftsync.errors import InputError, StoreError
from nftsync.replay.run import ReplayConfig
from nftsync.routes import merged
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.serve import Receiving, ServeConfig, receiving
from nftsync.store.connection import connect_reader, explained
from nftsync.store.registry import WalletLine
from nftsync.store.schema import open_store
from nftsync.sync_plan import Request
from nftsync.sync_result import SyncResult
from nftsync.sync_run import sync_wallets

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.sandbox.control import Sandbox
    from nftsync.sandbox.world import World

__all__ = ["DemoResult", "begin_afresh", "run_demo"]

#: In the header of the demo's databases (SQLite's application_id): they may be begun afresh.
_MARK = 0x6E667464
_WALLETS = 40
_NFTS = 25
_SEED = 7
_LABELS = ("Treasury", "Marketing", "Artist royalties", "Cold storage", "Team", "Auctions")
_TRANSFERS = 6
#: Seconds; what takes longer than this will not come.
_PATIENCE = 60.0


class DemoResult(NamedTuple):
    """What the demo has to show.

    Attributes:
        first: the first sync.
        seconds: for each change at the provider, how long it took until the database said so.
        webhooks: how many came, by state.
        holdings: who holds what now, one of `frames.holdings`.
        changes: what came through webhooks, one of `frames.changes`, with the wallets' labels and
            the tokens' names.
    """

    first: SyncResult
    seconds: list[float]
    webhooks: dict[str, int]
    holdings: pd.DataFrame
    changes: pd.DataFrame


def begin_afresh(database: Path) -> None:
    """Remove the demo's database and what SQLite keeps beside it.

    Raises:
        InputError: there is a file that no demo has made.
    """
    if database.exists():
        with closing(connect_reader(database)) as connection, explained(database):
            if connection.execute("PRAGMA application_id").fetchone()[0] != _MARK:
                raise InputError(
                    f"{database} was not made by a demo and is left as it is; "
                    "name another file with --database"
                )
    for suffix in ("", "-wal", "-shm", ".sync-lock"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def run_demo(
    database: Path, tell: Callable[[str], None], *, progress: bool | None = None
) -> DemoResult:
    """Start a sandbox provider, sync its wallets, and follow its webhooks while NFTs change hands.

    Args:
        database: where to keep what was read; it must not exist yet.
        tell: is told what happens, a line at a time.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        NftsyncError: the database cannot be written, or a server not be started.
    """
    from nftsync import frames

    def build(url: str) -> World:
        return generate(wallets=_WALLETS, nfts=_NFTS, seed=_SEED, image_base=url)

    with SandboxServer(build) as provider:
        wallets = provider.world.wallets()
        tell(f"A sandbox provider with {len(wallets)} wallets answers at {provider.url}.")
        tell("Reading all of them ...")
        with closing(open_store(database)) as connection:
            connection.execute(f"PRAGMA application_id = {_MARK}")
        config = ClientConfig(base_url=provider.url)
        first = sync_wallets(database, config, Request(wallets=_lines(wallets)), progress=progress)
        tell(first.summary())
        with _following(database, config) as url:
            tell(f"The receiver takes webhooks at {url}; the provider is told so.")
            tell(f"{_TRANSFERS} NFTs change hands, one is minted and one gets a new name ...")
            seconds = _let_change_hands(provider.sandbox, database)
    with closing(connect_reader(database)) as connection:
        webhooks = dict(connection.execute("SELECT state, count(*) FROM webhooks GROUP BY state"))
    changes = frames.changes(database)
    changes = changes[changes["webhook_id"].notna()]
    labels = frames.wallets(database)[["wallet_id", "label"]]
    names = frames.tokens(database)[["token_id", "name"]]
    changes = changes.merge(labels.rename(columns={"label": "wallet_label"}), on="wallet_id")
    changes = changes.merge(names, on="token_id").sort_values("change_id")
    return DemoResult(first, seconds, webhooks, frames.holdings(database), changes)


def _lines(wallets: list[str]) -> list[WalletLine]:
    return [
        WalletLine(
            wallet,
            _LABELS[number] if number < len(_LABELS) else f"Customer {number:03}",
            "house" if number < len(_LABELS) else "customers",
        )
        for number, wallet in enumerate(wallets)
    ]


@contextmanager
def _following(database: Path, client: ClientConfig) -> Iterator[str]:
    """Receive webhooks during a block, as `nftsync serve` does; yields where."""
    secret = secrets.token_urlsafe(32)
    access = client.access(at_once=16)

    def run_sync(stopped: threading.Event) -> SyncResult:
        return sync_wallets(database, client, Request(), access=access, stopped=stopped)

    replay = ReplayConfig(client=client, access=access, routes=merged({}), run_sync=run_sync)
    serving = ServeConfig(database=database, secrets=[secret], port=0, replay=replay)
    with receiving(serving, lambda: None) as receiver, _what_broke(receiver):
        provider, _ = client.connect(access)
        with closing(provider):
            provider.configure_webhooks(
                {
                    "url": receiver.url,
                    "enabled": True,
                    "sharedSecret": secret,
                    "webhookTypes": ["nft"],
                }
            )
        yield receiver.url


@contextmanager
def _what_broke(receiver: Receiving) -> Iterator[None]:
    """Raise what ended a part of the receiver rather than that its work was waited for in vain."""
    try:
        yield
    finally:
        receiver.raise_what_ended_it()


def _let_change_hands(sandbox: Sandbox, database: Path) -> list[float]:
    """Change things at the provider; how long each took until the database said so, in seconds."""
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    wallets = sandbox.world.wallets()
    seconds = []
    with closing(connect_reader(database)) as connection:

        def follow(change: Callable[[], list[str]]) -> None:
            began = time.monotonic()
            _wait_until_done(connection, change())
            seconds.append(time.monotonic() - began)

        for _ in range(_TRANSFERS):
            giver, taker = rng.sample(wallets, 2)
            token_id = rng.choice(_tokens_of(sandbox.world, giver))
            follow(partial(sandbox.transfer, giver, taker, token_id, 1))
        minted = {"name": "Freshly Minted", "editionId": 0, "totalEdition": 3}
        follow(lambda: sandbox.mint(wallets[0], 3, minted)[1])
        renamed = _tokens_of(sandbox.world, wallets[-1])[0]
        follow(lambda: sandbox.edit_metadata(renamed, {"name": "Renamed after the first sync"}))
    return seconds


def _wait_until_done(connection: sqlite3.Connection, webhook_ids: list[str]) -> None:
    """Wait until webhooks have come and been worked off.

    Raises:
        StoreError: they were not within a minute.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        (done,) = connection.execute(
            "SELECT count(*) FROM webhooks WHERE state = 'done'"
            " AND webhook_id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(webhook_ids).decode(),),
        ).fetchone()
        if done == len(webhook_ids):
            return
        time.sleep(0.002)
    raise StoreError(f"webhooks of the sandbox were not worked off within {_PATIENCE:.0f} s")


def _tokens_of(world: World, wallet_id: str) -> list[str]:
    body = world.balances_body(wallet_id)
    entries = msgspec.json.decode(body or b"{}").get("nftTokenBalances", [])
    return [entry["tokenId"] for entry in entries]
