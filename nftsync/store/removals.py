"""What counts as a removal in a read, and the table of removals held for review.

A removal is a missing balance, emptied metadata, a replaced name (a faulty provider may give all
tokens one name), or an amount below half of its last value or of its value 24 hours ago.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple

import msgspec

from nftsync.exact_sum import exact
from nftsync.records import (
    CONTENT_COLUMNS,
    METADATA,
    NAME,
    Content,
    Entry,
    Removals,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.store.database import as_json, named_rows, over_keys, write_rows
from nftsync.store.names import Names
from nftsync.text import counted


class Gone(NamedTuple):
    """The removals of one token in a read; without an old amount, the balance stays.

    `names` has the contract, the old name and the new name.
    """

    before: str | None = None
    after: str | None = None
    emptied: bool = False
    names: tuple[str | None, str, str] | None = None


def summed(
    wallet: tuple[str, str | None],
    gone: Mapping[int, Gone],
    ids: Mapping[int, str],
    gained: dict[str, tuple[str | None, str]],
) -> Removals | None:
    """Return the removals and gains of a read, or None; `wallet` is its id and group."""
    if not gone:
        return None
    return Removals(
        *wallet,
        lost={
            ids[number]: (intern(loss.before), loss.after)
            for number, loss in gone.items()
            if loss.before is not None
        },
        gained=gained,
        emptied=[ids[number] for number, loss in gone.items() if loss.emptied],
        renamed={ids[number]: loss.names for number, loss in gone.items() if loss.names},
    )


class HeldRemovals:
    """Updates to the removals held for review, for the wallets in a batch of reads."""

    def __init__(
        self, connection: sqlite3.Connection, observed_at: str, run_id: int | None
    ) -> None:
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._known: dict[int, dict[int, str]] = {}
        self._new: list[tuple[Any, ...]] = []
        self._over: list[tuple[int, int]] = []

    def load(self, wallet_numbers: Sequence[int]) -> None:
        """Look up the rows of wallets; 0 is for tokens that are read by their id."""
        if self._connection.execute("SELECT 1 FROM removal_rows LIMIT 1").fetchone() is None:
            return
        rows = over_keys(
            self._connection,
            "SELECT r.wallet_no, r.token_no, r.observed_at FROM json_each(?) k"
            " JOIN removal_rows r ON r.wallet_no = k.value WHERE r.held",
            wallet_numbers,
        )
        for wallet_no, token_no, observed_at in rows:
            self._known.setdefault(wallet_no, {})[token_no] = observed_at

    def note(
        self,
        wallet_no: int,
        read: WalletRead | TokenRead,
        gone: Mapping[int, Gone],
        *,
        hold: bool,
        token_no: int | None = None,
    ) -> None:
        """Add a read's held removals, and clear removals that it contradicts or applies."""
        to_hold = gone if hold else {}
        digest = read.digest if isinstance(read, WalletRead) else None
        origin = (self._run_id, read.webhook_id, read.started_at, digest)
        held_since = self._known.get(wallet_no, {})
        for number, one in to_hold.items():
            first, name = held_since.get(number, self._at), one.names and one.names[2]
            self._new.append((wallet_no, number, *one[:3], True, first, *origin, name))
        over = held_since.keys() - to_hold.keys()
        if read.outcome != "ok":  # tokens that it does not list may be on another page
            over &= gone.keys()
        self._over += [(wallet_no, number) for number in over if token_no in {None, number}]

    def clear(self, wallet_numbers: Sequence[int]) -> None:
        """Clear the held removals of wallets whose read showed no change."""
        over_keys(
            self._connection,
            "DELETE FROM removal_rows WHERE held AND wallet_no IN (SELECT value FROM json_each(?))",
            [number for number in wallet_numbers if number in self._known],
        )

    def write(self) -> None:
        rows: dict[str, Sequence[Sequence[Any]]] = {
            "DELETE FROM removal_rows WHERE wallet_no = ? AND token_no = ?": self._over,
            "INSERT OR REPLACE INTO removal_rows": self._new,
        }
        write_rows(self._connection, rows)


def fell(before: str | None, after: str | None) -> bool:
    """Return whether an amount fell below half, or is not a number any more."""
    was, is_now = exact(before), exact(after)
    return bool(was) and (is_now is None or 2 * is_now < (was or 0))


def has_metadata(content: Content) -> bool:
    return content[NAME] is not None or any(x is not None for x in content[METADATA])


def without_metadata(content: Content) -> Content:
    """Return content without metadata and without `extra`, which may contain metadata."""
    return (*content[: METADATA.start], *(None for _ in content[METADATA]), None)


#: The error of a wallet or token with held removals.
HELD_BACK = "removals held for review, as too many came within 24 hours"


class Held(msgspec.Struct, frozen=True):
    """Counts of removals held for review; `emptied` includes replaced names."""

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


def held(connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None) -> Held:
    row = connection.execute(
        "SELECT count(DISTINCT nullif(wallet_no, 0)), coalesce(sum(old_amount IS NOT NULL), 0),"
        " count(DISTINCT iif(emptied OR new_name IS NOT NULL, token_no, NULL)), min(observed_at)"
        f" FROM removal_rows r WHERE {_HELD}",
        (as_json(wallet_ids),),
    ).fetchone()
    return Held(*row)


