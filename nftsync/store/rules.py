"""Rules that the mirror's tables keep, checked by SQL that is independent of the writer.

None of the code that writes is asked. Memory is bounded by one wallet's history.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import msgspec

from nftsync.exact_sum import is_zero
from nftsync.records import CONTENT_COLUMNS
from nftsync.store.database import damage, explained, is_syncing
from nftsync.store.schema import opened, reading
from nftsync.store.tokens import Sources
from nftsync.times import shifted

#: What is told of each rule that is broken.
_EXAMPLES = 5
#: Others renew their leases every few seconds; one that ended so long ago is nobody's.
_STUCK = timedelta(seconds=-60)


class Rule(msgspec.Struct):
    """A rule of the mirror, and whether it holds.

    Attributes:
        rule: what must hold.
        checked: how many rows were looked at.
        broken: in how many places it does not hold.
        examples: some of those, a line each.
    """

    rule: str
    checked: int = 0
    broken: int = 0
    examples: list[str] = []

    def breaks(self, example: str, times: int = 1) -> None:
        """Count what breaks it, and keep the first as examples."""
        self.broken += times
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


_Checks: TypeAlias = Iterator[Rule]


def check_rules(path: Path, at: str) -> _Checks:
    """Look at each rule, all at one moment; one after the other, as each is done with.

    Args:
        path: the database; nothing is written.
        at: the current time.

    Raises:
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    whole = Rule("SQLite finds the file whole (integrity_check)", 1)
    with opened(path), explained(path):  # or it would be SQLite that says what is missing
        report = damage(path)
    if report is not None:
        whole.breaks(report)
    yield whole
    if whole.broken:
        return
    syncing = is_syncing(path)
    with reading(path) as connection:
        yield from _history(connection)
        yield _tokens(connection)
        yield _orphans(connection)
        yield _times(connection)
        yield _runs(connection)
        yield _stuck(connection, at, syncing=syncing or is_syncing(path))
        yield _numbers(connection)
        yield _index(connection)


#: Of each wallet first its changes, in their order, then what it holds: SQLite reads both along
#: their indexes and merges them, so nothing is sorted.
_ALONG = """
    SELECT wallet_no, 0, change_id, token_no, old_amount, new_amount, observed_at, NULL
    FROM balance_change_rows
    UNION ALL
    SELECT wallet_no, 1, token_no, token_no, amount, held_since, first_seen_at, updated_at
    FROM balance_rows
    ORDER BY 1, 2, 3
"""


def _history(connection: sqlite3.Connection) -> _Checks:
    chain = Rule("each change begins with the amount that the one before it ended with")
    sums = Rule("the changes, replayed from the first, come to what is held")
    dated = Rule("held_since, first_seen_at and updated_at are those of the changes")
    for number, rows in groupby(connection.execute(_ALONG), itemgetter(0)):
        held: dict[int, tuple[str, str | None, str, str]] = {}
        for _, kind, place, token, *values in rows:
            before = held.pop(token, None)
            if kind:
                sums.checked += 1
                if before is None or before[0] != values[0]:
                    what = f"token {token} of wallet {number}"
                    sums.breaks(f"{what} is held, and its changes come to another amount")
                elif before != tuple(values):
                    dated.breaks(f"token {token} of wallet {number} was held since {before[1]}")
                continue
            old, new, at, _ = values
            chain.checked += 1
            if old == new or old != (before[0] if before else None):
                chain.breaks(f"change {place} does not follow from what was known")
            if new is not None:
                since = None if is_zero(new) else (before[1] if before else None) or at
                held[token] = (new, since, before[2] if before else at, at)
        for token in held:
            sums.breaks(f"token {token} of wallet {number} is held by its changes alone")
    dated.checked = sums.checked
    yield from (chain, sums, dated)


