"""A real history of 10 blocks, two at a time, through the sandbox, a mirror and its frames."""

import gzip
import time
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
import pandas as pd
import pytest

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import World
from tests.kit.worlds import mirrored, replayed

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real holdings are not beside the project (../shared/data)"
)
#: Of the 58 blocks; more would take time without another result.
BLOCKS, TOGETHER = slice(8, 18), 2
Pair = tuple[str, str]


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rb") as file:
        return [msgspec.json.decode(line) for line in file]


def rows(frame: pd.DataFrame, *names: str) -> dict[Pair, tuple[object, ...]]:
    """Return some columns of each row, by wallet and token."""
    keys = list(zip(frame["wallet_id"], frame["token_id"], strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, frame[[*names]].itertuples(index=False, name=None), strict=True))


def differences(before: dict[Pair, int], after: dict[Pair, int]) -> dict[Pair, tuple[Any, ...]]:
    """Return the amount before and after and the kind of each difference."""
    found = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            kind = "arrived" if old is None else "left" if new is None else "changed"
            found[key] = (old, new, kind)
    return found


def test_holdings_ages_and_differences_of_each_step_match_the_file(tmp_path):
    """Before the first block, all wallets are read, so that no change is an initial holding."""
    blocks = defaultdict(list)
    for change in lines("changes.jsonl.gz"):
        change["wallet"] = str(uuid5(NAMESPACE_URL, change["owner"]))
        blocks[change["block"]].append(change)
    chosen = list(blocks.values())[BLOCKS]
    steps = [[*chain(*chosen[n : n + TOGETHER])] for n in range(0, len(chosen), TOGETHER)]
    named = {(change["contract"], change["tokenId"]) for step in steps for change in step}
    wallets = sorted({change["wallet"] for step in steps for change in step})
    world, tokens = World(organization_id=str(uuid5(NAMESPACE_URL, "organization"))), {}
    for record in lines("tokens.jsonl.gz"):
        key = record["contractAddress"], record["blockchainTokenId"]
        if key in named:
            tokens[key] = record["id"]
            world.add_token(record["id"], msgspec.Raw(msgspec.json.encode(record)))
    for wallet in wallets:
        world.add_wallet(wallet)
    database, times, states, began = tmp_path / "history.db", [], [{}], {}

    def sync(ids):
        options = {"base_url": server.url, "database": database, "progress": False}
        result = nftsync.sync(ids, **options)
        assert result.status == "ok", result.failures[:3]
        time.sleep(0.000_01)  # between all earlier and all later rows
        times.append(pd.Timestamp.now("UTC"))
        time.sleep(0.000_01)
        return result

    with SandboxServer(world) as server:
        sync(wallets)
        for step in steps:
            state = dict(states[-1])
            for change in step:
                key = change["wallet"], tokens[change["contract"], change["tokenId"]]
                state[key] = int(change["amount"])
                if state[key]:
                    world.set_amount(*key, change["amount"])
                else:
                    with suppress(InputError):  # the first holdings are unknown
                        world.remove(*key)
            states.append({key: amount for key, amount in state.items() if amount})
            sync(sorted({change["wallet"] for change in step}))
        last = sync(wallets)
    counts = last.balances
    assert (counts.added, counts.changed, counts.removed) == (0, 0, 0)
    assert last.wallets.unchanged == len(wallets) > 500
    texts = {key: str(amount) for key, amount in states[-1].items()}
    assert mirrored(database) == replayed(database) == texts

    for place, (moment, state) in enumerate(zip(times, states, strict=False)):
        # The step in which each holding's present stretch began.
        began = {key: began.get(key, place) for key in state}
        held = frames.holdings(database, as_of=moment)
        assert rows(held, "amount") == {key: (amount,) for key, amount in state.items()}
        ages = frames.holding_ages(database, at=moment)
        for frame in (held, ages):
            since = rows(frame, "held_since").items()
            assert {key: bisect_left(times, at) for key, (at,) in since} == began
        assert not ages["censored"].any()
        assert (ages["age"] == moment - ages["held_since"]).all()
    counterparties = 0
    for start, end in (*pairwise(range(len(states))), (0, 5), (1, 1), (1, 4)):
        diff = frames.diff(database, times[start], times[end], amounts="exact")
        meant = differences(states[start], states[end])
        assert rows(diff, "before", "after", "kind") == meant, (start, end)
        if end != start + 1:  # over several steps, the other side may cancel out
            continue
        known = diff[diff["counterparty_wallet_id"].notna()]
        counterparties += len(known)
        moved = {key: (new or 0) - (old or 0) for key, (old, new, _) in meant.items()}
        for (wallet, token), (other,) in rows(known, "counterparty_wallet_id").items():
            assert moved[str(other), token] == -moved[wallet, token]
    assert counterparties > 0
