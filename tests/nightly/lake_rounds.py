"""Rounds of random changes: after each, a lake and a database have the same rows in each table.

Both read the same provider. Times are compared by their round; numbers of rows and of reads may
differ. A wallet that shows a new content first counts as changed, so `unchanged` may differ by the
edited tokens. Tokens' history is per bucket: of a token's contents, a lake may lack one that only
buckets showed which had not known the token (the one loss), and a bucket may see one later.
"""

from __future__ import annotations

import os
import random
from bisect import bisect
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.lake_costs import object_store
from tests.kit import lakes
from tests.kit.lake_cluster import Cluster, Pair, cluster_of
from tests.kit.provider import Provider, entry, path_of, reply, token, wallet
from tests.nightly.rounds import run_seeds

WALLETS, TOKENS, BUCKETS = 60, 40, 5


class World:
    """Wallets' amounts and tokens' content, and a provider that shows them."""

    def __init__(self, provider: Provider, rng: random.Random) -> None:
        self.provider, self.rng = provider, rng
        self.names: dict[int, str | None] = {}
        self.held: dict[int, dict[int, str]] = {number: {} for number in range(WALLETS // 2)}
        for holdings in self.held.values():
            for _ in range(rng.randrange(6)):
                holdings[rng.randrange(TOKENS)] = str(rng.randrange(1, 9))

    def change(self) -> tuple[int, list[str]]:
        """Change something; return the number of edited tokens, and arguments of the sync."""
        rng, edited = self.rng, 0
        kind = rng.choice(("few", "few", "edited", "nothing", "emptied", "flood", "allowed"))
        if kind == "few":
            for _ in range(rng.randrange(1, 12)):
                self._change_one()
        elif kind == "edited":
            edited = rng.randrange(1, 9)
            for _ in range(edited):
                name = rng.choice((None, "A", f"N{rng.randrange(99)}"))
                self.names[rng.randrange(TOKENS)] = name
        elif kind != "nothing":
            for number in rng.sample(sorted(self.held), len(self.held) * 3 // 4):
                emptied = kind == "emptied" or rng.random() < 0.5
                self.held[number] = {} if emptied else {rng.randrange(TOKENS): "3"}
        for number, holdings in self.held.items():
            refused = (reply(b"no", rng.choice((404, 500))),) if rng.random() < 0.05 else ()
            self.provider.on(path_of(number), *refused)
            self.provider.holds(wallet(number), *(self._entry(*each) for each in holdings.items()))
        return edited, ["--allow-removals"] * (kind == "allowed")

    def _change_one(self) -> None:
        rng, held = self.rng, self.held
        number = rng.choice(sorted(held))
        kind = rng.randrange(6)
        if kind == 0:
            held[rng.randrange(WALLETS)] = {rng.randrange(TOKENS): "1"}
        elif kind == 1:
            held[number] |= {rng.randrange(TOKENS): rng.choice(("0", "007.50", "0x10", "1", "12"))}
        elif kind == 2 and held[number]:
            gone = rng.choice(sorted(held[number]))
            held[rng.choice(sorted(held))] |= {gone: held[number].pop(gone)}
        elif kind == 3 and held[number]:
            held[number].pop(rng.choice(sorted(held[number])))
        elif kind == 4:
            held[number] = {}
        else:
            held[number] |= {TOKENS + rng.randrange(9): "1"}

    def _entry(self, place: int, amount: str) -> Any:
        name = self.names.get(place, f"Name {place}")
        metadata = {} if name is None else {"name": name}
        return entry(token(place), amount, contractAddress=f"0x{place % 3}", metadata=metadata)

    def lines(self) -> list[str]:
        return [f"{wallet(n)},L{n % 7 or ''},{'ab'[n % 2]}" for n in sorted(self.held)]


def compare_history(pair: Pair, lost: set[tuple[str, str]]) -> None:
    """Compare each token's contents after changes; add contents that the lake lacks to `lost`."""
    query = "SELECT token_id, after, at(observed_at) FROM token_changes"
    lake, database = (set(pair.query(path, query)) for path in (pair.copy, pair.database))
    for token_id, after, _ in lake - database:  # a bucket saw it later, or again
        assert (token_id, after) in {row[:2] for row in database}, (token_id, after)
    seen = {
        (row["token_id"], bisect(pair.began, row["first_seen_at"]))
        for row in lakes.rows(pair.lake, "tokens")
    }
    for token_id, after, round_ in database - lake:
        if (token_id, after) not in {row[:2] for row in lake}:
            lost.add((token_id, after))
            assert (token_id, round_) in seen, (token_id, after, round_)


def compare(
    seed: int, folder: Path, cluster: Cluster, *, rounds: int, lake: str | None = None
) -> Counter[str]:
    os.environ["NFTSYNC_REMOVAL_ROWS"] = "5"  # so few wallets would rarely have held removals
    rng, lost, figures = random.Random(seed), set[tuple[str, str]](), Counter[str]()
    with Provider() as provider:
        world, pair = World(provider, rng), Pair(folder, provider.url, cluster, lake)
        for _ in range(rounds):
            edited, more = world.change()
            pair.sync(world.lines(), *more, buckets=BUCKETS, edited=edited)
            pair.compare()
            compare_history(pair, lost)
            held = pair.removals()
            accepts = bool(held) and rng.random() < 0.5
            if accepts:
                pair.accept()
                pair.compare()
                compare_history(pair, lost)
                assert not pair.removals()
            figures.update(rounds=1, held=bool(held), accepted=accepts)
    return figures + Counter(lost=len(lost))


def run_seed(seed: int, folder: Path, *, rounds: int, faults: float) -> Counter[str]:
    with ExitStack() as stack:
        lake = f"s3://lakes/{seed}" if faults else None
        if faults:
            os.environ |= stack.enter_context(object_store(folder / "log", faults))
        cluster = stack.enter_context(cluster_of(folder, 2))
        return compare(seed, folder, cluster, rounds=rounds, lake=lake)


if __name__ == "__main__":
    run_seeds(__doc__, run_seed, seeds=3, rounds=26, faults=0.0)
