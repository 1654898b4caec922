"""A provider that suddenly answers 200 with empty lists for everyone has not sold everything."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from nftsync.records import TokenRead, WalletRead

__all__ = ["EmptyAnswers"]

#: So many wallets that held something, in a row, and none between them that still does.
_IN_A_ROW = 20


class EmptyAnswers:
    """Holds back empty lists of wallets that held something, until another wallet's list is not.

    Attributes:
        verdict: why the run should stop, or None.
    """

    def __init__(self, *, accept: bool = False) -> None:
        """Begin.

        Args:
            accept: believe empty lists at once.
        """
        self.verdict: str | None = None
        self._accept = accept
        self._held_back: list[WalletRead | TokenRead] = []

    @property
    def doubted(self) -> list[str]:
        """The wallets whose empty lists are held back."""
        return [read.wallet_id for read in self._held_back if isinstance(read, WalletRead)]

    def sift(
        self, reads: Sequence[WalletRead | TokenRead], connection: sqlite3.Connection
    ) -> Sequence[WalletRead | TokenRead]:
        """The reads that may be applied now.

        Reads that are part of a run of empty lists too long to be believed come out `incomplete`,
        so that nothing is taken as removed.
        """
        empty = [x for x in reads if _is_empty(x)]
        if self._accept or (not empty and not self._held_back):
            return reads
        doubtful = _holders(connection, [x.wallet_id for x in empty if isinstance(x, WalletRead)])
        apply_now: list[WalletRead | TokenRead] = []
        for read in reads:
            if isinstance(read, TokenRead) or read.outcome == "failed":
                apply_now.append(read)
            elif _is_empty(read) and read.wallet_id in doubtful:
                self._held_back.append(read)
                if len(self._held_back) == _IN_A_ROW:
                    self.verdict = (
                        f"{_IN_A_ROW} wallets in a row that held NFTs were answered with empty "
                        "lists; nothing was taken as removed. If it is true, "
                        "`nftsync sync --accept-empty` believes it"
                    )
            elif read.entries or (
                read.outcome == "unchanged" and _holders(connection, [read.wallet_id])
            ):
                apply_now += [*self.release(), read]
            else:
                apply_now.append(read)
        return [*apply_now, *self.release()] if self.verdict else apply_now

    def release(self) -> list[WalletRead | TokenRead]:
        """The reads held back: as they are, or incomplete once they are not to be believed."""
        if self.verdict is not None:
            return self._take_incomplete(self.verdict)
        held_back, self._held_back = self._held_back, []
        return held_back

    def give_up(self) -> list[WalletRead | TokenRead]:
        """The reads held back when the run ends early: nobody knows what they are worth."""
        return self._take_incomplete(
            "the list is empty now, and the run ended before that could be believed"
        )

    def _take_incomplete(self, error: str) -> list[WalletRead | TokenRead]:
        held_back, self._held_back = self._held_back, []
        return [
            msgspec.structs.replace(read, outcome="incomplete", error=error) for read in held_back
        ]


def _is_empty(read: WalletRead | TokenRead) -> bool:
    return isinstance(read, WalletRead) and read.outcome == "ok" and not read.entries


def _holders(connection: sqlite3.Connection, wallet_ids: list[str]) -> set[str]:
    """Those of the wallets for which the mirror lists anything."""
    rows = connection.execute(
        "SELECT w.wallet_id FROM json_each(?) k JOIN wallets w ON w.wallet_id = k.value"
        " WHERE EXISTS (SELECT 1 FROM balance_rows b WHERE b.wallet_no = w.wallet_no)",
        (msgspec.json.encode(wallet_ids).decode(),),
    )
    return {row[0] for row in rows}
