"""Level one: batches of reads, on the real mirror and on the plain one, compared after each.

    python tests/model/batches.py --steps 1000000      # a step is a read that is applied
    python tests/model/batches.py --seed 17            # one seed alone, the one that failed

A seed is a world of a few wallets and tokens that changes while reads of it are under way. Reads
are complete, incomplete, failed or conditional, end in any order, and are applied in batches of any
cut, at a wall clock that jumps both ways.
"""

from __future__ import annotations

import argparse
import atexit
import copy
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.plain_mirror import PlainMirror, fields_of
from provider import token, wallet

from nftsync.provider.webhooks import Unusable
from nftsync.records import CONTENT_COLUMNS, Applied, Content, Entry, TokenRead, WalletRead
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.rules import check_rules
from nftsync.times import shifted

WALLETS = [wallet(number) for number in range(5)]
TOKENS = [token(number) for number in range(7)]
AMOUNTS = ["0", "1", "1", "2", "000", "007", "1.5", "", str(2**256 - 1)]
STEPS_OF_A_SEED = 250
MEMORY = Path("/dev/shm")  # nothing waits for a disk there


class Differs(AssertionError):
    """The mirror does not say what its rules say."""


def content(**fields: str | None) -> Content:
    extra = {key: value for key, value in fields.items() if key not in CONTENT_COLUMNS and value}
    values: list[str | None] = [fields.get(column) for column in CONTENT_COLUMNS[:-1]]
    return (*values, json.dumps(extra, sort_keys=True, separators=(",", ":")) if extra else None)


