"""What a world lists, what the mirror lists, what its history comes to; and what commands print."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync.sandbox.world import World

#: Seconds that a busy machine may take for what is sure to come; a limit for what never does.
PATIENCE = 240.0


class Outcome(NamedTuple):
    """What a command came to, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return self.out + self.err


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Let one process of a test run at a time make what the others then find."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def listed(world: World) -> dict[tuple[str, str], str]:
    """What the provider lists: the amount of each wallet and token."""
    found = {}
    for wallet in world.wallets():
        body = msgspec.json.decode(world.balances_body(wallet) or b"")
        for entry in body["nftTokenBalances"]:
            found[wallet, entry["tokenId"]] = entry["amount"]
    return found


def mirrored(database: Path) -> dict[tuple[str, str], str]:
    """What the mirror lists."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT wallet_id, token_id, amount FROM balances").fetchall()
    connection.close()
    return {(wallet, token): amount for wallet, token, amount in rows}


def replayed(database: Path) -> dict[tuple[str, str], str]:
    """The change log played from its start."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute(
            "SELECT wallet_id, token_id, old_amount, new_amount FROM balance_changes"
            " ORDER BY change_id"
        ).fetchall()
    connection.close()
    found: dict[tuple[str, str], str] = {}
    for wallet, token, old, new in rows:
        assert found.get((wallet, token)) == old
        if new is None:
            del found[wallet, token]
        else:
            found[wallet, token] = new
    return found