def _tokens(connection: sqlite3.Connection) -> Rule:
    found = Rule("each token that was read by its id shows what its two sources come to")
    columns = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = connection.execute(
        "SELECT t.token_id, s.list_sequence, s.list_fields, s.detail_sequence, s.detail_fields,"
        f" {columns} FROM tokens t LEFT JOIN token_sources s USING (token_no) WHERE t.detailed"
    )
    for token_id, *source in rows:
        found.checked += 1
        if source[1] is None or Sources.of(*source[:4]).content() != tuple(source[4:]):
            found.breaks(f"token {token_id}")
    return found


#: Which column of which table names a row of which other one, by its number or its id.
_NAMED = (
    ("balance_rows", "wallet_no", "wallets", "wallet_no"),
    ("balance_rows", "token_no", "tokens", "token_no"),
    ("balance_change_rows", "wallet_no", "wallets", "wallet_no"),
    ("balance_change_rows", "token_no", "tokens", "token_no"),
    ("balance_change_rows", "run_id", "sync_runs", "run_id"),
    ("balance_change_rows", "webhook_id", "webhooks", "webhook_id"),
    ("token_change_rows", "token_no", "tokens", "token_no"),
    ("token_change_rows", "run_id", "sync_runs", "run_id"),
    ("token_change_rows", "webhook_id", "webhooks", "webhook_id"),
    ("token_sources", "token_no", "tokens", "token_no"),
    ("removal_rows", "nullif(wallet_no, 0)", "wallets", "wallet_no"),
    ("removal_rows", "token_no", "tokens", "token_no"),
    ("removal_rows", "run_id", "sync_runs", "run_id"),
    ("removal_rows", "webhook_id", "webhooks", "webhook_id"),
    ("wallet_state_rows", "wallet_no", "wallets", "wallet_no"),
    ("wallet_state_rows", "run_id", "sync_runs", "run_id"),
    ("wallets", "state_id", "wallet_state_rows", "state_id"),
)


def _orphans(connection: sqlite3.Connection) -> Rule:
    found = Rule("whatever names a wallet, token, run, webhook or state names one that is there")
    for table, column, other, key in _NAMED:
        broken, example = _looked_at(
            found,
            connection,
            f"SELECT r.name, o.{key} IS NULL FROM (SELECT {column} AS name FROM {table}) r"
            f" LEFT JOIN {other} o ON o.{key} = r.name WHERE r.name IS NOT NULL",
        )
        if broken:
            where = f"{table}: {column} {example} is not in {other}"
            found.breaks(f"{where}, nor {broken - 1:,} more" if broken > 1 else where, broken)
    return found


#: The logs, and what orders them.
_LOGS = (
    ("balance_change_rows", "change_id"),
    ("token_change_rows", "change_id"),
    ("wallet_state_rows", "state_id"),
)


def _times(connection: sqlite3.Connection) -> Rule:
    found = Rule("observed_at never decreases")
    for table, key in _LOGS:
        broken, example = _looked_at(
            found,
            connection,
            f"SELECT {key}, observed_at < lag(observed_at) OVER (ORDER BY {key}) FROM {table}",
        )
        if broken:
            found.breaks(f"{table}: {key} {example}", broken)
    return found


def _looked_at(found: Rule, connection: sqlite3.Connection, rows: str) -> tuple[int, str | int]:
    """Look at rows of a name and whether it breaks a rule; return how many do, and the first."""
    checked, broken, example = connection.execute(
        f"WITH rows (name, breaks) AS ({rows})"
        " SELECT count(*), coalesce(sum(breaks), 0), min(iif(breaks, name, NULL)) FROM rows"
    ).fetchone()
    found.checked += checked
    return broken, example


def _runs(connection: sqlite3.Connection) -> Rule:
    found = Rule("runs count no more than is in the logs, and their sums are right")
    # Removals that were approved later are in the change feed under the run that read them.
    rows = connection.execute(
        "SELECT r.run_id, wallets_total = wallets_ok + wallets_failed"
        " AND wallets_unchanged <= wallets_ok"
        " AND balances_added <= coalesce(b.added, 0) AND balances_removed <= coalesce(b.gone, 0)"
        " AND balances_changed <= coalesce(b.number - b.added - b.gone, 0)"
        " AND tokens_changed <= coalesce(t.number, 0) FROM sync_runs r"
        " LEFT JOIN (SELECT run_id, count(*) AS number, sum(old_amount IS NULL) AS added,"
        " sum(new_amount IS NULL) AS gone FROM balance_change_rows GROUP BY run_id) b"
        " USING (run_id) LEFT JOIN (SELECT run_id, count(*) AS number FROM token_change_rows"
        " GROUP BY run_id) t USING (run_id)"
    )
    for run_id, right in rows:
        found.checked += 1
        if not right:
            found.breaks(f"run {run_id}")
    return found


