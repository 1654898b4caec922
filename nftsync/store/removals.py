"""Records of removals: those of the last 24 hours, and those held for review.

A removal is a balance that disappears, an amount that falls below half of what it was, also of what
it was 24 hours ago, or metadata that becomes empty. A name that replaces another name is noted with
them, because a provider with a fault may give all tokens the same one.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from sys import intern
from typing import Any, Literal, NamedTuple

import msgspec

from nftsync.exact_sum import exact
from nftsync.records import (
    CONTENT_COLUMNS,
    Content,
    Entry,
    Removals,
    SequenceNumbers,
    TokenRead,
    WalletRead,
)
from nftsync.store.database import over_keys, write_rows
from nftsync.store.history import first_row
from nftsync.text import counted
from nftsync.times import shifted

_DAY = timedelta(hours=24)
#: For so long, in seconds, the number of balances held 24 hours ago is not counted again.
_COUNTED_FOR = 600.0
#: The place of the name in a token's content.
NAME = CONTENT_COLUMNS.index("name")
_METADATA = slice(NAME, CONTENT_COLUMNS.index("extra"))
_METADATA_COLUMNS = CONTENT_COLUMNS[_METADATA]

Feed = Literal["balance_change_rows", "token_change_rows"]


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
        self._new += [
            (
                wallet_no,
                number,
                one.before,
                one.after,
                one.emptied,
                True,
                self._at,
                self._run_id,
                read.webhook_id,
                read.started_at,
                read.digest if isinstance(read, WalletRead) else None,
                one.names and one.names[2],
            )
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
    return content[NAME] is not None or any(x is not None for x in content[_METADATA])


def without_metadata(content: Content) -> Content:
    """Return content with its metadata emptied; `extra` may hold more of it, and goes too."""
    return (*content[: _METADATA.start], *(None for _ in content[_METADATA]), None)


# The last 24 hours -----------------------------------------------------------------------------


def first_change(
    connection: sqlite3.Connection, at: str, feed: Feed = "balance_change_rows"
) -> int:
    """Find the first change of the last 24 hours: the state before it is what reads compare with.

    Changes that were approved are older. If the writer's clock was ahead, the feed's times say
    nothing until the clock has caught up; then the times of the runs decide.

    Args:
        connection: any connection.
        at: the current time.
        feed: which changes.
    """
    since, ahead = shifted(at, -_DAY), shifted(at, _DAY)
    last, approved = connection.execute(
        f"SELECT (SELECT coalesce(max(change_id), -1) + 1 FROM {feed}),"
        f" approved_{feed.removesuffix('_rows')} FROM mirror_state"
    ).fetchone()
    low = max(first_row(connection, feed, since, later=True), approved + 1)
    time_of = f"SELECT observed_at FROM {feed} WHERE change_id >= ? ORDER BY change_id LIMIT 1"
    row = connection.execute(time_of, (low,)).fetchone()
    if row is None or row[0] <= ahead:
        return int(low)
    (first,) = connection.execute(
        f"SELECT min(c.change_id) FROM {feed} c LEFT JOIN sync_runs r USING (run_id)"
        " WHERE c.change_id >= ? AND (r.run_id IS NULL"
        " OR (r.started_at <= ? AND coalesce(r.finished_at, ?) > ?))",
        (low, ahead, at, since),
    ).fetchone()
    return int(last if first is None else first)


class Part(NamedTuple):
    """The wallets of a group that were first read within 24 hours, or the others."""

    group: str | None
    is_new: bool


class Change(NamedTuple):
    """A change of a balance; `at` is when it was stored, blank: it is not."""

    wallet: str
    group: str | None
    token: str
    before: str | None
    after: str | None
    at: str


class FirstRead(NamedTuple):
    """A balance that a wallet's first read showed; `at` is when the run of that read started."""

    wallet: str
    token: str
    amount: str
    at: str


class Rename(NamedTuple):
    """A token that had another name 24 hours ago."""

    token: str
    contract: str | None
    before: str
    after: str


_NEW_WALLETS = "SELECT wallet_no FROM balance_change_rows WHERE change_id >= ? AND baseline"


def listed(connection: sqlite3.Connection, first: int) -> Counter[Part]:
    """Count the balances other than 0 of the tracked wallets, given the first change of the day."""
    rows = connection.execute(
        f"SELECT w.wallet_group, w.wallet_no IN ({_NEW_WALLETS}) AS is_new, count(*)"
        " FROM balance_rows b JOIN wallets w USING (wallet_no)"
        " WHERE w.tracked AND b.held_since IS NOT NULL GROUP BY 1, 2",
        (first,),
    )
    return Counter({Part(group, bool(is_new)): count for group, is_new, count in rows})


