"""A second list of a sandbox's holdings with mistakes, for trials of `nftsync compare`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random

from nftsync.errors import InputError
from nftsync.sandbox.world import World

#: Kinds of mistakes, by the difference that `nftsync compare` shows.
_KINDS = ("amount_differs", "only_here", "only_there", "unknown_wallet", "unknown_token")


def second_list(world: World, mistakes: int, *, seed: int = 0) -> Iterator[str]:
    """Yield lines of a list with mistakes of all kinds in turn; comments at its end name them."""
    amounts = {
        (wallet, token): amount
        for wallet in world.wallets()
        for token, amount in world.amounts(wallet).items()
        if amount
    }
    if mistakes > len(amounts):
        raise InputError(f"{mistakes} mistakes need as many holdings; there are {len(amounts):,}")
    chance = Random(f"second list {seed}")  # noqa: S311 - to be repeatable
    tokens = sorted({token for _, token in amounts})
    made: list[str] = []
    for number, (wallet, token) in enumerate(chance.sample(list(amounts), mistakes)):
        kind = _KINDS[number % len(_KINDS)]
        new = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        unknown = {"unknown_wallet": (new, token), "unknown_token": (wallet, new)}
        key = unknown.get(kind, (wallet, token))
        if kind == "only_there":
            absent = [one for one in tokens if (wallet, one) not in amounts]
            if not absent:
                raise InputError(f"wallet {wallet} holds all tokens; make more wallets")
            key = wallet, chance.choice(absent)
        amounts[key] = 0 if kind == "only_here" else amounts.get(key, 0) + 1
        made.append(f"# {kind} {' '.join(key)}")
    yield "wallet_id,token_id,amount"
    yield from (f"{wallet},{token},{n}" for (wallet, token), n in amounts.items() if n)
    yield from made
