"""What reads show to be gone, and how much of it there was within a day.

Three things count: a token that a wallet no longer lists, an amount that falls below half of what
it was, and a token's metadata of which nothing is left. Those that were applied are kept for a
day, as too many at once are a fault of the provider rather than sales.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from nftsync.exact_sum import exact
from nftsync.records import CONTENT_COLUMNS, Content, Removals, TokenRead, WalletRead
from nftsync.store.database import over_keys, write_rows
from nftsync.times import shifted

__all__ = [
    "Gone",
    "RecordedRemovals",
    "Vanished",
    "begin_anew",
    "fell",
    "forget_old",
    "gained",
    "grew",
    "has_metadata",
    "listed",
    "removed",
    "summed",
    "vanished",
    "without_metadata",
]

_WINDOW = timedelta(hours=24)
_METADATA = slice(CONTENT_COLUMNS.index("name"), CONTENT_COLUMNS.index("extra"))


#: What a read shows to be gone of one token: its amount before and now, and whether its metadata
#: was emptied. No amount before: it is not the balance that is gone.
Gone: TypeAlias = tuple[str | None, str | None, bool]


def summed(
    wallet_no: int, group: str | None, gone: Mapping[int, Gone], gained: Iterable[int] = ()
) -> Removals | None:
    """What that is, of a wallet of a group; None: nothing is gone."""
    if not gone:
        return None
    balances = array("q", (no for no, (old, _, _) in gone.items() if old is not None))
    emptied = array("q", (no for no, (_, _, emptied) in gone.items() if emptied))
    return Removals(wallet_no, group, balances, emptied, array("q", gained))


class RecordedRemovals:
    """The rows of what is gone, as a batch of reads finds and leaves them."""

    def __init__(
        self, connection: sqlite3.Connection, observed_at: str, run_id: int | None
    ) -> None:
        self._connection = connection
        self._at = observed_at
        self._run_id = run_id
        self._known: dict[int, dict[int, tuple[str | None, bool]]] = {}
        self._new: list[tuple[Any, ...]] = []
        self._over: list[tuple[int, int]] = []

    def load(self, wallet_numbers: Sequence[int]) -> None:
        """Look up the rows of wallets; 0 stands for tokens that are read by their id."""
        if self._connection.execute("SELECT 1 FROM removal_rows LIMIT 1").fetchone() is None:
            return
        rows = over_keys(
            self._connection,
            "SELECT r.wallet_no, r.token_no, r.old_amount, r.held FROM json_each(?) k"
            " JOIN removal_rows r ON r.wallet_no = k.value",
            wallet_numbers,
        )
        for wallet_no, token_no, old_amount, is_held in rows:
            self._known.setdefault(wallet_no, {})[token_no] = (old_amount, bool(is_held))

    def note(
        self,
        wallet_no: int,
        read: WalletRead | TokenRead,
        gone: Mapping[int, Gone],
        *,
        held: bool = False,
        shown: Callable[[WalletRead], Mapping[int, str]] | None = None,
        token_no: int | None = None,
    ) -> None:
        """Note what a read shows to be gone, and that the rest no longer is.

        Args:
            wallet_no: the wallet's number, or 0.
            read: the read as it came.
            gone: by token.
            held: it is held back.
            shown: gives the amounts that the read shows.
            token_no: the only token that the read is about.
        """
        self._new += [
            (
                *(wallet_no, number, *each, held, self._at, self._run_id, read.webhook_id),
                *(read.started_at, read.digest if isinstance(read, WalletRead) else None),
            )
            for number, each in gone.items()
        ]
        known = self._known.get(wallet_no)
        if not known or read.outcome != "ok":
            return
        amounts = shown(read) if shown is not None and isinstance(read, WalletRead) else {}
        for number, (old_amount, was_held) in known.items():
            if number in gone or token_no not in {None, number}:
                continue
            back = number in amounts and not fell(old_amount, amounts[number])
            if was_held or (old_amount is not None and back):
                self._over.append((wallet_no, number))

    def clear(self, wallet_numbers: Sequence[int]) -> None:
        """Wallets were found as they are in the mirror: nothing of them is held back."""
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


class Vanished(NamedTuple):
    """How much was removed.

    Attributes:
        balances: how many balances.
        wallets: of how many wallets.
        emptied: tokens of whose metadata nothing was left.
    """

    balances: int
    wallets: int
    emptied: set[int]


def fell(before: str | None, after: str) -> bool:
    """Whether an amount that was held is less than half of it now, or no number any more."""
    was, is_now = exact(before), exact(after)
    return bool(was) and (is_now is None or 2 * is_now < (was or 0))


def has_metadata(content: Content) -> bool:
    """Whether anything of a token's metadata is known."""
    return content[_METADATA.start] is not None or any(x is not None for x in content[_METADATA])


