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
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from ast import literal_eval
from bisect import bisect
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.lake_costs import object_store
from nftsync.records import CONTENT_COLUMNS
from nftsync.times import now
from tests.kit.lake_cluster import Cluster, check_lake, cluster_of, environment, rows
from tests.kit.provider import Provider, entry, reply, token, wallet

WALLETS, TOKENS, BUCKETS = 60, 40, 5
#: What a lake and a database have in common: all but numbers; times by their round.
TABLES = {
    "wallets": "SELECT wallet_id, label, wallet_group, tracked, status, error, at(first_seen_at)"
    " FROM wallets",
    "balances": "SELECT wallet_id, token_id, amount, at(held_since), at(b.first_seen_at),"
    " at(b.updated_at) FROM balance_rows b JOIN wallets USING (wallet_no)"
    " JOIN tokens USING (token_no)",
    "tokens": f"SELECT token_id, {', '.join(CONTENT_COLUMNS)}, at(first_seen_at) FROM tokens",
    "balance_changes": "SELECT wallet_id, token_id, old_amount, new_amount, baseline,"
    " at(observed_at) FROM balance_changes",
    "wallet_states": "SELECT wallet_id, reads, s.body_sha256, at(observed_at)"
    " FROM wallet_state_rows s JOIN wallets USING (wallet_no)",
    "contracts": "SELECT contract, guessed_name FROM contracts",
    "removals": "SELECT coalesce(wallet_id, ''), token_id, old_amount, new_amount, emptied, held,"
    " new_name, at(observed_at) FROM removal_rows LEFT JOIN wallets USING (wallet_no)"
    " JOIN tokens USING (token_no)",
}


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
            self.provider.holds(
                wallet(number),
                *(self._entry(place, amount) for place, amount in holdings.items()),
            )
            if self.rng.random() < 0.05:
                self.provider.on(path, reply(b"no", self.rng.choice((404, 500))))

    def _entry(self, place: int, amount: str) -> Any:
        name = self.names.get(place, f"Name {place}")
        metadata = {} if name is None else {"name": name}
        return entry(token(place), amount, contractAddress=f"0x{place % 3}", metadata=metadata)


def _lines(world: World) -> str:
    lines = [f"{wallet(n)},L{n % 7 or ''},{'ab'[n % 2]}" for n in sorted(world.held)]
    return "\n".join(["wallet_id,label,group", *lines])


class Pair:
    """A lake and a database that the same commands change."""

    def __init__(self, folder: Path, lake: str, url: str, cluster: Cluster) -> None:
        self.folder, self.lake, self.url, self.cluster = folder, lake, url, cluster
        # So few wallets would otherwise rarely have removals held for review.
        (folder / "nftsync.toml").write_text("removal_rows = 5\n")
        self.began: list[str] = []
        self.lost: set[tuple[str, str]] = set()

    def run(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "nftsync", *words],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in {0, 1}, done.stderr
        return done.returncode, done.stdout

    def sync(self, more: list[str], tolerance: int) -> None:
        """Sync both, and compare what they report."""
        self.began.append(now())
        words = ("--wallets-file", "w.csv", "--base-url", self.url, "--retries", "1", "--json")
        new = () if len(self.began) > 1 else ("--buckets", str(BUCKETS))
        where = ("--scheduler", self.cluster.address, *new)
        codes, results = zip(
            self.run("lake", "sync", self.lake, *where, *words, *more),
            self.run("sync", "-d", "a.db", *words, *more),
            strict=True,
        )
        assert codes[0] == codes[1], results
        lake, database = (json.loads(str(text)) for text in results)
        unchanged = [result["wallets"].pop("unchanged") for result in (lake, database)]
        assert abs(unchanged[0] - unchanged[1]) <= tolerance, unchanged
        del lake["tokens"]["changed"], database["tokens"]["changed"]
        for name in ("status", "wallets", "tokens", "balances"):
            assert lake[name] == database[name], (name, lake, database)

    def accept(self) -> None:
        """Approve all held removals in both."""
        self.began.append(now())
        where = ("--scheduler", self.cluster.address)
        self.run("lake", "removals", "accept", self.lake, *where, "--yes")
        self.run("removals", "accept", "-d", "a.db", "--yes")

    def compare(self) -> int:
        """Compare all tables; return the number of removals held for review."""
        (self.folder / "copy.db").unlink(missing_ok=True)
        assert self.run("lake", "export", self.lake, "copy.db")[0] == 0
        check_lake(self.lake)
        for name, query in TABLES.items():
            found = [self._rows(path, query) for path in ("copy.db", "a.db")]
            assert found[0] == found[1], (name, set(found[0]) ^ set(found[1]))
        self._compare_history()
        return len(self._rows("a.db", "SELECT 1 FROM removal_rows WHERE held"))

    def _compare_history(self) -> None:
        """Compare each token's contents after changes, and look for the one loss."""
        query = "SELECT token_id, after, at(observed_at) FROM token_changes ORDER BY change_id"
        lake, database = (set(self._rows(path, query)) for path in ("copy.db", "a.db"))
        contents = {(row[0], row[1]) for row in map(literal_eval, database)}
        for row in map(literal_eval, lake - database):
            assert row[:2] in contents, row  # a bucket saw it later, or again
        seen = {
            (row["token_id"], bisect(self.began, row["first_seen_at"]))
            for row in rows(self.lake, "tokens")
        }
        for token_id, after, round_ in map(literal_eval, database - lake):
            if not any(row[:2] == (token_id, after) for row in map(literal_eval, lake)):
                self.lost.add((token_id, after))
                assert (token_id, round_) in seen, (token_id, after, round_)

    def _rows(self, path: str, query: str) -> list[str]:
        return rows_of(self.folder / path, query, self.began)


def rows_of(path: Path, query: str, began: list[str]) -> list[str]:
    """Query a database, where `at` gives the round that a time is in."""

    def at(time: str | None) -> int | None:
        return None if time is None else bisect(began, time)

    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("at", 1, at)
        return sorted(map(repr, connection.execute(query)))


def run_seed(seed: int, rounds: int, folder: Path, lake: str, cluster: Cluster) -> dict[str, int]:
    """Make rounds of changes; return how many there were of each kind."""
    rng = random.Random(seed)
    figures = {"rounds": 0, "held": 0, "accepted": 0}
    with Provider() as provider:
        world, pair = World(provider, rng), Pair(folder, lake, provider.url, cluster)
        more = world.change()
        for _ in range(rounds):
            (folder / "w.csv").write_text(_lines(world))
            pair.sync(more, world.edited)
            held = pair.compare()
            figures["rounds"] += 1
            figures["held"] += bool(held)
            if held and rng.random() < 0.5:
                pair.accept()
                assert pair.compare() == 0
                figures["accepted"] += 1
            more = world.change()
    return figures | {"lost": len(pair.lost)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=26)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", type=float, help="share of an S3's requests that fail")
    given = parser.parse_args()
    seeds = range(given.seeds) if given.seed is None else [given.seed]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        (shared := Path(name, "cluster")).mkdir()
        if given.faults is not None:
            os.environ |= stack.enter_context(object_store(shared / "log", given.faults))
        cluster = stack.enter_context(cluster_of(shared, 2))
        for seed in seeds:
            (folder := Path(name, str(seed))).mkdir()
            lake = str(folder / "lake") if given.faults is None else f"s3://lakes/{seed}"
            figures = run_seed(seed, given.rounds, folder, lake, cluster)
            print(f"seed {seed}: {figures}", flush=True)


if __name__ == "__main__":
    main()