class HeldBalances:
    """How many balances were held 24 hours ago, counted again every ten minutes."""

    def __init__(self) -> None:
        """Begin with no count."""
        self._held: Counter[Part] = Counter()
        self._counted_at = -_COUNTED_FOR

    def count(
        self, connection: sqlite3.Connection, first: int, more: Counter[Part]
    ) -> Counter[Part]:
        """Count them: the current balances, and `more`."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            self._held = listed(connection, first)
            self._held.update(more)
            self._counted_at = time.monotonic()
        return self._held.copy()


class LastDay:
    """The last 24 hours of a database: its changes, and current holdings."""

    def __init__(self, connection: sqlite3.Connection, at: str, balances: HeldBalances) -> None:
        """Find where they begin.

        Args:
            connection: in no transaction, as counting balances may take a second.
            at: the current time.
            balances: the number of balances, which outlasts this view.
        """
        self._connection = connection
        self._at = at
        self._balances = balances
        self._first = first_change(connection, at)
        self._last_reads: dict[tuple[str, str], str | None] = {}

    def count_losses(self) -> tuple[int, int]:
        """Count the changes that may lower an amount, and their wallets: no fewer."""
        rows, wallets = self._connection.execute(
            "SELECT count(*), count(DISTINCT wallet_no) FROM balance_change_rows"
            " WHERE change_id >= ? AND NOT baseline AND old_amount IS NOT NULL"
            " AND (new_amount IS NULL OR (length(new_amount), new_amount)"
            " < (length(old_amount), old_amount) OR new_amount GLOB '*[^0-9]*'"
            " OR new_amount GLOB '0?*' OR length(new_amount) > 100)",
            (self._first,),
        ).fetchone()
        return int(rows), int(wallets)

    def changes(self) -> list[Change]:
        """Return the changes, oldest first, without first reads."""
        return changes_since(self._connection, self._first)

    def first_reads(self, tokens: Collection[str]) -> Iterator[FirstRead]:
        """Return what first reads showed of tokens, except in the database's first run."""
        rows = over_keys(
            self._connection,
            "SELECT w.wallet_id, t.token_id, c.new_amount, coalesce(r.started_at, c.observed_at)"
            " AS at FROM balance_change_rows c JOIN wallets w USING (wallet_no)"
            " JOIN tokens t USING (token_no) LEFT JOIN sync_runs r ON r.run_id = c.run_id"
            " WHERE c.change_id >= ?2 AND c.baseline AND c.new_amount IS NOT NULL"
            " AND t.token_id IN (SELECT value FROM json_each(?1)) AND at >"
            " (SELECT first_read_at FROM wallet_state_rows ORDER BY state_id LIMIT 1)",
            tokens,
            self._first,
        )
        return (FirstRead(*row) for row in rows)

    def last_read(self, wallet: str, at: str) -> str | None:
        """Return the start of a wallet's last read before a change; None: it was not read."""
        if (wallet, at) not in self._last_reads:
            row = self._connection.execute(
                "SELECT last_read_at FROM wallet_state_rows WHERE wallet_no ="
                " (SELECT wallet_no FROM wallets WHERE wallet_id = ?1)"
                " AND (?2 = '' OR observed_at < ?2) ORDER BY state_id DESC LIMIT 1",
                (wallet, at),
            ).fetchone()
            self._last_reads[wallet, at] = row and row[0]
        return self._last_reads[wallet, at]

    def new_wallets(self) -> set[str]:
        """Return the wallets whose first read showed a balance."""
        rows = self._connection.execute(
            f"SELECT wallet_id FROM wallets WHERE wallet_no IN ({_NEW_WALLETS})", (self._first,)
        )
        return {wallet for (wallet,) in rows}

    def held(self, more: Counter[Part]) -> Counter[Part]:
        """Count the balances that each part held: the current ones, plus `more`."""
        return self._balances.count(self._connection, self._first, more)

    def emptied(self) -> set[str]:
        """Return the tokens whose metadata was emptied, and still is."""
        had = " OR ".join(f"c.before ->> '{column}' IS NOT NULL" for column in _METADATA_COLUMNS)
        none = " AND ".join(f"t.{column} IS NULL" for column in _METADATA_COLUMNS)
        rows = self._connection.execute(
            "SELECT DISTINCT t.token_id FROM token_change_rows c JOIN tokens t USING (token_no)"
            f" WHERE c.change_id >= ? AND {none} AND ({had})",
            (self._first_of_tokens,),
        )
        return {token for (token,) in rows}

    def renames(self, waiting: Mapping[str, tuple[str | None, str, str]]) -> Iterator[Rename]:
        """Return the tokens with a new name, stored or in a waiting read."""
        rows = self._connection.execute(
            "SELECT t.token_id, t.contract, c.before ->> 'name' AS old, t.name"
            " FROM token_change_rows c JOIN tokens t USING (token_no) WHERE c.change_id IN"
            " (SELECT min(change_id) FROM token_change_rows WHERE change_id >= ?"
            " AND json_type(before, '$.name') IS NOT NULL GROUP BY token_no)"
            " AND old <> t.name",
            (self._first_of_tokens,),
        )
        yield from (Rename(*row) for row in rows if row[0] not in waiting)
        yield from (Rename(token, *names) for token, names in waiting.items())

    @property
    def _first_of_tokens(self) -> int:
        return first_change(self._connection, self._at, "token_change_rows")

    def tokens(self) -> int:
        """Count the tokens."""
        query = "SELECT coalesce(max(token_no), 0) FROM tokens"
        (number,) = self._connection.execute(query).fetchone()
        return int(number)

    def now(self) -> str:
        """Return the current time."""
        return self._at


def changes_since(
    connection: sqlite3.Connection, first: int, *, baseline: bool = False
) -> list[Change]:
    """Find changes, oldest first: those of first reads, or the others.

    Args:
        connection: any connection.
        first: the first change.
        baseline: those of first reads.
    """
    rows = connection.execute(
        "SELECT w.wallet_id, w.wallet_group, t.token_id, c.old_amount, c.new_amount, c.observed_at"
        " FROM balance_change_rows c JOIN wallets w USING (wallet_no)"
        " JOIN tokens t USING (token_no) WHERE c.change_id >= ? AND c.baseline = ?"
        " ORDER BY c.change_id",
        (first, baseline),
    )
    return [Change(*row) for row in rows]


def approve_all(connection: sqlite3.Connection) -> None:
    """Let nothing that was removed so far count against later removals."""
    connection.execute(
        "UPDATE mirror_state SET"
        " approved_balance_change = (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),"
        " approved_token_change = (SELECT coalesce(max(change_id), 0) FROM token_change_rows)"
    )


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
