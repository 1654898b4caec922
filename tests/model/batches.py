"""Level one: batches of reads, on the real mirror and on the plain one, compared after each.

    python -m tests.model.batches --steps 1000000      # a step is a read that is applied
    python -m tests.model.batches --seed 17            # one seed alone, the one that failed

A seed is a world of a few wallets and tokens that changes during reads. Reads are complete,
incomplete, failed or conditional, end in any order, and are applied in random batches, at a wall
clock that jumps both ways. Reads with removals are applied, applied later, or applied without the
removals, which are approved in the end.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from nftsync.provider.webhooks import Unusable
from nftsync.records import (
    CONTENT_COLUMNS,
    Applied,
    Content,
    Entry,
    OnRemovals,
    TokenRead,
    WalletRead,
)
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.removals import held_rows, numbers_held
from nftsync.store.rules import check_rules
from nftsync.times import shifted
from tests.kit.provider import token, wallet
from tests.kit.worlds import mirrored
from tests.model import seeds
from tests.model.comparison import Comparison, same
from tests.model.plain_mirror import PlainMirror, PlainWallet

STEPS_OF_A_SEED = 250
WALLETS = [wallet(number) for number in range(5)]
TOKENS = [token(number) for number in range(7)]
AMOUNTS = ["0", "1", "1", "2", "000", "007", "1.5", "", str(2**256 - 1)]


def content(**fields: str | None) -> Content:
    extra = {key: value for key, value in fields.items() if key not in CONTENT_COLUMNS and value}
    values: list[str | None] = [fields.get(column) for column in CONTENT_COLUMNS[:-1]]
    return (*values, json.dumps(extra, sort_keys=True, separators=(",", ":")) if extra else None)


class World:
    """The provider's state, of few values, so that states repeat."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: Either lists may be incomplete or without records, or lists and reads of tokens may
        #: contradict each other; with both, an incomplete list counts as complete.
        self.is_whole = rng.random() < 0.5
        self.held: dict[str, dict[str, str]] = {each: {} for each in WALLETS}
        self.shown: dict[str, dict[str, str | None]] = {each: {"name": "x"} for each in TOKENS}
        self.detail: dict[str, dict[str, str | None]] = {each: {} for each in TOKENS}
        #: Tokens without a record in lists.
        self.bare = set[str]() if self.is_whole else set(rng.sample(TOKENS, rng.randint(0, 2)))
        for _ in range(12):
            self.change_balance()
        self.before = copy.deepcopy((self.held, self.shown, self.detail))

    def change(self) -> None:
        """Change the world, or undo the last change, which a wrong skip would miss first."""
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