def without_metadata(content: Content) -> Content:
    """Content as it is once its metadata is emptied; `extra` may hold more of it, and goes too."""
    return (*content[: _METADATA.start], *(None for _ in content[_METADATA]), None)


def vanished(connection: sqlite3.Connection, at: str) -> Vanished:
    """How much was removed in the 24 hours before a time."""
    since = shifted(at, -_WINDOW)
    balances, wallets = connection.execute(
        "SELECT count(old_amount), count(DISTINCT iif(old_amount IS NULL, NULL, wallet_no))"
        " FROM removal_rows WHERE NOT held AND observed_at > ?",
        (since,),
    ).fetchone()
    tokens = connection.execute(
        "SELECT token_no FROM removal_rows WHERE NOT held AND observed_at > ? AND emptied", (since,)
    )
    return Vanished(balances, wallets, {number for (number,) in tokens})


def removed(connection: sqlite3.Connection, at: str) -> Iterator[tuple[int, str | None, int]]:
    """Each balance that was removed in the 24 hours before a time: wallet, its group, token."""
    return connection.execute(
        "SELECT r.wallet_no, w.wallet_group, r.token_no"
        " FROM removal_rows r JOIN wallets w USING (wallet_no)"
        " WHERE NOT r.held AND r.observed_at > ? AND r.old_amount IS NOT NULL",
        (shifted(at, -_WINDOW),),
    )


def gained(connection: sqlite3.Connection, at: str) -> dict[int, set[int]]:
    """The tokens that wallets got, or got more of, in the 24 hours before a time: by whom.

    What a wallet's first read showed it may always have had.
    """
    rows = connection.execute(
        "SELECT token_no, wallet_no, old_amount, new_amount FROM balance_change_rows"
        " WHERE change_id >= ? AND NOT baseline AND new_amount IS NOT NULL",
        (_first_change(connection, shifted(at, -_WINDOW)),),
    )
    found: dict[int, set[int]] = {}
    for token, wallet, before, after in rows:
        if grew(before, after):
            found.setdefault(token, set()).add(wallet)
    return found


def grew(before: str | None, after: str) -> bool:
    """Whether there is more of an amount than there was."""
    return (exact(after) or 0) > (exact(before) or 0)


def _first_change(connection: sqlite3.Connection, since: str) -> int:
    """The first change that was seen after a time; the log's times never decrease."""
    low, high = connection.execute(
        "SELECT coalesce(min(change_id), 0), coalesce(max(change_id), -1) + 1"
        " FROM balance_change_rows"
    ).fetchone()
    while low < high:
        middle = (low + high) // 2
        (at,) = connection.execute(
            "SELECT observed_at FROM balance_change_rows WHERE change_id >= ?"
            " ORDER BY change_id LIMIT 1",
            (middle,),
        ).fetchone()
        low, high = (low, middle) if at > since else (middle + 1, high)
    return int(low)


def listed(connection: sqlite3.Connection) -> Counter[str | None]:
    """How many balances other than 0 the tracked wallets of each group have."""
    return Counter(
        dict(
            connection.execute(
                "SELECT w.wallet_group, count(*) FROM balance_rows b"
                " JOIN wallets w USING (wallet_no)"
                " WHERE w.tracked AND b.held_since IS NOT NULL GROUP BY 1"
            )
        )
    )


def forget_old(connection: sqlite3.Connection, at: str) -> None:
    """Drop what was removed longer ago than counts."""
    connection.execute(
        "DELETE FROM removal_rows WHERE NOT held AND observed_at <= ?", (shifted(at, -_WINDOW),)
    )


def begin_anew(connection: sqlite3.Connection) -> None:
    """Let nothing that was removed so far count against what is still to come."""
    connection.execute("DELETE FROM removal_rows WHERE NOT held")
