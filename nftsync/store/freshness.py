"""Queries of a database's freshness: its newest runs, and its stalest wallets."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from nftsync.store.catalog import TABLES
from nftsync.store.database import Queryable, named_rows
from nftsync.times import age_seconds

#: Condition on runs: a sync of all wallets that has ended.
FULL_SYNC: Final = "kind = 'sync' AND reads_all AND finished_at IS NOT NULL"
#: A wallet without a read counts from when it was added.
LAST_READ: Final = "coalesce(synced_at, first_seen_at)"
OLDEST_READ: Final = f"SELECT min({LAST_READ}) FROM wallets WHERE tracked"


def newest_run(database: Queryable, condition: str) -> dict[str, Any] | None:
    """Return the newest run that meets a condition in SQL."""
    query = f"SELECT {', '.join(TABLES['sync_runs'].columns)} FROM sync_runs WHERE {condition}"
    rows = named_rows(database.execute(f"{query} ORDER BY run_id DESC LIMIT 1"))
    return rows[0] if rows else None


class StalestWallet(NamedTuple):
    """Tracked wallet with the oldest complete read; `age_s` None means never read."""

    wallet_id: str
    label: str | None
    age_s: float | None


def stalest_wallet(database: Queryable, at: str) -> StalestWallet | None:
    """Return the stalest tracked wallet, with its age at a time; one never read comes first."""
    row = database.execute(
        "SELECT wallet_id, label, synced_at FROM wallets WHERE tracked"
        " ORDER BY synced_at NULLS FIRST, wallet_no LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    wallet_id, label, synced_at = row
    return StalestWallet(wallet_id, label, synced_at and age_seconds(synced_at, at))