#: What may be under way without anybody at work, of ?1, a time at which its lease would have ended,
#: and ?2, whether a sync is running; and what to do.
_IDLE = {
    "webhooks run under no lease: `nftsync replay` takes them back": """
        SELECT count(*) FROM webhooks WHERE state = 'running' AND coalesce(lease_no, 0) NOT IN live
        """,
    "leases ran out: `nftsync replay` ends them": """
        SELECT count(*) FROM leases WHERE lease_no NOT IN live
        """,
    "replays are said to be running": """
        SELECT count(*) FROM sync_runs WHERE kind = 'replay' AND status = 'running'
        AND run_id NOT IN (SELECT run_id FROM leases WHERE lease_no IN live AND run_id IS NOT NULL)
        """,
    "syncs were killed: `nftsync sync --resume` goes on": """
        SELECT count(*) FROM sync_runs, now WHERE NOT syncing AND kind = 'sync'
        AND status = 'running'
        """,
}
_WITH = """
    WITH now (ended_before, syncing) AS (VALUES (?1, ?2)),
    live (lease_no) AS (SELECT lease_no FROM leases, now WHERE expires_at >= ended_before)
    """


def _stuck(connection: sqlite3.Connection, at: str, *, syncing: bool) -> Rule:
    found = Rule("nothing is under way that nobody works on")
    (found.checked,) = connection.execute(
        "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM webhooks"
        " WHERE state = 'running') + (SELECT count(*) FROM sync_runs WHERE status = 'running')"
    ).fetchone()
    _count(
        found, connection, {k: _WITH + q for k, q in _IDLE.items()}, shifted(at, _STUCK), syncing
    )
    return found


def _count(
    found: Rule, connection: sqlite3.Connection, queries: Mapping[str, str], *given: object
) -> None:
    """Count what each query finds as breaking a rule."""
    for what, query in queries.items():
        (count,) = connection.execute(query, given).fetchone()
        if count:
            found.breaks(f"{count:,} {what}", count)


def _numbers(connection: sqlite3.Connection) -> Rule:
    found = Rule("no read is numbered beyond the greatest number")
    greatest, found.checked, last = connection.execute(
        "SELECT greatest_sequence, (SELECT count(*) FROM wallets),"
        " (SELECT max(sequence) FROM wallets) FROM mirror_state"
    ).fetchone()
    if last is not None and last > greatest:
        found.breaks(f"a wallet has {last}, and the greatest is {greatest}")
    return found


#: What may be wrong with the index, of ?1, the last token that it has taken in.
_UNINDEXED = {
    "tokens are missing from it": """
        SELECT count(*) FROM tokens WHERE token_no <= ?1
        AND token_no NOT IN (SELECT id FROM tokens_fts_docsize)
        """,
    "entries are of no token": """
        SELECT count(*) FROM tokens_fts_docsize WHERE id > ?1
        OR id NOT IN (SELECT token_no FROM tokens)
        """,
    "tokens wait for it: the next sync takes them in": """
        SELECT count(*) FROM tokens WHERE token_no > ?1
        AND NOT EXISTS (SELECT 1 FROM sync_runs WHERE status = 'running')
        """,
}


def _index(connection: sqlite3.Connection) -> Rule:
    found = Rule("each token is in the full-text index, and nothing else is")
    done, found.checked = connection.execute(
        "SELECT indexed_token_no, (SELECT count(*) FROM tokens) FROM mirror_state"
    ).fetchone()
    _count(found, connection, _UNINDEXED, done)
    return found
