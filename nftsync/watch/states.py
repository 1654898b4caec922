"""States that begin and end, such as a stale wallet."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from nftsync.alerts import WatchRule
from nftsync.store.database import as_json, named_rows
from nftsync.store.faults import new_since
from nftsync.store.freshness import FULL_SYNC, LAST_READ
from nftsync.store.history import ahead_of
from nftsync.store.watch_states import States, reportable_states
from nftsync.times import shifted
from nftsync.watch.events import Event
from nftsync.watch.rules import Scope

#: A disk with less free space is low, in bytes.
_LEAST_FREE = 1_000_000_000
#: Replay is paused if a webhook has been pending for longer.
_LONGEST_PENDING = timedelta(minutes=10)

_WALLETS = """
    SELECT wallet_id AS subject, wallet_id, label AS wallet_label, wallet_group, synced_at, status,
        error
    FROM wallets
    WHERE tracked AND (:wallets IS NULL OR wallet_no IN (SELECT value FROM json_each(:wallets)))
        AND """
_WEBHOOKS = """
    SELECT '' AS subject, count(*) AS webhooks, min(received_at) AS oldest_received_at
    FROM webhooks WHERE """
#: Queries of each kind's subjects and data.
_QUERIES = {
    "wallet_stale": f"{_WALLETS} {LAST_READ} < :stale ORDER BY wallet_no",
    "wallet_failed": f"{_WALLETS} status = 'failed' ORDER BY wallet_no",
    "sync_failed": f"""
        SELECT '' AS subject, run_id, status, finished_at, error FROM (
            SELECT * FROM sync_runs WHERE {FULL_SYNC} ORDER BY run_id DESC LIMIT 1)
        WHERE status = 'failed'
    """,
    "removals_held": """
        SELECT '' AS subject, count(*) AS removals, min(observed_at) AS oldest_observed_at
        FROM removal_rows
        WHERE held AND (:wallets IS NULL OR wallet_no IN (SELECT value FROM json_each(:wallets)))
        GROUP BY subject
    """,
    "webhook_dead": f"{_WEBHOOKS} state = 'dead' GROUP BY subject",
    # Pruning its body ends what cannot be requeued.
    "webhook_quarantined": f"{_WEBHOOKS} state = 'quarantined' AND body NOTNULL GROUP BY subject",
    "new_field": """
        SELECT field AS subject, * FROM new_fields WHERE first_seen_at >= :new_since
        ORDER BY first_seen_at, field
    """,
    "replay_paused": f"{_WEBHOOKS} state = 'pending' AND received_at < :pending GROUP BY subject",
}


def states_now(
    connection: sqlite3.Connection, database: Path, rule: WatchRule, scope: Scope, at: str
) -> States:
    values = {
        "wallets": None if scope.wallets is None else as_json(scope.wallets),
        "stale": shifted(at, -rule.max_age),
        "pending": shifted(at, -_LONGEST_PENDING),
        "new_since": new_since(at),
    }
    states: States = {}
    for kind in rule.on:
        if kind in _QUERIES:
            rows = named_rows(connection.execute(_QUERIES[kind], values))
            states |= {(kind, row.pop("subject")): row for row in rows}
    if "disk_low" in rule.on and (free := shutil.disk_usage(database.parent).free) < _LEAST_FREE:
        states["disk_low", ""] = {"free_bytes": free}
    if "clock_ahead" in rule.on and (warning := ahead_of(connection, at)) is not None:
        states["clock_ahead", ""] = {"warning": warning}
    return states


# Stored states -----------------------------------------------------------------------------------


def state_events(connection: sqlite3.Connection, rule: WatchRule, at: str) -> Iterator[Event]:
    """Yield unreported starts and ends, and lasting states to report again."""
    for kind, subject, stored, began, ended, reported in reportable_states(connection, rule, at):
        data = {"since": began, **msgspec.json.decode(stored)}
        moments = {"began": began} if reported is None else {}
        if ended is not None:
            moments["ended"] = ended
        elif reported is not None and rule.repeat is not None:
            moments["lasts"] = shifted(reported, rule.repeat)
        for state, moment in moments.items():
            if state == "began" or kind != "new_field":
                identity = f"{kind} {subject} {began} {state} {moment}"
                yield _event(kind, subject, moment, identity, {"state": state, **data})


def state_events_now(states: States, at: str) -> Iterator[Event]:
    for (kind, subject), data in states.items():
        yield _event(kind, subject, at, "", {"state": "began", "since": at, **data})


def _event(kind: str, subject: str, at: str, identity: str, data: dict[str, Any]) -> Event:
    return Event(kind.replace("_", "."), at, identity, (f"{kind} {subject}",), data)
