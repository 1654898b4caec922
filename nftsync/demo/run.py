"""The demo's steps."""

from __future__ import annotations

import random
import secrets
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nftsync.alerts import Destination, WatchRule
from nftsync.demo.provider import create_database, new_provider
from nftsync.demo.year import changed_metadata, picture_url, play_year, wallet_lines
from nftsync.errors import StoreError
from nftsync.provider.client import Client, access_to
from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import merge_routes
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay.config import ReplayConfig
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.webhooks import Sandbox
from nftsync.serve.serve import ServeConfig, run_service
from nftsync.store.database import connect_reader, over_keys
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import WalletLine, register
from nftsync.times import now
from nftsync.watch.service import WatchConfig
from nftsync.watch.texts import lines_of

if TYPE_CHECKING:
    import pandas as pd


_SEED = 7
_PLAIN_TRANSFERS = 8
#: The plain transfers, one NFT lent and returned, some copies, and two NFTs to a new wallet.
TRANSFERS = _PLAIN_TRANSFERS + 5
#: The label of the wallet whose transfers cause alerts.
_WATCHED = "Treasury"
#: The label of the wallet that is added during the live changes.
NEW_WALLET = "Customer 040"


def live_changes(sandbox: Sandbox, url: str) -> Iterator[tuple[list[str], str | None]]:
    """Make changes; yield the ids of their webhooks, and any new wallet."""
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    world = sandbox.world
    wallets = world.wallets()
    for _ in range(_PLAIN_TRANSFERS):
        sender, target = rng.sample(wallets, 2)
        yield sandbox.transfer(sender, target, rng.choice(list(world.amounts(sender))), 1), None
    # Lend one NFT from the first wallet to another.
    borrower = rng.choice(wallets[1:])
    amounts = world.amounts(wallets[0])
    token = rng.choice([token for token, amount in amounts.items() if amount == 1])
    yield sandbox.transfer(wallets[0], borrower, token, 1), None
    yield sandbox.transfer(borrower, wallets[0], token, 1), None
    # Transfer a third of the copies of one NFT, so that an amount changes.
    sender = max(wallets, key=lambda wallet: max(world.amounts(wallet).values()))
    amounts = world.amounts(sender)
    token = max(amounts, key=lambda token: amounts[token])
    target = rng.choice([wallet for wallet in wallets if wallet != sender])
    yield sandbox.transfer(sender, target, token, amounts[token] // 3), None
    # Transfer two NFTs to a new wallet.
    new = world.add_wallet()
    for added in (new, None):
        sender = rng.choice(wallets)
        yield sandbox.transfer(sender, new, rng.choice(list(world.amounts(sender))), 1), added
    world.begin_collection()
    edition = {"editionId": 0, "totalEdition": 3}
    minted = {"name": "Freshly Minted", "image": picture_url(url, rng), **edition}
    yield sandbox.mint(wallets[0], 3, minted)[1], None
    renamed = next(iter(world.amounts(wallets[-1])))
    new_metadata = changed_metadata(world, renamed, name="Renamed while you watch")
    yield sandbox.edit_metadata(renamed, new_metadata), None


#: Seconds between changes, so that charts span some time.
_PAUSE = 0.12
#: Seconds to wait for a change's webhooks.
_TIMEOUT = 60.0


class DemoResult(NamedTuple):
    """The seconds from each change to the database, the webhooks by state, and two frames."""

    seconds: list[float]
    webhooks: dict[str, int]
    holdings: pd.DataFrame
    transfers: pd.DataFrame


def run_demo(
    database: Path, report: Callable[[str], None], *, progress: bool | None = None
) -> DemoResult:
    """Generate a year, sync a sandbox provider, and process its webhooks during live changes.

    The database must not exist; `report` receives lines of progress.
    """
    from nftsync import frames

    create_database(database)
    with new_provider(database) as provider:
        year = play_year(provider.world, provider.url, database, until=datetime.now(UTC))
        report(f"Started a sandbox provider with {len(year.wallets)} wallets at {provider.url}.")
        report(
            f"Generated a year of history: {year.minted} mints, {year.moved} transfers, and"
            f" {year.reads} weekly syncs, the last a week ago."
        )
        report("Syncing all wallets ...")
        config = ClientConfig(base_url=provider.url, proxy="")
        lines = wallet_lines(year.wallets)
        first = sync_wallets(database, config, SyncRequest(wallets=lines), progress=progress)
        report(first.summary())
        consumer = f"{provider.url}/sandbox/consumer/demo"
        with _receiving_webhooks(database, config, consumer) as url:
            report(f"Started the receiver at {url}, and registered it with the provider.")
            report(
                f"Making {TRANSFERS} transfers (two to a new wallet), one mint and one rename ..."
            )
            seconds = _make_changes(provider, database)
            report(f"Alert to a local consumer: {_first_alert(provider)}.")
        # If the provider is restarted, it has no receiver.
        provider.sandbox.configure(b'{"enabled": false}')
        report("Syncing all wallets again, to verify that the webhooks reported every change ...")
        again = sync_wallets(database, config, SyncRequest(), progress=progress)
        report(again.summary())
    with closing(connect_reader(database)) as connection:
        webhooks = dict(connection.execute("SELECT state, count(*) FROM webhooks GROUP BY state"))
    transfers = frames.transfers(database)
    from_webhooks = transfers[transfers["webhook_id"].notna()]
    return DemoResult(seconds, webhooks, frames.holdings(database), from_webhooks)


@contextmanager
def _receiving_webhooks(database: Path, client: ClientConfig, consumer: str) -> Iterator[str]:
    """Receive webhooks and send alerts, as `nftsync serve` does; yield the URL."""
    secret = secrets.token_urlsafe(32)
    access = access_to(client, at_once=16)

    def run_sync(stopped: threading.Event) -> SyncResult:
        return sync_wallets(database, client, SyncRequest(), access=access, stopped=stopped)

    replay = ReplayConfig(client=client, access=access, routes=merge_routes({}), run_sync=run_sync)
    rule = WatchRule(name="treasury", on=["sent"], wallets=[_WATCHED], to=["consumer"])
    key = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
    destination = Destination(name="consumer", kind="webhook", url=consumer, secrets=(key,))
    watch = WatchConfig({"treasury": rule}, {}, {"consumer": destination}, client, settle=0.5)
    serving = ServeConfig(database=database, secrets=[secret], port=0, replay=replay, watch=watch)
    with run_service(serving, lambda: None) as receiver:
        try:
            config = {"enabled": True, "sharedSecret": secret, "webhookTypes": ["nft"]}
            with Client(client, access) as provider:
                provider.configure_webhooks({"url": receiver.url, **config})
            yield receiver.url
        finally:
            # The receiver's error explains missing results.
            receiver.failures.raise_first()


def _first_alert(provider: SandboxServer) -> str:
    began = time.monotonic()
    while not (messages := provider.consumers.records("demo")):
        if time.monotonic() - began > _TIMEOUT:
            raise StoreError(f"no alert was sent within {_TIMEOUT:.0f} s; run the demo again")
        time.sleep(0.01)
    return lines_of(msgspec.json.decode(messages[0]["body"]))[0]


_COUNT_DONE = (
    "SELECT count(*) FROM webhooks WHERE state = 'done'"
    " AND webhook_id IN (SELECT value FROM json_each(?))"
)


def _make_changes(provider: SandboxServer, database: Path) -> list[float]:
    """Return the seconds until each change's webhooks were processed."""
    seconds = []
    with closing(connect_reader(database)) as connection:
        for webhook_ids, new_wallet in live_changes(provider.sandbox, provider.url):
            began = time.monotonic()
            while over_keys(connection, _COUNT_DONE, webhook_ids).fetchone()[0] < len(webhook_ids):
                if time.monotonic() - began > _TIMEOUT:
                    raise StoreError(
                        f"webhooks were not processed within {_TIMEOUT:.0f} s; run the demo again"
                    )
                time.sleep(0.002)
            seconds.append(time.monotonic() - began)
            if new_wallet is not None:
                line = WalletLine(new_wallet, NEW_WALLET, "customers")
                with Mirror(database) as mirror, mirror.transaction() as transaction:
                    register(transaction.connection, [line], now())
            time.sleep(_PAUSE)
    return seconds
