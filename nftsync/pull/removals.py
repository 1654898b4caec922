"""A provider that suddenly answers 200 with empty lists for everyone has not sold everything."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeGuard

import msgspec

from nftsync.pull.reads import Read
from nftsync.records import TokenRead, WalletRead
from nftsync.store.database import over_keys

__all__ = ["RemovalGuard"]

#: So many wallets that held something, in a row, and none between them that still does.
_IN_A_ROW = 20


class RemovalGuard:
    """Keeps empty lists of wallets that held something, until another wallet's list is not.

    Attributes:
        reason: why the run should stop, or None.
    """

    def __init__(self, *, accept: bool = False) -> None:
        """Begin.

        Args:
            accept: accept empty lists at once.
        """
        self.reason: str | None = None
        self._accept = accept
        self._pending: list[WalletRead] = []

    @property
    def pending(self) -> list[str]:
        """The wallets whose empty lists wait to be accepted."""
        return [read.wallet_id for read in self._pending]

    def filter(self, reads: Sequence[Read], connection: sqlite3.Connection) -> list[Read]:
        """The reads that may be applied now.

        Reads that are part of a run of empty lists too long to be true come out `incomplete`, so
        that nothing is taken as removed.
        """
        empty = [read.wallet_id for read in reads if _is_empty(read)]
        if self._accept or not (empty or self._pending):
            return list(reads)
        held = _holders(connection, empty)
        passed: list[Read] = []
        for read in reads:
            if isinstance(read, TokenRead) or read.outcome == "failed":
                passed.append(read)
            elif _is_empty(read) and read.wallet_id in held:
                self._pending.append(read)
                if len(self._pending) == _IN_A_ROW:
                    self.reason = (
                        f"{_IN_A_ROW} wallets in a row that held NFTs were answered with empty "
                        "lists; nothing was taken as removed. If it is true, "
                        "`nftsync sync --accept-empty` believes it"
                    )
            else:
                if read.entries or _holders(connection, [read.wallet_id]):
                    passed += self.accept()
                passed.append(read)
        return [*passed, *self.accept()] if self.reason else passed

    def accept(self) -> list[WalletRead]:
        """The pending reads as they are, or `incomplete` once they are not to be accepted."""
        if self.reason is not None:
            return self.refuse(self.reason)
        pending, self._pending = self._pending, []
        return pending

    def refuse(
        self, why: str = "the list is empty now, and the run ended before that could be believed"
    ) -> list[WalletRead]:
        """The pending reads, `incomplete`: nobody knows what they are worth."""
        pending, self._pending = self._pending, []
        return [msgspec.structs.replace(x, outcome="incomplete", error=why) for x in pending]


def _is_empty(read: Read) -> TypeGuard[WalletRead]:
    return isinstance(read, WalletRead) and read.outcome == "ok" and not read.entries


def _holders(connection: sqlite3.Connection, wallet_ids: list[str]) -> set[str]:
    """Those of the wallets for which the mirror lists anything."""
    rows = over_keys(
        connection,
        "SELECT w.wallet_id FROM json_each(?) k JOIN wallets w ON w.wallet_id = k.value"
        " WHERE EXISTS (SELECT 1 FROM balance_rows b WHERE b.wallet_no = w.wallet_no)",
        wallet_ids,
    )
    return {row[0] for row in rows}
