"""The removals held for review, and the reads that apply them once they are approved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from nftsync.records import (
    CONTENT_COLUMNS,
    Content,
    Entry,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.store.removals import NAME, without_metadata
from nftsync.text import counted

#: Why a wallet or token is not complete.
HELD_BACK = "removals held for review, as too many came within 24 hours"


class Held(msgspec.Struct, frozen=True):
    """Counts of removals held for review.

    Attributes:
        wallets: the wallets that have any.
        balances: tokens that are no longer listed, and amounts that fell.
        emptied: tokens whose metadata was emptied, or whose name was replaced.
        since: when the first was read; None: there are none.
    """

    wallets: int
    balances: int
    emptied: int
    since: str | None

    def __str__(self) -> str:
        gone = []
        if self.balances:
            gone.append(f"{counted(self.balances, 'balance')} of {counted(self.wallets, 'wallet')}")
        if self.emptied:
            gone.append(f"the metadata of {counted(self.emptied, 'token')}")
        return " and ".join(gone) or "nothing"

    def summary(self, share: float) -> str:
        """Return one line on them, given their share of all holdings."""
        number = counted(self.balances + self.emptied, "removal")
        of = f" ({share:.0%} of holdings)".replace("%", " %") if self.balances else ""
        return f"{number} held for review{of}"


def held(connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None) -> Held:
    """Count the removals held for review, of all wallets or of some."""
    some, keys = _of_wallets(wallet_ids)
    row = connection.execute(
        "SELECT count(DISTINCT nullif(wallet_no, 0)), coalesce(sum(old_amount IS NOT NULL), 0),"
        " count(DISTINCT iif(emptied OR new_name IS NOT NULL, token_no, NULL)), min(observed_at)"
        f" FROM removal_rows r WHERE held{some}",
        keys,
    ).fetchone()
    return Held(*row)


def share_held(connection: sqlite3.Connection, held: Held) -> float:
    """Return the share of all holdings whose removal is held."""
    if not held.balances:
        return 0.0
    (balances,) = connection.execute(
        "SELECT count(*) FROM balance_rows WHERE held_since IS NOT NULL"
    ).fetchone()
    return float(held.balances / max(held.balances, balances))


def _of_wallets(wallet_ids: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return a condition on `r.wallet_no`, and its parameters."""
    if wallet_ids is None:
        return "", ()
    condition = (
        " AND r.wallet_no IN (SELECT wallet_no FROM wallets WHERE wallet_id IN"
        " (SELECT value FROM json_each(?)))"
    )
    return condition, (msgspec.json.encode(list(wallet_ids)).decode(),)


def held_rows(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Find the removals held for review: a row per wallet and token, with the public columns."""
    some, keys = _of_wallets(wallet_ids)
    found = connection.execute(
        "SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group, t.token_id, t.name,"
        " t.contract_address, coalesce(c.collection, t.contract_short) AS collection,"
        " r.old_amount, r.new_amount, r.new_name,"
        " CASE WHEN r.new_amount IS NOT NULL THEN 'amount fell'"
        " WHEN r.old_amount IS NOT NULL THEN 'no longer listed'"
        " WHEN r.emptied THEN 'metadata emptied' ELSE 'name replaced' END AS what,"
        " r.observed_at, r.run_id, r.webhook_id"
        " FROM removal_rows r JOIN tokens t USING (token_no) LEFT JOIN wallets w USING (wallet_no)"
        " LEFT JOIN contracts c ON c.contract = t.contract"
        f" WHERE r.held{some} ORDER BY r.observed_at, r.wallet_no, r.token_no",
        keys,
    )
    names = [column[0] for column in found.description]
    return (dict(zip(names, row, strict=True)) for row in found)


def numbers_held(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[int]:
    """Find the numbers of the wallets with removals held for review, all or some of them.

    Args:
        connection: any connection.
        wallet_ids: the wallets; None for all, and 0 for tokens that were read by their id.
    """
    some, keys = _of_wallets(wallet_ids)
    rows = connection.execute(
        f"SELECT DISTINCT r.wallet_no FROM removal_rows r WHERE r.held{some}",
        keys,
    )
    return [row[0] for row in rows]


class _Row(NamedTuple):
    content: Content
    token_id: str
    new_amount: str | None
    removed: bool
    emptied: bool
    new_name: str | None
    run_id: int | None
    webhook_id: str | None
    read_at: str
    digest: str | None

    @property
    def shown(self) -> Content | None:
        """The token's content as the read showed it; None: it is as it was."""
        if self.emptied:
            return without_metadata(self.content)
        if self.new_name is not None:
            return (*self.content[:NAME], self.new_name, *self.content[NAME + 1 :])
        return None


def reads_of_held(
    connection: sqlite3.Connection, numbers: SequenceNumbers, wallet_no: int
) -> Iterator[tuple[int | None, WalletRead | TokenRead]]:
    """Make the read that applies a wallet's held removals; with the run that made it.

    Args:
        connection: in the write transaction that applies it.
        numbers: a number to take before it is applied.
        wallet_no: the wallet; 0 for the tokens that were read by their id.
    """
    content = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = [
        _Row(row[9:], *row[:9])
        for row in connection.execute(
            "SELECT t.token_id, r.new_amount, r.old_amount IS NOT NULL AND r.new_amount IS NULL,"
            " r.emptied, r.new_name, r.run_id, r.webhook_id, r.read_at, r.body_sha256,"
            f" {content} FROM removal_rows r JOIN tokens t USING (token_no)"
            " WHERE r.held AND r.wallet_no = ?",
            (wallet_no,),
        )
    ]
    if not wallet_no:
        for row in rows:
            yield (
                row.run_id,
                TokenRead(
                    token_id=row.token_id,
                    content=row.shown,
                    sequence=numbers.take(),
                    started_at=row.read_at,
                    outcome="ok",
                    webhook_id=row.webhook_id,
                ),
            )
        return
    (wallet_id,) = connection.execute(
        "SELECT wallet_id FROM wallets WHERE wallet_no = ?", (wallet_no,)
    ).fetchone()
    entries: dict[str, Entry] = {
        token_id: (token_id, amount, None)
        for token_id, amount in connection.execute(
            "SELECT t.token_id, b.amount FROM balance_rows b JOIN tokens t USING (token_no)"
            " WHERE b.wallet_no = ?",
            (wallet_no,),
        )
    }
    for row in rows:
        if row.removed:
            entries.pop(row.token_id, None)
        elif row.token_id in entries:
            amount = entries[row.token_id][1] if row.new_amount is None else row.new_amount
            entries[row.token_id] = (row.token_id, amount, row.shown)
    for row in rows[:1]:
        yield (
            row.run_id,
            WalletRead(
                wallet_id=wallet_id,
                entries=list(entries.values()),
                sequence=numbers.take(),
                started_at=row.read_at,
                outcome="ok",
                digest=row.digest,
                webhook_id=row.webhook_id,
            ),
        )
