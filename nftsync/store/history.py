"""History queries: the state at a time, and the last 24 hours for the removal guard."""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Literal, NamedTuple

from nftsync.errors import InputError, NftsyncWarning, StoreError
from nftsync.records import CONTENT_COLUMNS, METADATA
from nftsync.store.database import Queryable, over_keys
from nftsync.times import MOMENT, shifted, up_to_now

#: The last time of each log; times never decrease.
_OBSERVED = """
    SELECT (SELECT observed_at FROM balance_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM token_change_rows ORDER BY change_id DESC LIMIT 1),
        (SELECT observed_at FROM wallet_state_rows ORDER BY state_id DESC LIMIT 1)
"""
#: Other stored times, from small tables.
_READ = "SELECT (SELECT max(finished_at) FROM sync_runs), (SELECT max(synced_at) FROM wallets)"


def last_observed(database: Queryable) -> str | None:
    """Return the last time in the logs, or None if they are empty."""
    return max((time for time in database.execute(_OBSERVED).fetchone() if time), default=None)


def first_row(
    database: Queryable,
    table: str,
    moment: str,
    *,
    later: bool,
    key: str = "change_id",
) -> int:
    """Find the first row of a log from a time on, by bisection.

    Args:
        later: start after the time instead of at the time.

    Returns:
        The lowest key of rows from that time on; above all keys if there are none.
    """
    low, high = database.execute(
        # Two queries, because SQLite scans the table if one query asks for both ends.
        f"SELECT (SELECT min({key}) FROM {table}), (SELECT max({key}) FROM {table})"
    ).fetchone()
    if low is None:
        return 0
    high += 1
    next_row = f"SELECT {key}, observed_at FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1"
    while low < high:
        middle = (low + high) // 2
        number, time_of_row = database.execute(next_row, (middle,)).fetchone()
        if time_of_row > moment or (time_of_row == moment and not later):
            high = middle
        else:
            low = number + 1
    return int(low)


def known_time(database: Queryable, moment: str) -> str:
    """Return a time, or raise InputError if our clock and the stored times have not reached it.

    Returns:
        The time; for the end of the current day, the present.
    """

    def latest() -> str | None:
        times = (last_observed(database), *database.execute(_READ).fetchone())
        return max((time for time in times if time), default=None)

    return up_to_now(moment, latest)


# Partial states ----------------------------------------------------------------------------------


def begin_span(
    connection: sqlite3.Connection, run_id: int, at: str, *, changed: bool = True
) -> None:
    """Record that the state is partial from a time on; see `schema.sql`.

    Args:
        changed: the transaction stored changes. If not, the state at the last stored time stays
            whole, even if the clock was set back, and that time is also the present.
    """
    if not changed:
        at = max(at, shifted(last_observed(connection) or at, MOMENT))
    connection.execute(
        "INSERT INTO partial_spans (run_id, began_at) SELECT ?1, ?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM partial_spans WHERE run_id = ?1 AND ended_at > '9999')",
        (run_id, at),
    )


def last_begin(connection: sqlite3.Connection) -> str | None:
    """Return the last begin of the spans that have not ended; later changes are not before it."""
    query = "SELECT max(began_at) FROM partial_spans WHERE ended_at > '9999'"
    at: str | None = connection.execute(query).fetchone()[0]
    return at


#: A sync before ?2 that was cut off, if all wallets that answer have been read since it began.
_MADE_UP_FOR = """
    EXISTS (SELECT 1 FROM sync_runs r JOIN sync_runs later ON later.run_id = ?2
        WHERE r.run_id = partial_spans.run_id AND r.kind = 'sync' AND r.run_id < ?2
        AND (later.reads_all OR NOT EXISTS (SELECT 1 FROM wallets
            WHERE tracked AND status IN ('ok', 'incomplete') AND sequence < r.first_sequence)))
"""


def end_span(connection: sqlite3.Connection, run_id: int, *, made_up_for: bool = False) -> None:
    """Record that a run has stored all its changes.

    `made_up_for`: so have the syncs that were cut off before it, if it read their wallets again.
    """
    which = f"(run_id = ?2 OR {_MADE_UP_FOR})" if made_up_for else "run_id = ?2"
    connection.execute(
        "UPDATE partial_spans SET ended_at = max(began_at, ?1)"
        f" WHERE ended_at > '9999' AND {which}",
        (last_observed(connection) or "", run_id),
    )


