"""What happens at the demo's provider after the first sync: the same each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from nftsync.sandbox.control import Sandbox
from nftsync.sandbox.world import World

__all__ = ["NEW_WALLET", "TRANSFERS", "Happening", "gather", "happenings"]

_SEED = 7
_PLAIN_TRANSFERS = 8
#: All of them: the plain ones, one NFT that goes on and comes back, some copies, two into a wallet
#: that is new.
TRANSFERS = _PLAIN_TRANSFERS + 5
#: The label of the wallet that is opened after the first sync.
NEW_WALLET = "Customer 041"


#: How many NFTs have changed hands before the first sync.
_GATHERED = 300


class Happening(NamedTuple):
    """One change at the provider.

    Attributes:
        cause: makes it, and returns the ids of the webhooks that follow.
        opens: the wallet that is new with it, or None.
    """

    cause: Callable[[], list[str]]
    opens: str | None = None


def gather(world: World) -> None:
    """Let some wallets hold much more than others, as in the field; no webhooks leave for that."""
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    wallets = world.wallets()
    takers = rng.choices(wallets, [1 / rank for rank in range(1, len(wallets) + 1)], k=_GATHERED)
    for taker in takers:
        giver = rng.choice(wallets)
        token, amount = rng.choice(list(_held(world, giver).items()))
        world.transfer(giver, taker, token, amount)


def happenings(sandbox: Sandbox) -> Iterator[Happening]:
    """Each change in turn; the next is made up from what the ones before have left.

    Args:
        sandbox: the provider, with the wallets of the demo.
    """
    rng = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
    wallets = sandbox.world.wallets()
    for _ in range(_PLAIN_TRANSFERS):
        giver, taker = rng.sample(wallets, 2)
        token = rng.choice(list(_held(sandbox.world, giver)))
        yield Happening(partial(sandbox.transfer, giver, taker, token, 1))
    yield from _goes_on_and_comes_back(sandbox, rng, wallets)
    yield from _some_copies(sandbox, rng, wallets)
    yield from _into_a_new_wallet(sandbox, rng, wallets)
    minted = {"name": "Freshly Minted", "editionId": 0, "totalEdition": 3}
    yield Happening(lambda: sandbox.mint(wallets[0], 3, minted)[1])
    renamed = next(iter(_held(sandbox.world, wallets[-1])))
    record = msgspec.json.decode(sandbox.world.token_body(renamed) or b"{}")
    metadata = {**record.get("metadata", {}), "name": "Renamed after the first sync"}
    yield Happening(partial(sandbox.edit_metadata, renamed, metadata))


def _goes_on_and_comes_back(
    sandbox: Sandbox, rng: random.Random, wallets: list[str]
) -> Iterator[Happening]:
    """One NFT is lent: from the first wallet to another and back."""
    borrower = rng.choice(wallets[1:])
    amounts = _held(sandbox.world, wallets[0])
    token = rng.choice([token for token, amount in amounts.items() if amount == 1])
    yield Happening(partial(sandbox.transfer, wallets[0], borrower, token, 1))
    yield Happening(partial(sandbox.transfer, borrower, wallets[0], token, 1))


def _some_copies(sandbox: Sandbox, rng: random.Random, wallets: list[str]) -> Iterator[Happening]:
    """A third of the copies of one NFT changes hands, so that an amount changes."""
    giver = max(wallets, key=lambda wallet: max(_held(sandbox.world, wallet).values()))
    amounts = _held(sandbox.world, giver)
    token = max(amounts, key=lambda token: amounts[token])
    taker = rng.choice([wallet for wallet in wallets if wallet != giver])
    yield Happening(partial(sandbox.transfer, giver, taker, token, amounts[token] // 3))


def _into_a_new_wallet(
    sandbox: Sandbox, rng: random.Random, wallets: list[str]
) -> Iterator[Happening]:
    """A wallet is opened and given two NFTs by others."""
    new = sandbox.world.add_wallet()
    for opens in (new, None):
        giver = rng.choice(wallets)
        token = rng.choice(list(_held(sandbox.world, giver)))
        yield Happening(partial(sandbox.transfer, giver, new, token, 1), opens)


def _held(world: World, wallet_id: str) -> dict[str, int]:
    """How many of which token a wallet holds, in the order of its list."""
    body = world.balances_body(wallet_id)
    entries = msgspec.json.decode(body or b"{}").get("nftTokenBalances", [])
    return {entry["tokenId"]: int(entry["amount"]) for entry in entries}