#: The row `r` is held and belongs to one of the wallets ?1; null means any wallet.
_HELD = (
    "r.held AND (?1 = 'null' OR r.wallet_no IN"
    " (SELECT wallet_no FROM wallets WHERE wallet_id IN (SELECT value FROM json_each(?1))))"
)


def held_rows(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the removals held for review: a row per wallet and token."""
    rows = connection.execute(
        "SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group, t.token_id, t.name,"
        " t.contract_address, coalesce(c.collection, t.contract_short) AS collection,"
        " r.old_amount, r.new_amount, r.new_name,"
        " CASE WHEN r.new_amount IS NOT NULL THEN 'amount fell'"
        " WHEN r.old_amount IS NOT NULL THEN 'no longer listed'"
        " WHEN r.emptied THEN 'metadata emptied' ELSE 'name replaced' END AS what,"
        " r.observed_at, r.run_id, r.webhook_id"
        " FROM removal_rows r JOIN tokens t USING (token_no) LEFT JOIN wallets w USING (wallet_no)"
        " LEFT JOIN contracts c ON c.contract = t.contract"
        f" WHERE {_HELD} ORDER BY r.observed_at, r.wallet_no, r.token_no",
        (as_json(wallet_ids),),
    )
    removals = named_rows(rows)
    Names(connection).add_to(removals)
    return removals


class Review(msgspec.Struct, frozen=True):
    """Removals held for review: of some wallets (None: all), as rows of `nftsync removals`.

    `balances` is the number of all holdings.
    """

    wallets: list[str] | None
    counts: Held
    rows: list[dict[str, Any]]
    balances: int

    @property
    def summary(self) -> str:
        """Their number, and their share of all holdings."""
        counts = self.counts
        number = counted(counts.balances + counts.emptied, "removal")
        share = f"{counts.balances / max(counts.balances, self.balances, 1):.0%}"
        of = f" ({share} of holdings)".replace("%", " %") if counts.balances else ""
        return f"{number} held for review{of}"


def review_held(connection: sqlite3.Connection, wallet_ids: list[str] | None = None) -> Review:
    (balances,) = connection.execute(
        "SELECT count(*) FROM balance_rows WHERE held_since IS NOT NULL"
    ).fetchone()
    rows = held_rows(connection, wallet_ids)
    return Review(wallet_ids, held(connection, wallet_ids), rows, balances)


def numbers_held(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[int]:
    """Return the numbers of wallets with held removals; 0 stands for tokens read by their id."""
    query = f"SELECT DISTINCT r.wallet_no FROM removal_rows r WHERE {_HELD}"
    return [row[0] for row in connection.execute(query, (as_json(wallet_ids),))]


def _shown(content: Content, *, emptied: bool, new_name: str | None) -> Content | None:
    if emptied:
        return without_metadata(content)
    return None if new_name is None else (*content[:NAME], new_name, *content[NAME + 1 :])


def reads_of_held(
    connection: sqlite3.Connection, numbers: SequenceNumbers, wallet_no: int
) -> Iterator[tuple[int | None, WalletRead | TokenRead]]:
    """Yield reads that apply a wallet's held removals, each with the run that read them."""
    columns = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = connection.execute(
        "SELECT r.run_id, r.webhook_id, r.read_at, r.body_sha256, t.token_id, r.new_amount,"
        f" r.old_amount IS NOT NULL AND r.new_amount IS NULL, r.emptied, r.new_name, {columns}"
        " FROM removal_rows r JOIN tokens t USING (token_no) WHERE r.held AND r.wallet_no = ?",
        (wallet_no,),
    ).fetchall()
    balances = connection.execute(
        "SELECT w.wallet_id, t.token_id, b.amount FROM wallets w LEFT JOIN balance_rows b"
        " USING (wallet_no) LEFT JOIN tokens t USING (token_no) WHERE wallet_no = ?",
        (wallet_no,),
    ).fetchall()
    entries: dict[str, Entry] = {x: (x, amount, None) for _, x, amount in balances if x}

    def asked(webhook_id: str | None, read_at: str) -> dict[str, Any]:
        origin = {"sequence": numbers.take(), "started_at": read_at, "webhook_id": webhook_id}
        return {"outcome": "ok", **origin}

    for run_id, webhook_id, read_at, _, token, amount, removed, emptied, name, *content in rows:
        shown = _shown(tuple(content), emptied=emptied, new_name=name)
        if not wallet_no:
            yield run_id, TokenRead(token_id=token, content=shown, **asked(webhook_id, read_at))
        elif removed:
            entries.pop(token, None)
        elif token in entries:
            entries[token] = (token, entries[token][1] if amount is None else amount, shown)
    if wallet_no and rows:
        run_id, webhook_id, read_at, digest, *_ = rows[0]
        listed = {"wallet_id": balances[0][0], "entries": list(entries.values())}
        yield run_id, WalletRead(digest=digest, **listed, **asked(webhook_id, read_at))
