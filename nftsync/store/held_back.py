"""What is held back of what reads show to be gone, and the reads that let it through."""

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
from nftsync.store.database import over_keys
from nftsync.store.removals import without_metadata
from nftsync.text import counted

__all__ = ["HELD_BACK", "Held", "held", "held_rows", "numbers_held", "reads_of_held"]

#: Why a wallet, token or run is not wholly read.
HELD_BACK = (
    "too much vanished within 24 hours: what is no longer there was held back; see it with "
    "`nftsync removals`"
)


class Held(msgspec.Struct, frozen=True):
    """How much is held back.

    Attributes:
        wallets: of how many wallets.
        balances: tokens no longer listed, and amounts that fell.
        emptied: tokens whose metadata was emptied.
        since: when the first of it was read; None: nothing is.
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


def held(connection: sqlite3.Connection) -> Held:
    """How much is held back; `since` is None where nothing is."""
    row = connection.execute(
        "SELECT count(DISTINCT nullif(wallet_no, 0)), coalesce(sum(old_amount IS NOT NULL), 0),"
        " count(DISTINCT iif(emptied, token_no, NULL)), min(observed_at)"
        " FROM removal_rows WHERE held"
    ).fetchone()
    return Held(*row)


def held_rows(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """What is held back: a row per wallet and token, by the names of the public columns."""
    found = connection.execute(
        "SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group, t.token_id, t.name,"
        " t.contract_address, coalesce(c.collection, t.contract_short) AS collection,"
        " r.old_amount, r.new_amount, CASE WHEN r.old_amount IS NULL THEN 'metadata emptied'"
        " WHEN r.new_amount IS NULL THEN 'no longer listed' ELSE 'amount fell' END AS what,"
        " r.observed_at, r.run_id, r.webhook_id"
        " FROM removal_rows r JOIN tokens t USING (token_no) LEFT JOIN wallets w USING (wallet_no)"
        " LEFT JOIN contracts c ON c.contract = t.contract"
        " WHERE r.held ORDER BY r.observed_at, r.wallet_no, r.token_no"
    )
    names = [column[0] for column in found.description]
    return (dict(zip(names, row, strict=True)) for row in found)


def numbers_held(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[int]:
    """The numbers of the wallets of which something is held back, all or some of them.

    Args:
        connection: any connection.
        wallet_ids: the wallets; None for all, and 0 for tokens that were read by their id.
    """
    if wallet_ids is None:
        rows = connection.execute("SELECT DISTINCT wallet_no FROM removal_rows WHERE held")
    else:
        rows = over_keys(
            connection,
            "SELECT DISTINCT r.wallet_no FROM json_each(?) k JOIN wallets w ON w.wallet_id ="
            " k.value JOIN removal_rows r USING (wallet_no) WHERE r.held",
            wallet_ids,
        )
    return [row[0] for row in rows]


class _Row(NamedTuple):
    content: Content
    token_id: str
    new_amount: str | None
    removed: bool
    emptied: bool
    run_id: int | None
    webhook_id: str | None
    read_at: str
    digest: str | None


def reads_of_held(
    connection: sqlite3.Connection, numbers: SequenceNumbers, wallet_no: int
) -> Iterator[tuple[int | None, WalletRead | TokenRead]]:
    """What was held back of a wallet, as the read that shows it; with the run that made it.

    Args:
        connection: in the write transaction that applies it.
        numbers: a number to take before it is applied.
        wallet_no: the wallet; 0 for the tokens that were read by their id.
    """
    content = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = [
        _Row(row[8:], *row[:8])
        for row in connection.execute(
            "SELECT t.token_id, r.new_amount, r.old_amount IS NOT NULL AND r.new_amount IS NULL,"  # noqa: S608 - our own names
            " r.emptied, r.run_id, r.webhook_id, r.read_at, r.body_sha256,"
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
                    content=without_metadata(row.content),
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
            stripped = without_metadata(row.content) if row.emptied else None
            entries[row.token_id] = (row.token_id, amount, stripped)
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
