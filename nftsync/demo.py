"""The whole product on one machine with nothing to configure."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nftsync.client import ClientConfig
from nftsync.errors import InputError
from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.store.connection import connect_reader, explained
from nftsync.store.registry import WalletLine
from nftsync.store.schema import open_store
from nftsync.sync_plan import Request
from nftsync.sync_result import SyncResult
from nftsync.sync_run import sync_wallets

if TYPE_CHECKING:
    import pandas as pd

    from nftsync.sandbox.world import World

__all__ = ["DemoResult", "begin_afresh", "run_demo"]

#: In the header of the demo's databases (SQLite's application_id): they may be begun afresh.
_MARK = 0x6E667464
_WALLETS = 40
_NFTS = 25
_SEED = 7
_LABELS = ("Treasury", "Marketing", "Artist royalties", "Cold storage", "Team", "Auctions")
_TRANSFERS = 6


class DemoResult(NamedTuple):
    """What the demo has to show.

    Attributes:
        first: the first sync.
        again: the second, after NFTs changed hands.
        holdings: who holds what now, one of `frames.holdings`.
        changes: what the second sync found, one of `frames.changes`, with the wallets' labels and
            the tokens' names.
    """

    first: SyncResult
    again: SyncResult
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
    """Start a sandbox provider, sync its wallets, let NFTs change hands, and sync again.

    Args:
        database: where to keep what was read; it must not exist yet.
        tell: is told what happens, a line at a time.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        NftsyncError: the database cannot be written, or the sandbox not be started.
    """
    from nftsync import frames

    def build(url: str) -> World:
        return generate(wallets=_WALLETS, nfts=_NFTS, seed=_SEED, image_base=url)

    with SandboxServer(build) as server:
        wallets = server.world.wallets()
        tell(f"A sandbox provider with {len(wallets)} wallets answers at {server.url}.")
        lines = [
            WalletLine(
                wallet,
                f"{_LABELS[number]}" if number < len(_LABELS) else f"Customer {number:03}",
                "house" if number < len(_LABELS) else "customers",
            )
            for number, wallet in enumerate(wallets)
        ]

        def sync(request: Request) -> SyncResult:
            config = ClientConfig(base_url=server.url)
            return sync_wallets(database, config, request, progress=progress)

        tell("Reading all of them ...")
        with closing(open_store(database)) as connection:
            connection.execute(f"PRAGMA application_id = {_MARK}")
        first = sync(Request(wallets=lines))
        tell(first.summary())
        moved = _let_change_hands(server.world, wallets)
        tell(f"{moved} NFTs change hands, one is minted and one gets a new name ...")
        again = sync(Request(tokens=True))
        tell(again.summary())
    changes = frames.changes(database)
    changes = changes[changes["run_id"] == again.run_id]
    labels = frames.wallets(database)[["wallet_id", "label"]]
    names = frames.tokens(database)[["token_id", "name"]]
    changes = changes.merge(labels.rename(columns={"label": "wallet_label"}), on="wallet_id")
    changes = changes.merge(names, on="token_id").sort_values("change_id")
    return DemoResult(first, again, frames.holdings(database), changes)


def _let_change_hands(world: World, wallets: list[str]) -> int:
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    moved = 0
    while moved < _TRANSFERS:
        giver, taker = rng.sample(wallets, 2)
        token_id = rng.choice(_tokens_of(world, giver))
        world.transfer(giver, taker, token_id, 1)
        moved += 1
    world.mint(wallets[0], 3, {"name": "Freshly Minted", "editionId": 0, "totalEdition": 3})
    renamed = _tokens_of(world, wallets[-1])[0]
    world.edit_metadata(renamed, {"name": "Renamed after the first sync"})
    return moved


def _tokens_of(world: World, wallet_id: str) -> list[str]:
    import msgspec

    body = world.balances_body(wallet_id)
    entries = msgspec.json.decode(body or b"{}").get("nftTokenBalances", [])
    return [entry["tokenId"] for entry in entries]
