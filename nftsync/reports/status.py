"""Status of a database."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from nftsync.alerts import Forward, WatchRule
from nftsync.exact_sum import NOT_EXACT
from nftsync.records import CONTENT_COLUMNS, NewField
from nftsync.store.cursors import rule_problems
from nftsync.store.database import named_rows
from nftsync.store.faults import Unreadable, new_fields, unreadable_parts
from nftsync.store.freshness import StalestWallet, newest_run, stalest_wallet
from nftsync.store.history import ahead_of
from nftsync.store.outbox import stopped_destinations
from nftsync.store.queues import INBOX, OUTBOX, count_by_state
from nftsync.store.removals import Held, held
from nftsync.store.schema import reading
from nftsync.store.tokens import fields_of, path_of
from nftsync.times import age_seconds
from nftsync.version import __version__


class Status(msgspec.Struct, kw_only=True):
    """Status of a database, as `nftsync status --json` prints it.

    Attributes:
        wallets: by status, including untracked ones.
        stopped_destinations: those that answered 410, with the answer.
        rule_problems: why rules are paused or late.
        unusable_amounts: balances with an amount that is not 1 to 100 digits.
        oldest_wallet_age_s: None: never read, or none is tracked.
        warning: a problem with a clock.
        always_changing: the field behind most changes, if nearly all tokens changed in each of the
            last three syncs.
        new_fields: those first seen in the last 30 days, the newest first.
    """

    version: str
    database: str
    wallets: dict[str, int]
    tokens: int
    balances: int
    unusable_amounts: int
    changes: int
    last_sync: dict[str, Any] | None
    last_replay: dict[str, Any] | None
    oldest_wallet_age_s: float | None
    inbox: dict[str, int]
    oldest_pending_age_s: float | None
    removals_held: Held
    outbox: dict[str, int]
    oldest_message_age_s: float | None
    stopped_destinations: dict[str, str]
    rule_problems: dict[str, str] = {}
    warning: str | None = None
    unreadable: list[Unreadable]
    always_changing: str | None
    new_fields: list[NewField]


def read_status(
    path: Path, at: str, rules: Sequence[WatchRule | Forward] = ()
) -> tuple[Status, StalestWallet | None]:
    """Return the status and the stalest tracked wallet, with ages at `at`."""
    with reading(path) as connection:
        stalest = stalest_wallet(connection, at)
        inbox = count_by_state(connection, INBOX)
        pending = inbox.get("pending")
        outbox = count_by_state(connection, OUTBOX)
        unsent = [oldest for state, (_, oldest) in outbox.items() if state in {"pending", "failed"}]
        status = Status(
            version=__version__,
            database=str(path),
            wallets=dict(
                connection.execute("SELECT status, count(*) FROM wallets GROUP BY status")
            ),
            **named_rows(connection.execute(_COUNTS))[0],
            last_sync=newest_run(connection, "kind = 'sync'"),
            last_replay=newest_run(connection, "kind = 'replay'"),
            oldest_wallet_age_s=None if stalest is None else stalest.age_s,
            inbox={state: count for state, (count, _) in inbox.items()},
            oldest_pending_age_s=pending and age_seconds(pending[1], at),
            removals_held=held(connection),
            outbox={state: count for state, (count, _) in outbox.items()},
            oldest_message_age_s=age_seconds(min(unsent), at) if unsent else None,
            stopped_destinations=stopped_destinations(connection),
            rule_problems=rule_problems(connection, rules, at),
            warning=ahead_of(connection, at),
            unreadable=unreadable_parts(connection),
            always_changing=_always_changing(connection),
            new_fields=new_fields(connection, at),
        )
    return status, stalest


def _always_changing(connection: sqlite3.Connection) -> str | None:
    runs, newest, least, tokens = connection.execute(
        "SELECT count(*), max(run_id), min(tokens_changed), (SELECT count(*) FROM tokens) FROM ("
        "SELECT run_id, tokens_changed FROM sync_runs WHERE kind = 'sync'"
        " AND finished_at IS NOT NULL ORDER BY run_id DESC LIMIT 3)"
    ).fetchone()
    if runs < 3 or not tokens or least < _NEARLY_ALL * tokens:
        return None
    fields = Counter[str]()
    for texts in connection.execute(
        "SELECT before, after FROM token_change_rows WHERE run_id = ? LIMIT 100", (newest,)
    ):
        one, other = (
            fields_of(tuple(msgspec.json.decode(text).get(name) for name in CONTENT_COLUMNS))
            for text in texts
        )
        fields.update(path_of(name) for name in one | other if one.get(name) != other.get(name))
    return max(fields, key=fields.__getitem__, default=None)


_NEARLY_ALL = 0.9
_COUNTS = f"""
    SELECT (SELECT count(*) FROM tokens) AS tokens,
        (SELECT count(*) FROM balance_rows) AS balances,
        (SELECT count(*) FROM balance_rows WHERE {NOT_EXACT}) AS unusable_amounts,
        (SELECT count(*) FROM balance_change_rows) AS changes
"""
