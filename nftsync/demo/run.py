"""A run of the demo, from the first sync to the last webhook."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nftsync.client import ClientConfig
from nftsync.demo.files import create
from nftsync.demo.happenings import NEW_WALLET, TRANSFERS, happenings
from nftsync.demo.provider import PORT, begin_provider
from nftsync.errors import StoreError
from nftsync.replay.run import ReplayConfig
from nftsync.routes import merged
from nftsync.serve import Receiving, ServeConfig, receiving
from nftsync.store.connection import connect_reader
from nftsync.store.mirror import Mirror
from nftsync.store.registry import WalletLine, register
from nftsync.sync_plan import Request
from nftsync.sync_result import SyncResult
from nftsync.sync_run import sync_wallets
from nftsync.times import now

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.sandbox.control import Sandbox

__all__ = ["DemoResult", "run_demo"]

_LABELS = ("Treasury", "Marketing", "Artist royalties", "Cold storage", "Team", "Auctions")
#: Seconds between two changes, so that charts have a time to draw.
_PAUSE = 0.12
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


def run_demo(
    database: Path,
    tell: Callable[[str], None],
    *,
    progress: bool | None = None,
    port: int = PORT,
) -> DemoResult:
    """Start a sandbox provider, sync its wallets, and follow its webhooks while NFTs change hands.

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
        wallets = provider.world.wallets()
        tell(f"A sandbox provider with {len(wallets)} wallets answers at {provider.url}.")
        tell("Reading all of them ...")
        config = ClientConfig(base_url=provider.url)
        first = sync_wallets(database, config, Request(wallets=_lines(wallets)), progress=progress)
        tell(first.summary())
        with _following(database, config) as url:
            tell(f"The receiver takes webhooks at {url}; the provider is told so.")
            tell(
                f"{TRANSFERS} transfers, two of them to a new wallet; one NFT is minted, and one "
                "gets a new name ..."
            )
            seconds = _let_change_hands(provider.sandbox, database)
        # It may be started again, and nobody takes its webhooks then.
        provider.sandbox.configure(b'{"enabled": false}')
        tell("Reading all of them again, in case a webhook had gone missing ...")
        again = sync_wallets(database, config, Request(), progress=progress)
        tell(again.summary())
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
    seconds = []
    with closing(connect_reader(database)) as connection:
        for happening in happenings(sandbox):
            began = time.monotonic()
            _wait_until_done(connection, happening.cause())
            seconds.append(time.monotonic() - began)
            if happening.opens is not None:
                _label(database, WalletLine(happening.opens, NEW_WALLET, "customers"))
            time.sleep(_PAUSE)
    return seconds


def _label(database: Path, line: WalletLine) -> None:
    with Mirror(database) as mirror, mirror.transaction() as transaction:
        register(transaction.connection, [line], now())


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
