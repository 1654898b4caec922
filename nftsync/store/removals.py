"""The tables of the removal guard: removals per wallet, and reads held for review.

A removal is a balance that disappears, an amount that falls below half of what it was, also of what
it was 24 hours ago, or metadata that becomes empty. A name that replaces another name is noted with
them, because a provider with a fault may give all tokens the same one.
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
from nftsync.store.database import named_rows, over_keys, write_rows
from nftsync.text import counted


class Gone(NamedTuple):
    """What a read removes of one token.

    Attributes:
        before: the amount that is removed; None: the balance stays.
        after: the amount that is left; None: the balance is no longer listed.
        emptied: the metadata becomes empty.
        names: the contract of the token whose name is replaced, the name before and after.
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
    """Sum up what a read removes, and what its wallet gained; None if it removes nothing.

    Args:
        wallet: its id and group; a blank id for a token that was read by its id.
        gone: its removals, by the token's number.
        ids: the ids of these tokens.
        gained: the amounts before and after of tokens of which the wallet has got more.
    """
    if not gone:
        return None
    lost = [(ids[number], each) for number, each in gone.items() if each.before is not None]
    return Removals(
        *wallet,
        balances=[token for token, _ in lost],
        before=[intern(each.before or "") for _, each in lost],
        after={token: each.after for token, each in lost if each.after is not None},
        gained=gained,
        emptied=[ids[number] for number, each in gone.items() if each.emptied],
        renamed={ids[number]: each.names for number, each in gone.items() if each.names},
    )


class HeldRemovals:
    """The removals held for review of the wallets in a batch of reads."""

    def __init__(
        self, connection: sqlite3.Connection, observed_at: str, run_id: int | None
    ) -> None:
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._known: dict[int, set[int]] = {}
        self._new: list[tuple[Any, ...]] = []
        self._over: list[tuple[int, int]] = []

    def load(self, wallet_numbers: Sequence[int]) -> None:
        """Look up the rows of wallets; 0 stands for tokens that are read by their id."""
        if self._connection.execute("SELECT 1 FROM removal_rows LIMIT 1").fetchone() is None:
            return
        rows = over_keys(
            self._connection,
            "SELECT r.wallet_no, r.token_no FROM json_each(?) k"
            " JOIN removal_rows r ON r.wallet_no = k.value WHERE r.held",
            wallet_numbers,
        )
        for wallet_no, token_no in rows:
            self._known.setdefault(wallet_no, set()).add(token_no)

    def note(
        self,
        wallet_no: int,
        read: WalletRead | TokenRead,
        gone: Mapping[int, Gone],
        *,
        hold: bool,
        token_no: int | None = None,
    ) -> None:
        """Note a read's removals that are held, and clear those that it contradicts or applies.

        Args:
            wallet_no: the wallet's number, or 0.
            read: the read as it came.
            gone: its removals, by token.
            hold: whether they are held, not applied.
            token_no: the only token that the read is about.
        """
        held = gone if hold else {}
        digest = read.digest if isinstance(read, WalletRead) else None
        origin = (self._at, self._run_id, read.webhook_id, read.started_at, digest)
        self._new += [
            (wallet_no, number, *one[:3], True, *origin, one.names and one.names[2])
            for number, one in held.items()
        ]
        over = self._known.get(wallet_no, set()) - held.keys()
        if read.outcome != "ok":  # it shows nothing of what it does not list
            over &= gone.keys()
        self._over += [(wallet_no, number) for number in over if token_no in {None, number}]

    def clear(self, wallet_numbers: Sequence[int]) -> None:
        """Clear all of wallets that were read and are as the database says."""
        over_keys(
            self._connection,
            "DELETE FROM removal_rows WHERE held AND wallet_no IN (SELECT value FROM json_each(?))",
            [number for number in wallet_numbers if number in self._known],
        )

    def write(self) -> None:
        """Write what was noted."""
        rows: dict[str, Sequence[Sequence[Any]]] = {
            "DELETE FROM removal_rows WHERE wallet_no = ? AND token_no = ?": self._over,
            "INSERT OR REPLACE INTO removal_rows": self._new,
        }
        write_rows(self._connection, rows)


