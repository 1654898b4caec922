"""Consistency checks of the database in SQL, independent of the code that writes it.

Memory is bounded by one wallet's history.
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

#: Examples per broken rule.
_EXAMPLES = 5
#: Workers renew their leases every few seconds, so a lease that expired this long ago is stuck.
_STUCK = timedelta(seconds=-60)


class Rule(msgspec.Struct):
    """A consistency rule in words, and the result of its check, with a line per example."""

    rule: str
    checked: int = 0
    broken: int = 0
    examples: list[str] = []

    def breaks(self, example: str, times: int = 1) -> None:
        self.broken += times
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


_Checks: TypeAlias = Iterator[Rule]


def check_rules(path: Path, at: str) -> _Checks:
    """Check the rules in one snapshot, and yield each result."""
    whole = Rule("the file is intact (SQLite's integrity_check)", 1)
    with opened(path), explained(path):  # so that a missing database gets our message
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
        values = {"stuck_since": shifted(at, _STUCK), "syncing": syncing or is_syncing(path)}
        for text, problems in _QUERIES.items():
            yield _counted(connection, Rule(text), problems, values)


#: For each wallet its changes in order, then its balances. SQLite merges the two indexes, so it
#: sorts nothing.
_ALONG = """
    SELECT wallet_no, 0, change_id, token_no, old_amount, new_amount, observed_at, NULL
    FROM balance_change_rows
    UNION ALL
    SELECT wallet_no, 1, token_no, token_no, amount, held_since, first_seen_at, updated_at
    FROM balance_rows
    ORDER BY 1, 2, 3
