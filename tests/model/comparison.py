"""The comparison of a real mirror with the plain one, after each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nftsync.records import CONTENT_COLUMNS, Entry
from nftsync.store.mirror import Mirror
from nftsync.store.removals import held_rows
from tests.model.plain_mirror import Listed, PlainMirror, fields_of


class Differs(AssertionError):
    """The mirror differs from its rules."""


def same(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        if isinstance(found, dict):
            keys = [key for key in found | expected if found.get(key) != expected.get(key)]
            found = {key: found.get(key) for key in keys}
            expected = {key: expected.get(key) for key in keys}
        raise Differs(f"{what}:\n  mirror: {found}\n  rules:  {expected}")


class Comparison:
    """Compares a mirror with the plain one after the same reads.

    Attributes:
        last_observed: the greatest time that the database has stored.
        figures: the number of offered skips.
    """

    def __init__(
        self, mirror: Mirror, plain: PlainMirror, answers: Mapping[str, Sequence[Entry]]
    ) -> None:
        self.mirror = mirror
        self.plain = plain
        self.answers = answers
        self.last_observed = ""
        self.figures: Counter[str] = Counter()
        self._seen_changes = 0

    def check(self) -> None:
        """Check that the database equals the plain mirror."""
        query = self.mirror.connection.execute
        changes = query(
            "SELECT wallet_id, token_id, old_amount, new_amount, observed_at, baseline, run_id,"
            " webhook_id FROM balance_changes ORDER BY change_id LIMIT -1 OFFSET ?",
            (self._seen_changes,),
        ).fetchall()
        new = self.plain.changes[self._seen_changes :]
        self._seen_changes += len(new)
        same("changes", sorted(map(str, changes)), sorted(map(str, new)))
        times = [self.last_observed, *(row[4] for row in changes)]
        same("times of changes", times, sorted(times))
        rows = query(
            "SELECT b.wallet_id, b.token_id, b.amount, b.first_seen_at, b.updated_at, h.held_since"
            " FROM balances b JOIN holdings h USING (wallet_id, token_id)"
        )
        found = {row[:2]: Listed(*row[2:]) for row in rows}
        same("balances", found, self.plain.balances())
        self._wallets()
        self._tokens()
        rows = held_rows(self.mirror.connection)
        names = ("wallet_id", "token_id", "old_amount", "new_amount")
        held = [tuple(row[name] for name in names) for row in rows]
        same("held removals", {row[:2]: row[2:] for row in held}, self.plain.held)
        (self.last_observed,) = query(
            "SELECT max(coalesce((SELECT max(observed_at) FROM balance_changes), ''),"
            " coalesce((SELECT max(observed_at) FROM token_changes), ''),"
            " coalesce((SELECT max(observed_at) FROM wallet_state_rows), ''))"
        ).fetchone()

    def _wallets(self) -> None:
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
        same(
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
                same("an ETag without the answer it belongs to", etag, None)
                continue
            self.figures["skips offered"] += 1
            why = self.plain.would_change(wallet_id, self.answers[digest])
            same(f"change that an offered skip of {wallet_id} hides", why, None)

    def _tokens(self) -> None:
        columns = ", ".join(("token_id", "first_seen_at", "updated_at", *CONTENT_COLUMNS))
        rows = self.mirror.connection.execute(f"SELECT {columns} FROM tokens")
        found = {row[0]: (*row[1:3], fields_of(row[3:])) for row in rows}
        tokens = self.plain.tokens.items()
        same("tokens", found, {x: (t.first_seen_at, t.updated_at, t.fields()) for x, t in tokens})

    def check_search(self) -> None:
        """Check that the full-text index has the current names, and no other."""
        query = self.mirror.connection.execute
        for name in ("x", "y"):
            match = f"name:{name}"
            rows = query("SELECT rowid FROM tokens_fts WHERE tokens_fts MATCH ?", (match,))
            named = query("SELECT token_no FROM tokens WHERE name = ? ORDER BY 1", (name,))
            same(f"tokens named {name}", sorted(rows), named.fetchall())