def whole_time(database: Queryable, moment: str) -> str:
    """Return the time of the last whole state up to a time; warn if that is earlier."""
    whole, run, unended = moment, "", False
    query = (
        "SELECT began_at, kind || ' ' || run_id, kind = 'sync' AND ended_at > '9999'"
        " FROM partial_spans JOIN sync_runs USING (run_id)"
        " WHERE ended_at > ?1 AND began_at <= ?1 ORDER BY began_at LIMIT 1"
    )
    while (span := database.execute(query, (whole,)).fetchone()) is not None:
        whole, run = shifted(span[0], -MOMENT), run or span[1]
        unended = unended or bool(span[2])
    if run:
        advice = " If no sync is running, complete it: `nftsync sync --resume`" if unended else ""
        warnings.warn(
            f"{moment} is within {run}, which had stored only some of its changes; this is the last"
            f" whole state before it, of {whole}.{advice}",
            NftsyncWarning,
            stacklevel=1,  # Python shows a warning once per line and text
        )
    return whole


#: The time of the first read, by a condition on rows.
FIRST_READ = """
    SELECT min(at) FROM (
        SELECT * FROM (SELECT observed_at AS at FROM wallet_state_rows {which}
            ORDER BY state_id LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT observed_at FROM balance_change_rows {which}
            ORDER BY change_id LIMIT 1))
"""
#: The end of the spans around a time; a sync may have read empty wallets before its span.
_SPANS_END = (
    "SELECT max(ended_at) FROM partial_spans JOIN sync_runs USING (run_id) WHERE ended_at > ?1"
    " AND iif(kind = 'sync', min(began_at, started_at), began_at) <= ?1"
)
#: Why a database has no history.
_NO_HISTORY = (
    "no balances are known yet; see `nftsync status`, and read the wallets: `nftsync sync`"
)


def history_begin(database: Queryable) -> str | None:
    """Return the time of the first whole state, or None if there is none yet."""
    begin: str | None = None
    (later,) = database.execute(FIRST_READ.format(which="")).fetchone()
    while later is not None:
        begin = later
        (later,) = database.execute(_SPANS_END, (begin,)).fetchone()
    return None if begin is None or begin > "9999" else begin


def from_history(database: Queryable, start: str, effect: str = "") -> str:
    """Return a time, or the begin of the history if that is later, with a warning.

    `effect` is the end of the warning.
    """
    begin = history_begin(database)
    if begin is None or start < begin:
        note = f"the history begins at {begin}; earlier holdings and movements are unknown{effect}"
        warnings.warn(note if begin else _NO_HISTORY, NftsyncWarning, stacklevel=1)
    return max(start, begin or start)


def period_start(database: Queryable, start: str, end: str | None) -> str:
    """Return the start of a period, as `from_history` does.

    Raises:
        InputError: the period ends before the history.
        StoreError: there is no history.
    """
    if (begin := history_begin(database)) is None:
        raise StoreError(_NO_HISTORY)
    if end is not None and end < begin:
        raise InputError(f"the period ends before the history, which begins at {begin[:19]}Z")
    return from_history(database, start, ", so the period begins there")


#: Difference of clocks that causes no warning.
_CLOCKS_APART = timedelta(minutes=5)


def ahead_of(database: Queryable, clock: str) -> str | None:
    """Return a warning if stored times are minutes ahead of the clock, or None."""
    last = last_observed(database)
    if last is None or last <= shifted(clock, _CLOCKS_APART):
        return None
    return (
        f"the last change is stored as of {last[:19]}Z, but this clock says {clock[:19]}Z. This"
        " clock is behind, or an earlier one was ahead. Times in the change feed never decrease."
        " Until this clock reaches that time, all changes get that one time, and --as-of does not"
        " show them for earlier times."
        " Current holdings are correct. If this clock is right, start over with another --database,"
        " and keep this one for its history"
    )


# The last 24 hours -----------------------------------------------------------------------------


#: The removal guard compares with the state this long ago.
DAY = timedelta(hours=24)
#: Seconds between two counts of the balances held 24 hours ago.
_COUNTED_FOR = 600.0
_METADATA_COLUMNS = CONTENT_COLUMNS[METADATA]

Feed = Literal["balance_change_rows", "token_change_rows"]


