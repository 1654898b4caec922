"""A real history, played through a sandbox with a sync after some blocks each."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import nftsync
from nftsync.errors import InputError
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.real.real_data import State, read_blocks, read_records, wallet_of

#: A read of every wallet before the first block, so that no change is a wallet's first read.
BEFORE = 0
#: Of the 58 blocks; more would take time without another result.
BLOCKS, TOGETHER = slice(8, 18), 2


@dataclass(frozen=True)
class History:
    """A played history.

    Attributes:
        database: the mirror, synced after each block: the wallets that the block touched.
        moments: a time after each block's sync, and before the next block's; `BEFORE` first.
        last: the counts of a sync of all wallets at the end.
    """

    database: str
    moments: dict[int, str]
    last: dict[str, int]


class Facts:
    """The content of the file, computed in plain Python.

    Attributes:
        tokens: the token's UUID by contract and chain id.
        states: the holdings after each block; `BEFORE` first.
        touched: the wallets that each block changes.
        wallets: all of them.
    """

    def __init__(self) -> None:
        self.blocks = read_blocks(BLOCKS, TOGETHER)
        named = {(change.contract, change.token_id) for of in self.blocks.values() for change in of}
        self.records = read_records(named)
        self.tokens = {
            key: str(msgspec.json.decode(raw)["id"]) for key, raw in self.records.items()
        }
        self.states: dict[int, State] = {BEFORE: {}}
        self.touched: dict[int, list[str]] = {}
        state: State = {}
        for block, changes in self.blocks.items():
            state = dict(state)
            for change in changes:
                key = (wallet_of(change.owner), self.tokens[change.contract, change.token_id])
                state[key] = int(change.amount)
            self.states[block] = state = {key: amount for key, amount in state.items() if amount}
            self.touched[block] = sorted({wallet_of(change.owner) for change in changes})
        self.wallets = sorted({wallet for of in self.touched.values() for wallet in of})

    def world(self) -> World:
        """Return a world with these wallets and tokens, without holdings."""
        world = World(organization_id=wallet_of("organization"))
        for key, record in self.records.items():
            world.add_token(self.tokens[key], record)
        for wallet in self.wallets:
            world.add_wallet(wallet)
        return world

    def happen(self, world: World, block: int) -> None:
        """Apply a block's changes to the world, in the order of the file."""
        for change in self.blocks[block]:
            wallet = wallet_of(change.owner)
            token = self.tokens[change.contract, change.token_id]
            if int(change.amount):
                world.set_amount(wallet, token, change.amount)
            else:
                with suppress(InputError):  # the first holdings are unknown
                    world.remove(wallet, token)


def play(facts: Facts, database: Path) -> History:
    """Play the blocks: a sync of all wallets, five of changed wallets, and one of all."""
    world = facts.world()
    moments = {}
    with SandboxServer(world) as server:
        _sync(facts.wallets, server, database)
        moments[BEFORE] = _moment()
        for block, wallets in facts.touched.items():
            facts.happen(world, block)
            _sync(wallets, server, database)
            moments[block] = _moment()
        last = _sync(facts.wallets, server, database)
    counts = {**msgspec.to_builtins(last.balances), "unchanged": last.wallets.unchanged}
    return History(str(database), moments, counts)


def _sync(wallets: list[str], server: SandboxServer, database: Path) -> nftsync.SyncResult:
    result = nftsync.sync(wallets, base_url=server.url, database=database, progress=False)
    assert result.status == "ok", result.failures[:3]
    return result


def _moment() -> str:
    """Return a time between all earlier and all later rows."""
    time.sleep(0.000_01)
    noted = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    time.sleep(0.000_01)
    return noted