class Batches:
    """One seed: the world, the real mirror, the plain one, and running reads."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.world = World(self.rng)
        self.mirror = Mirror(Path(shutil.copy(seeds.template(), folder)), write_gap=0.0)
        self.plain = PlainMirror()
        #: Treatments of reads with removals. A read applied without them counts as incomplete, and
        #: only some worlds have incomplete reads.
        self.ways: list[OnRemovals] = ["apply", "apply", "stage"]
        self.ways += [] if self.world.is_whole else ["hold"]
        self.answers: dict[str, list[Entry]] = {}
        self.under_way: list[WalletRead | TokenRead] = []
        self.sequence = 0
        self.clock = "2026-01-01T00:00:00.000000Z"
        self.compared = Comparison(self.mirror, self.plain, self.answers)
        self.figures = self.compared.figures
        self.run_ids = [
            self.mirror.connection.execute(
                "INSERT INTO sync_runs (kind, status, started_at, first_sequence, with_tokens)"
                " VALUES ('sync', 'interrupted', ?, 0, 0)",
                (self.clock,),
            ).lastrowid,
            None,
        ]
        with self.mirror.transaction(self.clock) as transaction:
            sent = [Delivery(body, Unusable("")) for body in (b"1", b"2")]
            store(transaction.connection, sent, self.clock)
        rows = self.mirror.connection.execute("SELECT NULL UNION SELECT webhook_id FROM webhooks")
        self.webhooks = [row[0] for row in rows]

    def run(self, steps: int = STEPS_OF_A_SEED) -> Counter[str]:
        while self.figures["reads"] < steps:
            self.rng.choice([self.world.change, self.tick, self.begin, self.begin, self.apply])()
        self.apply_all()
        self.accept()
        self.mirror.index_tokens()
        self.compared.check_search()
        rules = check_rules(self.mirror.path, max(self.clock, self.compared.last_observed))
        same("broken rules", [rule for rule in rules if rule.broken], [])
        return self.figures

    def tick(self) -> None:
        """Time passes, or the wall clock jumps."""
        seconds = self.rng.choice([0.001, 1.0, 1.0, 60.0, 86_400.0, -3_600.0])
        self.clock = shifted(self.clock, timedelta(seconds=seconds))

    def begin(self) -> None:
        """A read takes its number, and sees the world at this time."""
        self.sequence += self.rng.choice([1, 1, 5])
        asked: dict[str, Any] = {"sequence": self.sequence, "started_at": self.clock}
        asked["webhook_id"] = self.rng.choice(self.webhooks)
        kind = self.token_read if self.rng.random() < 0.15 else self.wallet_read
        self.under_way.append(kind(asked))

    def token_read(self, asked: dict[str, Any]) -> TokenRead:
        token_id = self.rng.choice(TOKENS)
        if self.rng.random() < 0.1:
            return TokenRead(token_id=token_id, outcome="failed", error="no", **asked)
        shown = content(**self.world.detail[token_id])
        return TokenRead(token_id=token_id, outcome="ok", content=shown, **asked)

    def wallet_read(self, asked: dict[str, Any]) -> WalletRead:
        asked["wallet_id"] = wallet_id = self.rng.choice(WALLETS)
        entries = self.world.entries(wallet_id)
        kind = self.rng.random()
        if kind < 0.08:
            return WalletRead(outcome="failed", error="no", **asked)
        if kind < 0.16 and not self.world.is_whole:
            some = [entry for entry in entries if self.rng.random() < 0.5]
            return WalletRead(outcome="incomplete", error="page", entries=some, **asked)
        asked["digest"] = digest = json.dumps(entries)
        self.answers[digest] = entries
        rows = self.mirror.connection.execute("SELECT wallet_id, body_sha256 FROM wallets")
        if kind < 0.7 and (wallet_id, digest) in rows.fetchall():
            return WalletRead(outcome="unchanged", **asked)
        return WalletRead(outcome="ok", entries=entries, etag="e", **asked)

    def apply(self) -> None:
        """Random reads end; one transaction applies them."""
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
        how = self.rng.choice(self.ways)
        with self.mirror.transaction(self.clock) as transaction:
            at = transaction.observed_at
            applied = transaction.apply(reads, run_id=run_id, removals=how)
        same("time of changes", at, max(self.clock, self.compared.last_observed))
        self.figures["batches"] += 1
        for one in applied:
            self.expect(one, at, run_id, how)
        self.compared.check()

    def give_up(self, reads: list[WalletRead | TokenRead], run_id: int | None) -> None:
        """An aborted transaction leaves no change."""
        try:
            with self.mirror.transaction(self.clock) as transaction:
                transaction.apply(reads, run_id=run_id)
                raise KeyboardInterrupt  # noqa: TRY301
        except KeyboardInterrupt:
            self.compared.check()

    def apply_all(self) -> None:
        self.ways = [way for way in self.ways if way != "stage"]
        while self.under_way:
            self.apply()

    def accept(self) -> None:
        """Approve the held removals: only they are applied."""
        numbers = numbers_held(self.mirror.connection)
        self.mirror.accept_held(self.rng.sample(numbers, len(numbers)))
        expected = {key: line.amount for key, line in self.plain.balances().items()}
        for (wallet_id, token_id), (old, new) in self.plain.held.items():
            if new is not None:
                expected[wallet_id, token_id] = new
            elif old is not None:
                del expected[wallet_id, token_id]
        same("balances after approval", mirrored(self.mirror.path), expected)
        same("held removals after approval", list(held_rows(self.mirror.connection)), [])

    def expect(self, one: Applied, at: str, run_id: int | None, how: OnRemovals) -> None:
        """Apply a read to the plain mirror, and compare the results."""
        read, plain = one.read, self.plain
        self.figures["reads"] += 1
        self.figures[one.result] += 1
        gone = plain.gone(read, self.clock)
        if gone and how != "apply":
            removals = one.removals
            told = removals and (
                *(len(removals.lost), len(removals.emptied)),
                sorted(name for _, _, name in removals.renamed.values()),
            )
            lost = sum(old is not None for old, *_ in gone.values())
            emptied = sum(is_emptied for _, _, is_emptied, _ in gone.values())
            names = sorted(name for *_, name in gone.values() if name)
            same(f"removals of {read}", told, (lost, emptied, names))
        if gone and how == "stage":
            same(f"result of {read}", one.result, "staged")
            if isinstance(read, WalletRead):  # only the wallet's existence is known
                plain.wallets.setdefault(read.wallet_id, PlainWallet(at))
            self.under_way.append(read)
            return
        if read.outcome == "unchanged" and one.result == "stale":
            return  # always allowed: it is read again completely
        plain.note_held(read, gone, hold=how == "hold")
        if isinstance(read, TokenRead):
            expected = "held" if gone and how == "hold" else plain.apply_token(read, at)
            same(f"result of {read}", one.result, expected)
            return
        known = self.answers.get(read.digest or "", [])
        if read.outcome == "unchanged":
            why = plain.would_change(read.wallet_id, known)
            same(f"change that {read} hides", why, None)
        before = plain.wallets[read.wallet_id].sequence if read.wallet_id in plain.wallets else 0
        tokens = len(plain.tokens)
        changes = len(plain.changes)
        if gone and how == "hold":
            expected = "held"
            plain.apply_wallet(plain.less(read, gone), at, run_id, known)
        else:
            expected = plain.apply_wallet(read, at, run_id, known)
        same(f"result of {read}", one.result, expected)
        if expected in {"ok", "unchanged"}:
            self.note_state(read, before, moved=len(plain.changes) > changes)
        counts = Counter(
            "added" if old is None else "removed" if new is None else "changed"
            for _, _, old, new, *_ in plain.changes[changes:]
        )
        counts["tokens"] = len(plain.tokens) - tokens
        told = {
            "added": one.balances_added,
            "changed": one.balances_changed,
            "removed": one.balances_removed,
            "tokens": one.tokens_added,
        }
        same(f"counts of {read}", Counter(told), counts)

    def note_state(self, read: WalletRead, before: int, *, moved: bool) -> None:
        """Start a new state after a change of a balance or of content; else, continue the last.

        A token's versions show changes of its content. It is unknown whether the read with the
        number `before` saw a change of about the same time.
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


def run_seed(seed: int, steps: int = STEPS_OF_A_SEED) -> Counter[str]:
    with seeds.place("batches", seed, steps) as folder:
        batches = Batches(seed, folder)
        with batches.mirror:
            return batches.run(steps)


if __name__ == "__main__":
    seeds.main(
        *(__doc__, lambda seed, steps: (run_seed(seed, steps), "")),
        unit="reads",
        steps=100_000,
        of=STEPS_OF_A_SEED,
    )
