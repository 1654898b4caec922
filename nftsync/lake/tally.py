"""Tally of the reads that a bucket's steps apply."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nftsync.records import Applied, WalletRead
from nftsync.store import removals
from nftsync.store.runs import Counts


class Tally(msgspec.Struct):
    """Results of applied reads.

    `showed` has reads that changed only tokens; `partial` has the newest sequence number of
    incomplete lists, by token.
    """

    counts: Counts = msgspec.field(default_factory=Counts)
    changed: set[str] = msgspec.field(default_factory=set)
    showed: dict[str, int] = msgspec.field(default_factory=dict)
    held_wallets: set[str] = msgspec.field(default_factory=set)
    complete: set[str] = msgspec.field(default_factory=set)
    partial: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, all_applied: Sequence[Applied], *, approval: bool = False) -> None:
        """Add applied reads; approved removals show nothing new of other tokens."""
        for applied in all_applied:
            read = applied.read
            if not isinstance(read, WalletRead) or applied.result in {"stale", "staged", "failed"}:
                continue
            self.counts = self.counts.with_applied([applied])
            if applied.result == "held":
                self.held_wallets.add(read.wallet_id)
            if applied.result == "ok" and not applied.changed_nothing:
                if applied._replace(tokens_changed=0).changed_nothing:
                    self.showed[read.wallet_id] = read.sequence
                else:
                    self.changed.add(read.wallet_id)
            if applied.result == "ok" and not approval:
                self.complete.add(read.wallet_id)
            elif applied.result != "unchanged":
                self._add_entries(read, removals_held=applied.result == "held")

    def _add_entries(self, read: WalletRead, *, removals_held: bool) -> None:
        for token_id, _, content in read.entries:
            if content is not None and (not removals_held or removals.has_metadata(content)):
                newest = self.partial.get(token_id, 0)
                self.partial[token_id] = max(newest, read.sequence)
