"""Rounds of random changes: after each, a lake and a database have the same rows in each table.

    python -m tests.nightly.lake_rounds --rounds 26 --seeds 3
    python -m tests.nightly.lake_rounds --rounds 26 --seed 2     # one alone, that failed
    python -m tests.nightly.lake_rounds --faults 0.08            # on an S3 that often answers 503

Both read the same provider. Times are compared by their round; numbers of rows and of reads may
differ. A wallet that shows a new content first counts as changed, so `unchanged` may differ by the
edited tokens. Tokens' history is per bucket: of a token's contents, a lake may lack one that only
buckets showed which had not known the token (the one loss), and a bucket may see one later.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from bisect import bisect
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.lake_costs import object_store
from tests.kit.lake_cluster import Cluster, Pair, cluster_of, environment, rows
from tests.kit.provider import Provider, entry, reply, token, wallet

WALLETS, TOKENS, BUCKETS = 60, 40, 5


class World:
    """Wallets' amounts and tokens' content, and a provider that shows them."""

    def __init__(self, provider: Provider, rng: random.Random) -> None:
        self.provider, self.rng = provider, rng
        self.names: dict[int, str | None] = {}
        self.held: dict[int, dict[int, str]] = {number: {} for number in range(WALLETS // 2)}
        self.edited = 0
        for holdings in self.held.values():
            for _ in range(rng.randrange(6)):
                holdings[rng.randrange(TOKENS)] = str(rng.randrange(1, 9))

    def change(self) -> list[str]:
        """Change something, and return further arguments of the sync."""
        rng, self.edited = self.rng, 0
        kind = rng.choice(("few", "few", "edited", "nothing", "emptied", "flood", "allowed"))
        if kind == "few":
            for _ in range(rng.randrange(1, 12)):
                self._change_one()
        elif kind == "edited":
            for _ in range(rng.randrange(1, 9)):
                name = rng.choice((None, "A", f"N{rng.randrange(99)}"))
                self.names[rng.randrange(TOKENS)] = name
                self.edited += 1
        elif kind != "nothing":
            for number in rng.sample(sorted(self.held), len(self.held) * 3 // 4):
                emptied = kind == "emptied" or rng.random() < 0.5
                self.held[number] = {} if emptied else {rng.randrange(TOKENS): "3"}
        self._show()
        return ["--allow-removals"] if kind == "allowed" else []

    def _change_one(self) -> None:
        rng, held = self.rng, self.held
        number = rng.choice(sorted(held))
        kind = rng.randrange(6)
        if kind == 0:
            held[rng.randrange(WALLETS)] = {rng.randrange(TOKENS): "1"}
        elif kind == 1:
            held[number] |= {rng.randrange(TOKENS): rng.choice(("0", "7.50", "0x10", "1", "12"))}
        elif kind == 2 and held[number]:
            gone = rng.choice(sorted(held[number]))
            other = rng.choice(sorted(held))
            held[other] |= {gone: held[number].pop(gone)}
        elif kind == 3 and held[number]:
            held[number].pop(rng.choice(sorted(held[number])))
        elif kind == 4:
            held[number] = {}
        else:
            held[number] |= {TOKENS + rng.randrange(9): "1"}

    def _show(self) -> None:
        for number, holdings in self.held.items():
            path = f"/v1/wallets/{wallet(number)}/nft-balances"
            self.provider.on(path)
            self.provider.holds(wallet(number), *(self._entry(*each) for each in holdings.items()))
            if self.rng.random() < 0.05:
                self.provider.on(path, reply(b"no", self.rng.choice((404, 500))))

    def _entry(self, place: int, amount: str) -> Any:
        name = self.names.get(place, f"Name {place}")
        metadata = {} if name is None else {"name": name}
        return entry(token(place), amount, contractAddress=f"0x{place % 3}", metadata=metadata)

    def lines(self) -> list[str]:
        """Return the lines of a wallets file."""
        return [f"{wallet(n)},L{n % 7 or ''},{'ab'[n % 2]}" for n in sorted(self.held)]


def compare_history(pair: Pair, lost: set[tuple[str, str]]) -> None:
    """Compare each token's contents after changes; add contents that the lake lacks to `lost`."""
    query = "SELECT token_id, after, at(observed_at) FROM token_changes"
    lake, database = (set(pair.query(path, query)) for path in (pair.copy, pair.database))
    for token_id, after, _ in lake - database:  # a bucket saw it later, or again
        assert (token_id, after) in {row[:2] for row in database}, (token_id, after)
    seen = {
        (row["token_id"], bisect(pair.began, row["first_seen_at"]))
        for row in rows(pair.lake, "tokens")
    }
    for token_id, after, round_ in database - lake:
        if (token_id, after) not in {row[:2] for row in lake}:
            lost.add((token_id, after))
            assert (token_id, round_) in seen, (token_id, after, round_)


def run_seed(
    seed: int, rounds: int, folder: Path, cluster: Cluster, lake: str | None = None
) -> dict[str, int]:
    """Make rounds of changes; return how many there were of each kind."""
    rng, lost = random.Random(seed), set[tuple[str, str]]()
    figures = {"rounds": 0, "held": 0, "accepted": 0}
    with Provider() as provider:
        world, pair = World(provider, rng), Pair(folder, provider.url, cluster.address, lake)
        for _ in range(rounds):
            more = world.change()
            pair.sync(world.lines(), *more, buckets=BUCKETS, edited=world.edited)
            pair.compare()
            compare_history(pair, lost)
            held = pair.removals()
            figures["rounds"] += 1
            figures["held"] += bool(held)
            if held and rng.random() < 0.5:
                pair.accept()
                pair.compare()
                compare_history(pair, lost)
                assert not pair.removals()
                figures["accepted"] += 1
    return figures | {"lost": len(lost)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=26)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", type=float, help="share of an S3's requests that fail")
    given = parser.parse_args()
    seeds = range(given.seeds) if given.seed is None else [given.seed]
    for name in os.environ.keys() - environment().keys():
        del os.environ[name]
    # So few wallets would otherwise rarely have removals held for review.
    os.environ["NFTSYNC_REMOVAL_ROWS"] = "5"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        (shared := Path(name, "cluster")).mkdir()
        if given.faults is not None:
            os.environ |= stack.enter_context(object_store(shared / "log", given.faults))
        cluster = stack.enter_context(cluster_of(shared, 2))
        for seed in seeds:
            (folder := Path(name, str(seed))).mkdir()
            lake = None if given.faults is None else f"s3://lakes/{seed}"
            print(f"seed {seed}:", run_seed(seed, given.rounds, folder, cluster, lake), flush=True)


if __name__ == "__main__":
    main()
