"""The brake on mass removal: what reads show to be gone is judged together before it counts.

A provider with a fault may answer 200 with lists that are empty, cut short or full of zeros. One
wallet that sells all it has looks the same, so what tells is how much goes at once: reads that show
something to be gone wait (`apply` keeps them) until the run that made them ends, are then judged
together and with what was removed in the 24 hours before (`judge`), and are applied, or applied
without what they show to be gone (`release`).
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from tempfile import SpooledTemporaryFile, gettempdir
from typing import NamedTuple

import msgspec

from nftsync.pull.reads import Read, Subject, subject_of, weight
from nftsync.records import Applied, Effort, OnRemovals, Removals
from nftsync.store import removals
from nftsync.store.database import explained
from nftsync.store.mirror import Transaction
from nftsync.times import now

__all__ = ["RemovalBrake", "RemovalLimits"]

#: Reads that wait take this much memory at most, in bytes, and a file without a name beyond that.
_IN_MEMORY = 16 * 1024 * 1024
#: So many wallets are many, however little each of them held.
_MANY_WALLETS = 20
#: For so long, in seconds, what was held within 24 hours is taken for what it was.
_COUNTED_FOR = 600.0


_decoder: msgspec.msgpack.Decoder[Read] = msgspec.msgpack.Decoder(Read)


@dataclass(frozen=True)
class RemovalLimits:
    """How much may vanish within 24 hours.

    Attributes:
        share: of what a group of wallets or the whole mirror held, from 0 to 1: no limit.
        rows: so many balances, of fewer than 20 wallets, may always.
    """

    share: float = 0.5
    rows: int = 100


class _Waiting(NamedTuple):
    """Where a read lies, in bytes, and what it shows to be gone."""

    start: int
    length: int
    removals: Removals


class RemovalBrake:
    """Reads that wait to be judged together; used by one thread."""

    def __init__(self, limits: RemovalLimits) -> None:
        """Begin with none.

        Args:
            limits: how much may vanish.
        """
        self._limits = limits
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `close` closes it
        self._waiting: dict[Subject, _Waiting] = {}
        self._end = 0
        self._since = 0.0
        self._held_groups: set[str | None] = set()
        self._all_held = self._emptied_held = False
        self._held: Counter[str | None] = Counter()
        self._counted_at = -_COUNTED_FOR

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def subjects(self) -> list[Subject]:
        """Whose reads wait."""
        return list(self._waiting)

    @property
    def waited(self) -> float:
        """Seconds since the first of those that wait came."""
        return time.monotonic() - self._since if self._waiting else 0.0

    def apply(self, transaction: Transaction, run_id: int, reads: Sequence[Read]) -> list[Applied]:
        """Apply reads, but keep those that show something to be gone: `staged`.

        Raises:
            StoreError: there is no room for them among the temporary files.
        """
        all_applied = transaction.apply(reads, run_id=run_id, removals="stage")
        self._keep(all_applied)
        return all_applied

    def _keep(self, all_applied: Sequence[Applied]) -> None:
        for applied in all_applied:
            if applied.result != "staged" or applied.removals is None:
                continue
            if not self._waiting:
                self._since = time.monotonic()
            # What it cost has been counted.
            packed = msgspec.msgpack.encode(msgspec.structs.replace(applied.read, effort=Effort()))
            with explained(gettempdir()):
                self._file.seek(self._end)
                self._file.write(packed)
                self._file.flush()
            subject = subject_of(applied.read)
            self._waiting[subject] = _Waiting(self._end, len(packed), applied.removals)
            self._end += len(packed)

    def judge(self, connection: sqlite3.Connection) -> None:
        """Decide on all that wait, in view of what was removed within 24 hours.

        Args:
            connection: in no transaction, as counting what is listed may take a second.
        """
        at = now()
        self._held_groups, self._all_held, self._emptied_held = set(), False, False
        if self._limits.share >= 1:
            return
        gone = removals.vanished(connection, at)
        waiting = [each.removals for each in self._waiting.values()]
        wallets = gone.wallets + sum(bool(each.balances) for each in waiting)
        balances = gone.balances + sum(len(each.balances) for each in waiting)
        if self._are_many(balances, wallets):
            self._judge_balances(connection, at)
        known = connection.execute("SELECT coalesce(max(token_no), 0) FROM tokens").fetchone()[0]
        emptied = gone.emptied.union(*(each.emptied for each in waiting))
        self._emptied_held = len(emptied) > max(self._limits.rows, self._limits.share * known)

    def _judge_balances(self, connection: sqlite3.Connection, at: str) -> None:
        balances: Counter[str | None] = Counter()
        before: Counter[str | None] = Counter()
        wallets: dict[str | None, set[int]] = {}
        for wallet, group, waits in self._vanished(connection, at):
            balances[group] += 1
            before[group] += not waits
            wallets.setdefault(group, set()).add(wallet)
        held = self._count_held(connection, before)
        most = self._limits.share
        if self._are_many(balances.total(), sum(map(len, wallets.values()))):
            self._all_held = balances.total() > most * held.total()
        self._held_groups = {
            group
            for group, number in balances.items()
            if group is not None
            and self._are_many(number, len(wallets[group]))
            and number > most * held[group]
        }

    def _vanished(
        self, connection: sqlite3.Connection, at: str
    ) -> Iterator[tuple[int, str | None, bool]]:
        """Each balance that is gone, but those whose token another wallet has got: they moved.

        Yields the number of the wallet that held it, its group, and whether the read waits.
        """
        waiting = [each.removals for each in self._waiting.values()]
        gained = removals.gained(connection, at)
        for each in waiting:
            for token in each.gained:
                gained.setdefault(token, set()).add(each.wallet_no)
        lost: dict[int, dict[int, tuple[int, str | None, bool]]] = {}
        before = ((*row, False) for row in removals.removed(connection, at))
        now_gone = ((x.wallet_no, x.group, token, True) for x in waiting for token in x.balances)
        for wallet, group, token, waits in chain(before, now_gone):
            if token in gained:
                lost.setdefault(token, {})[wallet] = wallet, group, waits
            else:
                yield wallet, group, waits
        for token, losers in lost.items():
            gainers = gained[token]
            moved = 0 if losers.keys() == gainers and len(gainers) == 1 else len(gainers)
            # Who had it first has passed it on rather than who got it meanwhile.
            yield from sorted(losers.values(), key=lambda loser: loser[0] in gainers)[moved:]

    def release(self, transaction: Transaction, run_id: int, entries: int) -> list[Applied]:
        """Apply the next reads that have been judged: wholly, or without what is gone: `held`.

        Args:
            transaction: where.
            run_id: the run that made them.
            entries: about how many list entries at most.
        """
        taken: dict[OnRemovals, list[Read]] = {"apply": [], "hold": []}
        while self._waiting and entries > 0:
            waiting = self._waiting.pop(next(iter(self._waiting)))
            self._file.seek(waiting.start)
            read = _decoder.decode(self._file.read(waiting.length))
            taken["hold" if self._is_held(waiting.removals) else "apply"].append(read)
            entries -= weight(read)
        if not self._waiting:
            self.forget()
        return [
            applied
            for how, reads in taken.items()
            for applied in transaction.apply(reads, run_id=run_id, removals=how)
        ]

    def forget(self) -> None:
        """Drop all that wait."""
        self._waiting.clear()
        self._file.truncate(0)
        self._end = 0

    def close(self) -> None:
        """Drop all that wait, for good."""
        self._file.close()

    def _is_held(self, of: Removals) -> bool:
        of_balances = self._all_held or of.group in self._held_groups
        return bool((of.balances and of_balances) or (of.emptied and self._emptied_held))

    def _are_many(self, balances: int, wallets: int) -> bool:
        return balances > self._limits.rows or wallets >= _MANY_WALLETS

    def _count_held(
        self, connection: sqlite3.Connection, gone: Counter[str | None]
    ) -> Counter[str | None]:
        """What was held at any time within 24 hours: what still is, and what is gone since."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            self._held = removals.listed(connection) + gone
            self._counted_at = time.monotonic()
        return self._held