def fell(before: str | None, after: str | None) -> bool:
    """Tell whether an amount fell below half, or is no number any more."""
    was, is_now = exact(before), exact(after)
    return bool(was) and (is_now is None or 2 * is_now < (was or 0))


def has_metadata(content: Content) -> bool:
    """Tell whether any metadata of a token is known."""
    return content[NAME] is not None or any(x is not None for x in content[METADATA])


def without_metadata(content: Content) -> Content:
    """Return content with its metadata emptied; `extra` may hold more of it, and goes too."""
    return (*content[: METADATA.start], *(None for _ in content[METADATA]), None)


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
    row = connection.execute(
        "SELECT count(DISTINCT nullif(wallet_no, 0)), coalesce(sum(old_amount IS NOT NULL), 0),"
        " count(DISTINCT iif(emptied OR new_name IS NOT NULL, token_no, NULL)), min(observed_at)"
        f" FROM removal_rows r WHERE {_HELD}",
        _given(wallet_ids),
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


#: The row `r` is held, of one of the wallets ?1, or of any if that is null.
_HELD = (
    "r.held AND (?1 = 'null' OR r.wallet_no IN"
    " (SELECT wallet_no FROM wallets WHERE wallet_id IN (SELECT value FROM json_each(?1))))"
)


def _given(wallet_ids: Sequence[str] | None) -> tuple[str]:
    return (msgspec.json.encode(wallet_ids).decode(),)


def held_rows(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Find the removals held for review: a row per wallet and token, with the public columns."""
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
        _given(wallet_ids),
    )
    return named_rows(rows)


def numbers_held(
    connection: sqlite3.Connection, wallet_ids: Sequence[str] | None = None
) -> list[int]:
    """Find the numbers of the wallets with removals held for review, all or some of them.

    Of all, 0 is among them if there are removals of tokens that were read by their id.
    """
    query = f"SELECT DISTINCT r.wallet_no FROM removal_rows r WHERE {_HELD}"
    return [row[0] for row in connection.execute(query, _given(wallet_ids))]


def _shown(content: Content, *, emptied: bool, new_name: str | None) -> Content | None:
    """Return a token's content as a held read showed it; None: it is as it was."""
    if emptied:
        return without_metadata(content)
    return None if new_name is None else (*content[:NAME], new_name, *content[NAME + 1 :])


def reads_of_held(
    connection: sqlite3.Connection, numbers: SequenceNumbers, wallet_no: int
) -> Iterator[tuple[int | None, WalletRead | TokenRead]]:
    """Make the read that applies a wallet's held removals; with the run that made it.

    Args:
        connection: in the write transaction that applies it.
        numbers: a number to take before it is applied.
        wallet_no: the wallet; 0 for the tokens that were read by their id.
    """
    columns = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = connection.execute(
        "SELECT r.run_id, r.webhook_id, r.read_at, r.body_sha256, t.token_id, r.new_amount,"
        f" r.old_amount IS NOT NULL AND r.new_amount IS NULL, r.emptied, r.new_name, {columns}"
        " FROM removal_rows r JOIN tokens t USING (token_no) WHERE r.held AND r.wallet_no = ?",
        (wallet_no,),
    ).fetchall()
    held = connection.execute(
        "SELECT w.wallet_id, t.token_id, b.amount FROM wallets w LEFT JOIN balance_rows b"
        " USING (wallet_no) LEFT JOIN tokens t USING (token_no) WHERE wallet_no = ?",
        (wallet_no,),
    ).fetchall()
    entries: dict[str, Entry] = {token: (token, amount, None) for _, token, amount in held if token}

    def asked(webhook_id: str | None, read_at: str) -> dict[str, Any]:
        number = numbers.take()
        given = {"sequence": number, "started_at": read_at, "webhook_id": webhook_id}
        return {"outcome": "ok", **given}

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
        shown_by = {"wallet_id": held[0][0], "entries": list(entries.values()), "digest": digest}
        yield run_id, WalletRead(**shown_by, **asked(webhook_id, read_at))