class World:
    """What the provider would answer now. Few values, so that states come back."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: Either lists are cut off or bare, or lists and single reads contradict each other; where
        #: both do, an incomplete list counts as if it had shown all that its wallet holds.
        self.is_whole = rng.random() < 0.5
        self.held: dict[str, dict[str, str]] = {each: {} for each in WALLETS}
        self.shown: dict[str, dict[str, str | None]] = {each: {"name": "x"} for each in TOKENS}
        self.detail: dict[str, dict[str, str | None]] = {each: {} for each in TOKENS}
        #: Lists show no record of these.
        self.bare = set[str]() if self.is_whole else set(rng.sample(TOKENS, rng.randint(0, 2)))
        for _ in range(12):
            self.change_balance()
        self.before = copy.deepcopy((self.held, self.shown, self.detail))

    def change(self) -> None:
        """Something changes, or the last change is undone: there skipping goes wrong first."""
        now = copy.deepcopy((self.held, self.shown, self.detail))
        if self.rng.random() < 0.25:
            self.held, self.shown, self.detail = self.before
        else:
            self.rng.choice([self.change_balance] * 3 + [self.change_token] * 2 + [self.empty])()
        self.before = now

    def change_balance(self) -> None:
        lines = self.held[self.rng.choice(WALLETS)]
        token_id = self.rng.choice(TOKENS)
        if token_id in lines and self.rng.random() < 0.4:
            del lines[token_id]
        else:
            lines[token_id] = self.rng.choice(AMOUNTS)

    def change_token(self) -> None:
        token_id = self.rng.choice(TOKENS)
        name = self.rng.choice(["name", "description", "rarity", "contract_address"])
        fields = self.shown if name in {"name", "rarity"} else self.detail
        if self.is_whole:
            fields = self.rng.choice([self.shown, self.detail])
        fields[token_id][name] = self.rng.choice([None, "x", "y"])

    def empty(self) -> None:
        if self.rng.random() < 0.2:
            self.held[self.rng.choice(WALLETS)].clear()

    def entries(self, wallet_id: str) -> list[Entry]:
        return [
            (token_id, amount, None if token_id in self.bare else content(**self.shown[token_id]))
            for token_id, amount in self.held[wallet_id].items()
        ]

    def detailed(self, token_id: str) -> Content:
        return content(**self.detail[token_id])


class Batches:
    """One seed: the world, the real mirror, the plain one, and the reads under way."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.world = World(self.rng)
        self.mirror = Mirror(Path(shutil.copy(template(), folder)), write_gap=0.0)
        self.plain = PlainMirror()
        self.answers: dict[str, list[Entry]] = {}
        self.under_way: list[WalletRead | TokenRead] = []
        self.sequence = 0
        self.clock = "2026-01-01T00:00:00.000000Z"
        self.last_observed = ""
        self.compared = 0
        self.run_ids = [
            self.mirror.connection.execute(
                "INSERT INTO sync_runs (kind, status, started_at, first_ticket, with_tokens)"
                " VALUES ('sync', 'interrupted', ?, 0, 0)",
                (self.clock,),
            ).lastrowid,
            None,
        ]
        with self.mirror.transaction(self.clock) as transaction:
            sent = [Delivery(body, Unusable("")) for body in (b"1", b"2")]
            store(transaction.connection, sent, self.clock)
        rows = self.mirror.connection.execute("SELECT webhook_id FROM webhooks")
        self.webhooks = [None, *(row[0] for row in rows)]
        self.figures: Counter[str] = Counter()

    def run(self, steps: int = STEPS_OF_A_SEED) -> Counter[str]:
        while self.figures["reads"] < steps:
            self.rng.choice([self.world.change, self.tick, self.begin, self.begin, self.apply])()
        self.apply_all()
        self.mirror.index_tokens()
        self.check_search()
        for rule in check_rules(self.mirror.path, max(self.clock, self.last_observed)):
            if rule.broken:
                raise Differs(f"{rule}")
        return self.figures

    def tick(self) -> None:
        """Time passes; now and then the wall clock jumps, either way."""
        seconds = self.rng.choice([0.001, 1.0, 1.0, 60.0, 86_400.0, -3_600.0])
        self.clock = shifted(self.clock, timedelta(seconds=seconds))

    # Reads ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A read takes its number, and sees the world as it is."""
        self.sequence += self.rng.choice([1, 1, 5])
        asked: dict[str, Any] = {"sequence": self.sequence, "started_at": self.clock}
        asked["webhook_id"] = self.rng.choice(self.webhooks)
        if self.rng.random() < 0.15:
            self.under_way.append(self.token_read(asked))
        else:
            self.under_way.append(self.wallet_read(asked))

    def token_read(self, asked: dict[str, Any]) -> TokenRead:
        token_id = self.rng.choice(TOKENS)
        if self.rng.random() < 0.1:
            return TokenRead(token_id=token_id, outcome="failed", error="no", **asked)
        return TokenRead(
            token_id=token_id, outcome="ok", content=self.world.detailed(token_id), **asked
        )

    def wallet_read(self, asked: dict[str, Any]) -> WalletRead:
        wallet_id = self.rng.choice(WALLETS)
        entries = self.world.entries(wallet_id)
        kind = self.rng.random()
        if kind < 0.08:
            return WalletRead(wallet_id=wallet_id, outcome="failed", error="no", **asked)
        if kind < 0.16 and not self.world.is_whole:
            some = [entry for entry in entries if self.rng.random() < 0.5]
            return WalletRead(
                wallet_id=wallet_id, outcome="incomplete", error="page", entries=some, **asked
            )
        digest = json.dumps(entries)
        self.answers[digest] = entries
        row = self.mirror.connection.execute(
            "SELECT body_sha256, etag FROM wallets WHERE wallet_id = ?", (wallet_id,)
        ).fetchone()
        if kind < 0.7 and row is not None and row[0] == digest:
            return WalletRead(wallet_id=wallet_id, outcome="unchanged", digest=digest, **asked)
        return WalletRead(
            wallet_id=wallet_id, outcome="ok", entries=entries, digest=digest, etag="e", **asked
        )

    # Applying ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Some of the reads under way end, whichever; one transaction takes them."""
        if self.rng.random() < 0.05:
            self.mirror.index_tokens()
        self.rng.shuffle(self.under_way)
        count = self.rng.choice([1, 1, 2, 3, 5, 9])
        reads, self.under_way = self.under_way[:count], self.under_way[count:]
        if not reads:
            return
        run_id = self.rng.choice(self.run_ids)
        if self.rng.random() < 0.03:
            self.give_up(reads, run_id)
        with self.mirror.transaction(self.clock) as transaction:
            at = transaction.observed_at
            applied = transaction.apply(reads, run_id=run_id)
        if at != max(self.clock, self.last_observed):
            raise Differs(f"stored at {at}: the clock says {self.clock}, {self.last_observed}")
        self.figures["batches"] += 1
        for one in applied:
            self.expect(one, at, run_id)
        self.compare()

    def give_up(self, reads: list[WalletRead | TokenRead], run_id: int | None) -> None:
        """A transaction that does not come to its end leaves nothing."""
        try:
            with self.mirror.transaction(self.clock) as transaction:
                transaction.apply(reads, run_id=run_id)
                raise KeyboardInterrupt  # noqa: TRY301
        except KeyboardInterrupt:
            self.compare()

    def apply_all(self) -> None:
        while self.under_way:
            self.apply()

    def expect(self, one: Applied, at: str, run_id: int | None) -> None:
        """Tell the plain mirror of a read, and compare what became of it."""
        read, plain = one.read, self.plain
        self.figures["reads"] += 1
        self.figures[one.result] += 1
        if isinstance(read, TokenRead):
            expected = plain.apply_token(read, at)
            if one.result != expected:
                raise Differs(f"{read}: {one.result}, not {expected}")
            return
        known = self.answers.get(read.digest or "", [])
        if read.outcome == "unchanged":
            if one.result == "stale":  # always allowed: it is read again, whole
                return
            why = plain.would_change(read.wallet_id, known)
            if why is not None:
                raise Differs(f"{read}: taken as unchanged, though it changes {why}")
        before = plain.wallets[read.wallet_id].sequence if read.wallet_id in plain.wallets else 0
        tokens = {each: plain.tokens[each].versions for each in plain.tokens}
        changes = len(plain.changes)
        expected = plain.apply_wallet(read, at, run_id, known)
        if one.result != expected:
            raise Differs(f"{read}: {one.result}, not {expected}")
        if expected in {"ok", "unchanged"}:
            self.note_state(read, before, moved=len(plain.changes) > changes)
        counts = Counter(
            "added" if old is None else "removed" if new is None else "changed"
            for _, _, old, new, *_ in plain.changes[changes:]
        )
        told = one.balances_added, one.balances_changed, one.balances_removed
        if told != (counts["added"], counts["changed"], counts["removed"]):
            raise Differs(f"{read}: counts {told}, not {dict(counts)}")
        if one.tokens_added != len(plain.tokens.keys() - tokens.keys()):
            raise Differs(f"{read}: tokens added {one.tokens_added}")

    def note_state(self, read: WalletRead, before: int, *, moved: bool) -> None:
        """Another balance or content begins a new state; what was found before goes on.

        That a token's content has changed is told by its versions; of a change that the read before
        (`before`) was too early for nobody knows whether that read had seen it.
        """
        wallet = self.plain.wallets[read.wallet_id]
        found = self.plain.state_of(read.wallet_id), read.digest
        late = [each for each in wallet.lines if self.plain.tokens[each].changed_by > before]
        was = wallet.found and wallet.found[0]
        new = moved or was is None
        if not new and read.outcome == "ok":  # an unchanged list says nothing of reads by id
            new = any(was.get(each) != found[0].get(each) for each in late)
        wallet.fewest_states += new
        wallet.most_states += new or bool(late) or wallet.found != found
        wallet.found = found

    # Comparing -----------------------------------------------------------------------------------

    def compare(self) -> None:
        """The database says what the plain mirror says."""
        query = self.mirror.connection.execute
        changes = query(
            "SELECT wallet_id, token_id, old_amount, new_amount, observed_at, baseline, run_id,"
            " webhook_id FROM balance_changes ORDER BY change_id LIMIT -1 OFFSET ?",
            (self.compared,),
        ).fetchall()
        self.same("changes", sorted(map(str, changes)), self.expected_changes())
        times = [self.last_observed, *(row[4] for row in changes)]
        self.same("times of changes", times, sorted(times))
        rows = query(
            "SELECT b.wallet_id, b.token_id, b.amount, b.first_seen_at, b.updated_at, h.held_since"
            " FROM balances b JOIN holdings h USING (wallet_id, token_id)"
        )
        self.same(
            "balances",
            {row[:2]: row[2:] for row in rows},
            {
                key: (line.amount, line.first_seen_at, line.updated_at, line.held_since)
                for key, line in self.plain.balances().items()
            },
        )
        self.compare_wallets()
        self.compare_tokens()
        (self.last_observed,) = query(
            "SELECT max(coalesce((SELECT max(observed_at) FROM balance_changes), ''),"
            " coalesce((SELECT max(observed_at) FROM token_changes), ''),"
            " coalesce((SELECT max(observed_at) FROM wallet_state_rows), ''))"
        ).fetchone()

    def expected_changes(self) -> list[str]:
        new = self.plain.changes[self.compared :]
        self.compared += len(new)
        return sorted(map(str, new))

    def compare_wallets(self) -> None:
        query = self.mirror.connection.execute
        rows = query(
            "SELECT w.wallet_id, w.first_seen_at, w.status, w.error, w.synced_at,"
            " sum(s.reads), count(s.reads)"
            " FROM wallets w LEFT JOIN wallet_states s USING (wallet_id) GROUP BY wallet_id"
        ).fetchall()
        for wallet_id, *_, states in rows:
            wallet = self.plain.wallets[wallet_id]
            if not wallet.fewest_states <= states <= wallet.most_states:
                raise Differs(f"{wallet_id}: {states} states, {wallet}")
            wallet.fewest_states = wallet.most_states = states
        self.same(
            "wallets",
            {row[0]: (*row[1:5], row[5] or 0) for row in rows},
            {
                wallet_id: (x.first_seen_at, x.status, x.error, x.synced_at, x.complete_reads)
                for wallet_id, x in self.plain.wallets.items()
            },
        )
        offered = query("SELECT wallet_id, body_sha256, etag FROM wallets WHERE status <> 'never'")
        for wallet_id, digest, etag in offered:
            if digest is None:
                self.same("an ETag without the answer it belongs to", etag, None)
                continue
            self.figures["skips offered"] += 1
            why = self.plain.would_change(wallet_id, self.answers[digest])
            if why is not None:
                raise Differs(f"wallet {wallet_id}: a skip is offered that would hide {why}")

    def compare_tokens(self) -> None:
        columns = ", ".join(CONTENT_COLUMNS)
        rows = self.mirror.connection.execute(
            f"SELECT token_id, first_seen_at, updated_at, {columns} FROM tokens"
        )
        found = {row[0]: (row[1], row[2], fields_of(row[3:])) for row in rows}
        expected = {
            token_id: (x.first_seen_at, x.updated_at, x.fields())
            for token_id, x in self.plain.tokens.items()
        }
        self.same("tokens", found, expected)

    def check_search(self) -> None:
        """The full-text index knows the names that the tokens have, and no other."""
        query = self.mirror.connection.execute
        for name in ("x", "y"):
            rows = query("SELECT rowid FROM tokens_fts WHERE tokens_fts MATCH ?", (f"name:{name}",))
            found = sorted(row[0] for row in rows)
            rows = query("SELECT token_no FROM tokens WHERE name = ? ORDER BY 1", (name,))
            self.same(f"tokens named {name}", found, [row[0] for row in rows])

    def same(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            if isinstance(found, dict):
                keys = [
                    each
                    for each in found.keys() | expected.keys()
                    if found.get(each) != expected.get(each)
                ]
                found = {key: found.get(key) for key in keys}
                expected = {key: expected.get(key) for key in keys}
            raise Differs(f"{what}:\n  the mirror says {found}\n  its rules say   {expected}")


@cache
def template() -> Path:
    """An empty database, made once."""
    path = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)) / "template.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    with Mirror(path) as mirror:
        mirror.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@contextmanager
def place() -> Iterator[Path]:
    """A folder in memory."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def run_seed(seed: int, steps: int = STEPS_OF_A_SEED) -> Counter[str]:
    """One seed; what differs names it and the command that repeats it."""
    with place() as folder:
        batches = Batches(seed, folder)
        try:
            return batches.run(steps)
        except (AssertionError, sqlite3.Error) as error:
            error.add_note(f"seed {seed}: python tests/model/batches.py --seed {seed}")
            raise
        finally:
            batches.mirror.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed alone")
    asked = parser.parse_args()
    if asked.seed is not None:
        print(dict(run_seed(asked.seed)))
        return
    began, total, seed = time.monotonic(), Counter[str](), asked.first
    while total["reads"] < asked.steps:
        total += run_seed(seed)
        seed += 1
    seconds = time.monotonic() - began
    told = ", ".join(f"{count:,} {name}" for name, count in total.items())
    print(f"seeds {asked.first} to {seed - 1}: {told}; {seconds:.0f} s")


if __name__ == "__main__":
    main()