"""


def _history(connection: sqlite3.Connection) -> _Checks:
    chain = Rule("each change starts from the amount that the previous change left")
    sums = Rule("the changes, replayed from the first, give the balances")
    dated = Rule("held_since, first_seen_at and updated_at match the changes")
    for number, rows in groupby(connection.execute(_ALONG), itemgetter(0)):
        balances: dict[int, tuple[str, str | None, str, str]] = {}
        for _, kind, place, token, *values in rows:
            before = balances.pop(token, None)
            if kind:
                sums.checked += 1
                if before is None or before[0] != values[0]:
                    holding = f"token {token} of wallet {number}"
                    sums.breaks(f"{holding} has a balance, and its changes give another amount")
                elif before != tuple(values):
                    dated.breaks(f"token {token} of wallet {number} was held since {before[1]}")
                continue
            old, new, at, _ = values
            chain.checked += 1
            if old == new or old != (before[0] if before else None):
                chain.breaks(f"change {place} does not follow from the previous one")
            if new is not None:
                since = None if is_zero(new) else (before[1] if before else None) or at
                balances[token] = (new, since, before[2] if before else at, at)
        for token in balances:
            sums.breaks(f"token {token} of wallet {number} has changes, and no balance")
    dated.checked = sums.checked
    yield from (chain, sums, dated)


def _tokens(connection: sqlite3.Connection) -> Rule:
    rule = Rule("each token that was read by its id matches its two sources")
    columns = ", ".join(f"t.{column}" for column in CONTENT_COLUMNS)
    rows = connection.execute(
        "SELECT t.token_id, s.list_sequence, s.list_fields, s.detail_sequence, s.detail_fields,"
        f" {columns} FROM tokens t LEFT JOIN token_sources s USING (token_no) WHERE t.detailed"
    )
    for token_id, *source in rows:
        rule.checked += 1
        if source[1] is None or Sources.of(*source[:4]).content() != tuple(source[4:]):
            rule.breaks(f"token {token_id}")
    return rule


def _counted(
    connection: sqlite3.Connection,
    rule: Rule,
    problems: Mapping[str, str],
    values: dict[str, object],
) -> Rule:
    for problem, rows in problems.items():
        checked, broken, example = connection.execute(
            f"WITH rows (name, breaks) AS ({rows})"
            " SELECT count(*), coalesce(sum(breaks), 0), min(iif(breaks, name, NULL)) FROM rows",
            values,
        ).fetchone()
        rule.checked += checked
        if broken:
            rule.breaks(problem.format(broken, example), broken)
    return rule


#: The tables of keys, and the columns of other tables that refer to them.
_KEYS = {"wallet_no": "wallets", "token_no": "tokens", "run_id": "sync_runs"}
_KEYS |= {"webhook_id": "webhooks", "state_id": "wallet_state_rows"}
_NAMED = {
    "balance_rows": ("wallet_no", "token_no"),
    "balance_change_rows": ("wallet_no", "token_no", "run_id", "webhook_id"),
    "token_change_rows": ("token_no", "run_id", "webhook_id"),
    "token_sources": ("token_no",),
    "token_faults": ("token_no",),
    "removal_rows": ("wallet_no", "token_no", "run_id", "webhook_id"),
    "wallet_state_rows": ("wallet_no", "run_id"),
    "wallets": ("state_id",),
}
#: The logs, and their keys.
_LOGS = {
    "balance_change_rows": "change_id",
    "token_change_rows": "change_id",
    "wallet_state_rows": "state_id",
}
_LIVE = "(SELECT lease_no FROM leases WHERE expires_at >= :stuck_since)"
_LEASED = "SELECT NULL, coalesce(lease_no, 0) NOT IN {} FROM {} WHERE state = 'running'"
_INDEXED = "(SELECT indexed_token_no FROM mirror_state)"

#: For each rule its problems, each with a query of the rows to check: a name, and whether the row
#: breaks the rule. In a problem, {0} is the number of such rows, and {1} the name of the first.
_QUERIES = {
    "each wallet, token, run, webhook and state that a row names exists": {
        f"{table}: {key} {{1}} is not in {_KEYS[key]} ({{0:,}} rows)": (
            # A removal without a wallet has the number 0.
            f"SELECT r.{key}, o.{key} IS NULL FROM {table} r LEFT JOIN {_KEYS[key]} o USING ({key})"
            f" WHERE r.{key} IS NOT NULL AND ('{table}' <> 'removal_rows' OR r.{key} <> 0)"
        )
        for table, keys in _NAMED.items()
        for key in keys
    },
    # The buckets of a lake store at their own times, within the run's partial span, which no state
    # shows. Only the runs of a database have a first sequence number.
    "observed_at never decreases": {
        f"{table}: {key} {{1}}": (
            f"SELECT {key}, observed_at < before AND NOT EXISTS (SELECT 1 FROM partial_spans"
            " WHERE run_id NOT IN (SELECT run_id FROM sync_runs WHERE first_sequence <> 0)"
            " AND began_at <= observed_at AND before <= ended_at) FROM (SELECT"
            f" {key}, observed_at, lag(observed_at) OVER (ORDER BY {key}) AS before FROM {table})"
        )
        for table, key in _LOGS.items()
    },
    # The change feed has later approved removals under the run that read them.
    "runs count no more changes than the logs have, and their sums are right": {
        "run {1} ({0:,} runs)": """
        SELECT r.run_id, NOT (wallets_total = wallets_ok + wallets_failed
            AND wallets_unchanged <= wallets_ok
            AND balances_added <= coalesce(b.added, 0) AND balances_removed <= coalesce(b.gone, 0)
            AND balances_changed <= coalesce(b.number - b.added - b.gone, 0)
            AND tokens_changed <= coalesce(t.number, 0))
        FROM sync_runs r
        LEFT JOIN (SELECT run_id, count(*) AS number, sum(old_amount IS NULL) AS added,
            sum(new_amount IS NULL) AS gone FROM balance_change_rows GROUP BY run_id) b
            USING (run_id)
        LEFT JOIN (SELECT run_id, count(*) AS number FROM token_change_rows GROUP BY run_id) t
            USING (run_id)
        """
    },
    "no run, lease, webhook or message is stuck": {
        "{0:,} webhooks run under no lease; to return them to the queue: `nftsync replay`": (
            _LEASED.format(_LIVE, "webhooks")
        ),
        "{0:,} messages run under no lease; to return them to the queue: `nftsync watch`": (
            _LEASED.format(_LIVE, "messages")
        ),
        "{0:,} leases have expired; to end them: `nftsync replay`": (
            f"SELECT NULL, lease_no NOT IN {_LIVE} FROM leases"
        ),
        "{0:,} replays are marked as running, and none is": f"""
        SELECT NULL, run_id NOT IN (
            SELECT run_id FROM leases WHERE lease_no IN {_LIVE} AND run_id IS NOT NULL)
        FROM sync_runs WHERE kind = 'replay' AND status = 'running'
        """,
        "{0:,} syncs were killed; to resume: `nftsync sync --resume`": (
            "SELECT NULL, NOT :syncing FROM sync_runs WHERE kind = 'sync' AND status = 'running'"
        ),
    },
    "no sequence number is above the stored maximum": {
        "wallet {1} has a greater one ({0:,} wallets)": (
            "SELECT wallet_no, sequence > greatest_sequence FROM wallets, mirror_state"
        )
    },
    "the full-text index has each token, and nothing else": {
        "{0:,} tokens are missing from the index": f"""
        SELECT NULL, token_no <= {_INDEXED} AND token_no NOT IN (SELECT id FROM tokens_fts_docsize)
        FROM tokens
        """,
        "{0:,} index entries belong to no token": f"""
        SELECT NULL, 1 FROM tokens_fts_docsize
        WHERE id > {_INDEXED} OR id NOT IN (SELECT token_no FROM tokens)
        """,
        "{0:,} tokens are not indexed yet; the next sync adds them": f"""
        SELECT NULL, 1 FROM tokens WHERE token_no > {_INDEXED}
            AND NOT EXISTS (SELECT 1 FROM sync_runs WHERE status = 'running')
        """,
    },
}
