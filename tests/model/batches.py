"""Level one: batches of reads, on the real mirror and on the plain one, compared after each.

    python -m tests.model.batches --steps 1000000      # a step is a read that is applied
    python -m tests.model.batches --seed 17            # one seed alone, the one that failed

A seed is a world of a few wallets and tokens that changes during reads. Reads are complete,
incomplete, failed or conditional, end in any order, and are applied in random batches, at a wall
clock that jumps both ways. Reads with removals are applied, applied later, or applied without the
removals, which are approved in the end.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from nftsync.provider.webhooks import Unusable
from nftsync.records import Applied, Entry, OnRemovals, TokenRead, WalletRead
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.store.removals import held_rows, numbers_held
from nftsync.store.rules import check_rules
from nftsync.times import shifted
from tests.model import seeds
from tests.model.batch_world import TOKENS, WALLETS, World
from tests.model.comparison import Comparison, Differs, same
from tests.model.plain_mirror import PlainMirror, PlainWallet

STEPS_OF_A_SEED = 250


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
        rows = self.mirror.connection.execute("SELECT webhook_id FROM webhooks")
        self.webhooks = [None, *(row[0] for row in rows)]

    def run(self, steps: int = STEPS_OF_A_SEED) -> Counter[str]:
        while self.figures["reads"] < steps:
            self.rng.choice([self.world.change, self.tick, self.begin, self.begin, self.apply])()
        self.apply_all()
        self.accept()
        self.mirror.index_tokens()
        self.compared.check_search()
        for rule in check_rules(self.mirror.path, max(self.clock, self.compared.last_observed)):
            if rule.broken:
                raise Differs(f"{rule}")
        return self.figures

    def tick(self) -> None:
        """Time passes, or the wall clock jumps."""
        seconds = self.rng.choice([0.001, 1.0, 1.0, 60.0, 86_400.0, -3_600.0])
        self.clock = shifted(self.clock, timedelta(seconds=seconds))

    # Reads ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A read takes its number, and sees the world at this time."""
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
        if at != max(self.clock, self.compared.last_observed):
            raise Differs(
                f"stored at {at}: the clock says {self.clock}, {self.compared.last_observed}"
            )
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
        query = self.mirror.connection.execute
        rows = query("SELECT wallet_id, token_id, amount FROM balances")
        same("balances after approval", {row[:2]: row[2] for row in rows}, expected)
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
            counted = sum(old is not None for old, *_ in gone.values())
            emptied = sum(is_emptied for _, _, is_emptied, _ in gone.values())
            names = sorted(name for *_, name in gone.values() if name)
            same(f"removals of {read}", told, (counted, emptied, names))
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
            if one.result != expected:
                raise Differs(f"{read}: {one.result}, not {expected}")
            return
        known = self.answers.get(read.digest or "", [])
        if read.outcome == "unchanged":
            why = plain.would_change(read.wallet_id, known)
            if why is not None:
                raise Differs(f"{read}: taken as unchanged, though it changes {why}")
        before = plain.wallets[read.wallet_id].sequence if read.wallet_id in plain.wallets else 0
        tokens = {each: plain.tokens[each].versions for each in plain.tokens}
        changes = len(plain.changes)
        if gone and how == "hold":
            expected = "held"
            plain.apply_wallet(plain.less(read, gone), at, run_id, known)
        else:
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
    """Run one seed; an error names the command that repeats it."""
    with seeds.place() as folder:
        batches = Batches(seed, folder)
        try:
            return batches.run(steps)
        except Exception as error:
            error.add_note(f"seed {seed}: python -m tests.model.batches --seed {seed}")
            raise
        finally:
            batches.mirror.close()


if __name__ == "__main__":
    seeds.main(
        *(__doc__, lambda seed, steps: (run_seed(seed, steps), "")),
        unit="reads",
        steps=100_000,
        of=STEPS_OF_A_SEED,
    )
