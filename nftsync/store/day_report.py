"""The last 24 hours of a database, as plain data for the removal guard."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from nftsync.records import CONTENT_COLUMNS, METADATA, Removals
from nftsync.store.database import over_keys
from nftsync.store.history import first_row
from nftsync.times import shifted

#: The removal guard compares with the state this long ago.
DAY = timedelta(hours=24)
#: A wallet's group, and whether the wallet was first read within the day.
Part: TypeAlias = tuple[str | None, bool]
_Feed = Literal["balance_change_rows", "token_change_rows"]
_METADATA_COLUMNS = CONTENT_COLUMNS[METADATA]


class Change(NamedTuple):
    """A change of a balance between `since`, the wallet's last read before it, and `at`."""

    wallet: str
    group: str | None
    token: str
    before: str | None
    after: str | None
    since: str | None
    at: str
    is_first_read: bool = False


class DayReport(msgspec.Struct, kw_only=True):
    """Facts about a database's last 24 hours; the reports of a database, or of several, add up.

    Attributes:
        rows, wallets: upper bounds for lowered amounts, also in `waiting`, and their wallets.
        lost: the tokens of these amounts.
        changes: the changes of lost tokens, oldest first; first reads come last.
        last_reads, new_wallets: of the wallets in `waiting` and `changes`.
        holdings: balances 24 hours ago; of new wallets, those of the first read.
        renamed: contract, old name and new name by token.
    """

    at: str = ""
    waiting: list[Removals] = []
    rows: int = 0
    wallets: int = 0
    lost: set[str] = set()
    changes: list[Change] = []
    last_reads: dict[str, str | None] = {}
    new_wallets: set[str] = set()
    holdings: dict[Part, int] = {}
    emptied: set[str] = set()
    renamed: dict[str, tuple[str | None, str, str]] = {}
    tokens: int = 0