def first_change(
    connection: sqlite3.Connection, at: str, feed: Feed = "balance_change_rows"
) -> int:
    """Find the first change of the last 24 hours that was not approved.

    If the writer's clock was ahead, the feed's times mean nothing until the clock has caught up, so
    the times of the runs decide.
    """
    since, ahead = shifted(at, -DAY), shifted(at, DAY)
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
    """A group's new wallets, first read within 24 hours, or its other wallets."""

    group: str | None
    is_new: bool


class Change(NamedTuple):
    """A change of a balance; `at` is the time of storage, blank for a change not stored."""

    wallet: str
    group: str | None
    token: str
    before: str | None
    after: str | None
    at: str


class FirstRead(NamedTuple):
    """A balance from a wallet's first read; `at` is the start of that run."""

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


def count_listed(connection: sqlite3.Connection, first: int) -> Counter[Part]:
    """Count the holdings of tracked wallets, given the first change of the day."""
    rows = connection.execute(
        f"SELECT w.wallet_group, w.wallet_no IN ({_NEW_WALLETS}) AS is_new, count(*)"
        " FROM balance_rows b JOIN wallets w USING (wallet_no)"
        " WHERE w.tracked AND b.held_since IS NOT NULL GROUP BY 1, 2",
        (first,),
    )
    return Counter({Part(group, bool(is_new)): count for group, is_new, count in rows})


class LastDay:
    """The last 24 hours of a database: changes, and current holdings.

    The balances held 24 hours ago are counted every ten minutes.
    """

    def __init__(self) -> None:
        self._held: Counter[Part] = Counter()
        self._counted_at = -_COUNTED_FOR

    def begin(self, connection: sqlite3.Connection, at: str) -> None:
        """Find the first change of the day; call it outside transactions, as it is slow."""
        self._connection = connection
        self.at = at
        self._first = first_change(connection, at)
        self._last_reads: dict[tuple[str, str], str | None] = {}

    def count_losses(self) -> tuple[int, int]:
        """Return upper bounds for the lowered amounts, and for their wallets."""
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
        """Return the balances of tokens from first reads, except in the database's first run."""
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
        """Return the start of a wallet's last read before a change, or None."""
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

    def count_balances(self, more: Counter[Part]) -> Counter[Part]:
        """Count the balances of each part: the current ones, plus `more`."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            self._held = count_listed(self._connection, self._first)
            self._held.update(more)
            self._counted_at = time.monotonic()
        return self._held.copy()

    def emptied(self) -> set[str]:
        """Return the tokens whose metadata was emptied and is still empty."""
        had = " OR ".join(f"c.before ->> '{column}' IS NOT NULL" for column in _METADATA_COLUMNS)
        none = " AND ".join(f"t.{column} IS NULL" for column in _METADATA_COLUMNS)
        rows = self._connection.execute(
            "SELECT DISTINCT t.token_id FROM token_change_rows c JOIN tokens t USING (token_no)"
            f" WHERE c.change_id >= ? AND {none} AND ({had})",
            (self._first_of_tokens,),
        )
        return {token for (token,) in rows}

    def renames(self, waiting: Mapping[str, tuple[str | None, str, str]]) -> Iterator[Rename]:
        """Return the tokens with a new name, stored or in a pending read."""
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
        return first_change(self._connection, self.at, "token_change_rows")

    def tokens(self) -> int:
        """Count the tokens."""
        query = "SELECT coalesce(max(token_no), 0) FROM tokens"
        (number,) = self._connection.execute(query).fetchone()
        return int(number)


def changes_since(
    connection: sqlite3.Connection, first: int, *, baseline: bool = False
) -> list[Change]:
    """Return changes from number `first` on, oldest first: of first reads, or all others."""
    rows = connection.execute(
        "SELECT w.wallet_id, w.wallet_group, t.token_id, c.old_amount, c.new_amount, c.observed_at"
        " FROM balance_change_rows c JOIN wallets w USING (wallet_no)"
        " JOIN tokens t USING (token_no) WHERE c.change_id >= ? AND c.baseline = ?"
        " ORDER BY c.change_id",
        (first, baseline),
    )
    return [Change(*row) for row in rows]


def approve_all(connection: sqlite3.Connection) -> None:
    """Exclude all removals so far from the removal guard's 24 hours."""
    connection.execute(
        "UPDATE mirror_state SET"
        " approved_balance_change = (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),"
        " approved_token_change = (SELECT coalesce(max(change_id), 0) FROM token_change_rows)"
    )