def first_change(
    connection: sqlite3.Connection, at: str, feed: _Feed = "balance_change_rows"
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


def day_counts(connection: sqlite3.Connection, at: str, waiting: list[Removals]) -> DayReport:
    """Count the losses of the last 24 hours; never too few."""
    lowered = connection.execute(
        "SELECT c.wallet_no, t.token_id FROM balance_change_rows c JOIN tokens t USING (token_no)"
        " WHERE change_id >= ? AND NOT baseline AND old_amount IS NOT NULL"
        " AND (new_amount IS NULL OR (length(new_amount), new_amount)"
        " < (length(old_amount), old_amount) OR old_amount || new_amount GLOB '*[^0-9]*'"
        " OR old_amount = '' OR new_amount GLOB '0?*' OR length(new_amount) > 100)",
        (first_change(connection, at),),
    ).fetchall()
    return DayReport(
        at=at,
        waiting=waiting,
        rows=len(lowered) + sum(len(read.lost) for read in waiting),
        wallets=len({row[0] for row in lowered}) + sum(bool(read.lost) for read in waiting),
        lost={row[1] for row in lowered}.union(*(read.lost for read in waiting)),
    )


#: The tokens ?1, and their changes from number ?2 on that are not from first reads.
_LATER = """
    WITH lost AS MATERIALIZED (SELECT token_no, token_id
        FROM json_each(?1) JOIN tokens ON token_id = value),
    later AS (SELECT c.*, token_id FROM balance_change_rows c JOIN lost USING (token_no)
        WHERE change_id >= ?2 AND NOT baseline)
"""
_CHANGES = f"""
    {_LATER} SELECT wallet_id, wallet_group, token_id, old_amount, new_amount,
        (SELECT last_read_at FROM wallet_state_rows s WHERE s.wallet_no = later.wallet_no
            AND s.observed_at < later.observed_at ORDER BY state_id DESC LIMIT 1), later.observed_at
    FROM later JOIN wallets USING (wallet_no) ORDER BY change_id
"""
#: First balances, except from the database's first run. They are listed now, or changed later.
_FIRST_READS = f"""
    {_LATER}, holders AS (SELECT wallet_no FROM balance_rows JOIN lost USING (token_no)
        UNION SELECT wallet_no FROM later)
    SELECT wallet_id, wallet_group, token_id, NULL, new_amount, NULL,
        coalesce(started_at, observed_at) AS at
    FROM holders CROSS JOIN balance_change_rows c USING (wallet_no) JOIN lost USING (token_no)
        JOIN wallets USING (wallet_no) LEFT JOIN sync_runs USING (run_id)
    WHERE change_id >= ?2 AND baseline
    AND at > (SELECT first_read_at FROM wallet_state_rows ORDER BY state_id LIMIT 1)
"""
_WALLETS = """
    SELECT wallet_id,
        (SELECT last_read_at FROM wallet_state_rows s WHERE s.wallet_no = w.wallet_no
            ORDER BY state_id DESC LIMIT 1),
        EXISTS (SELECT 1 FROM balance_change_rows c WHERE c.wallet_no = w.wallet_no
            AND change_id >= ?2 AND baseline)
    FROM json_each(?1) JOIN wallets w ON wallet_id = value
"""


def day_changes(
    connection: sqlite3.Connection, at: str, waiting: list[Removals], lost: Collection[str]
) -> DayReport:
    """Return what can explain the losses of tokens: their changes, and facts about the wallets."""
    first = first_change(connection, at)
    changes = [
        Change._make((*row, query is _FIRST_READS))
        for query in (_CHANGES, _FIRST_READS)
        for row in over_keys(connection, query, lost, first)
    ]
    wallets = {change.wallet for change in changes}.union(read.wallet_id for read in waiting)
    rows = over_keys(connection, _WALLETS, wallets, first).fetchall()
    return DayReport(
        changes=changes,
        last_reads={wallet: last_read for wallet, last_read, _ in rows},
        new_wallets={wallet for wallet, _, is_new in rows if is_new},
    )


def day_holdings(connection: sqlite3.Connection, at: str) -> DayReport:
    """Count the balances of 24 hours ago by part: those of now, without the day's changes."""
    listed = "SELECT wallet_no, count(*) AS number FROM balance_rows WHERE held_since IS NOT NULL"
    ended = (
        "SELECT wallet_no, sum((old_amount = '' OR trim(old_amount, '0') <> '') IS TRUE)"
        " - sum((new_amount = '' OR trim(new_amount, '0') <> '') IS TRUE) AS number"
        " FROM balance_change_rows WHERE change_id >= ?1 AND NOT baseline"
    )
    holdings: Counter[Part] = Counter()
    for numbers, condition in ((listed, "tracked"), (ended, "TRUE")):
        rows = connection.execute(
            "SELECT wallet_group, EXISTS (SELECT 1 FROM balance_change_rows c"
            " WHERE c.wallet_no = w.wallet_no AND change_id >= ?1 AND baseline), sum(number)"
            f" FROM ({numbers} GROUP BY wallet_no) JOIN wallets w USING (wallet_no)"
            f" WHERE {condition} GROUP BY 1, 2",
            (first_change(connection, at),),
        )
        holdings.update({(group, bool(is_new)): number for group, is_new, number in rows})
    return DayReport(holdings=holdings)


def day_metadata(connection: sqlite3.Connection, at: str) -> DayReport:
    """Return the tokens whose metadata was emptied and is still empty, or that have a new name."""
    first = first_change(connection, at, "token_change_rows")
    had = " OR ".join(f"before ->> '{column}' IS NOT NULL" for column in _METADATA_COLUMNS)
    none = " AND ".join(f"{column} IS NULL" for column in _METADATA_COLUMNS)
    emptied = connection.execute(
        "SELECT DISTINCT token_id FROM token_change_rows JOIN tokens USING (token_no)"
        f" WHERE change_id >= ? AND {none} AND ({had})",
        (first,),
    )
    renamed = connection.execute(
        "SELECT token_id, contract, before ->> 'name' AS old_name, name"
        " FROM token_change_rows JOIN tokens USING (token_no) WHERE change_id IN"
        " (SELECT min(change_id) FROM token_change_rows WHERE change_id >= ?"
        " AND json_type(before, '$.name') IS NOT NULL GROUP BY token_no) AND old_name <> name",
        (first,),
    )
    (tokens,) = connection.execute("SELECT coalesce(max(token_no), 0) FROM tokens").fetchone()
    return DayReport(
        emptied={token for (token,) in emptied},
        renamed={token: (contract, old, new) for token, contract, old, new in renamed},
        tokens=tokens,
    )


def approve_all(connection: sqlite3.Connection) -> None:
    """Exclude all removals so far from the removal guard's 24 hours."""
    connection.execute(
        "UPDATE mirror_state SET"
        " approved_balance_change = (SELECT coalesce(max(change_id), 0) FROM balance_change_rows),"
        " approved_token_change = (SELECT coalesce(max(change_id), 0) FROM token_change_rows)"
    )
