"""How a database stands: counts, the last runs, how fresh the wallets are, what waits."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nftsync import __version__
from nftsync.store.catalog import TABLES
from nftsync.store.schema import reading

__all__ = ["StalestWallet", "Status", "age_seconds", "read_status"]

_RUN_COLUMNS = tuple(TABLES["sync_runs"].columns)


class Status(msgspec.Struct, kw_only=True):
    """What `nftsync status --json` prints.

    Attributes:
        version: of this nftsync.
        database: the file.
        wallets: how many known wallets there are of each status, untracked ones included.
        tokens: how many tokens were ever seen.
        balances: how many balances are listed now.
        changes: how many balance changes were logged.
        last_sync: the newest sync, with the public columns of `sync_runs`.
        last_replay: the newest replay.
        oldest_wallet_age_s: seconds since the least recently read tracked wallet was read; None
            when one was never read, or none is tracked.
        inbox: how many webhooks there are of each state.
        oldest_pending_age_s: seconds since the oldest pending webhook was received.
    """

    version: str
    database: str
    wallets: dict[str, int]
    tokens: int
    balances: int
    changes: int
    last_sync: dict[str, Any] | None
    last_replay: dict[str, Any] | None
    oldest_wallet_age_s: float | None
    inbox: dict[str, int]
    oldest_pending_age_s: float | None


class StalestWallet(NamedTuple):
    """The tracked wallet that was read least recently.

    Attributes:
        wallet_id: its id.
        label: its name for people.
        age_s: seconds since its last complete read began; None: it was never read.
    """

    wallet_id: str
    label: str | None
    age_s: float | None


def age_seconds(moment: str, at: str) -> float:
    """Seconds from one stored time to another; 0 where the clock went back."""
    return max(0.0, (_parsed(at) - _parsed(moment)).total_seconds())


def _parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone(UTC)


def read_status(path: Path, at: str) -> tuple[Status, StalestWallet | None]:
    """Read how a database stands, all of one moment.

    Args:
        path: the database.
        at: the current time in the stored form, from which ages are counted.

    Returns:
        The status, and the least recently read tracked wallet, None when none is tracked.

    Raises:
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    with reading(path) as connection:
        stalest = _stalest(connection, at)
        inbox = connection.execute(
            "SELECT state, count(*), min(received_at) FROM webhooks GROUP BY state ORDER BY state"
        ).fetchall()
        pending = next((since for state, _, since in inbox if state == "pending"), None)
        status = Status(
            version=__version__,
            database=str(path),
            wallets=dict(
                connection.execute("SELECT status, count(*) FROM wallets GROUP BY status")
            ),
            tokens=_count(connection, "tokens"),
            balances=_count(connection, "balances"),
            changes=_count(connection, "balance_changes"),
            last_sync=_last_run(connection, "sync"),
            last_replay=_last_run(connection, "replay"),
            oldest_wallet_age_s=None if stalest is None else stalest.age_s,
            inbox={state: count for state, count, _ in inbox},
            oldest_pending_age_s=None if pending is None else age_seconds(pending, at),
        )
    return status, stalest


def _stalest(connection: sqlite3.Connection, at: str) -> StalestWallet | None:
    row = connection.execute(
        "SELECT wallet_id, label, synced_at FROM wallets WHERE tracked"
        " ORDER BY synced_at NULLS FIRST, wallet_no LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    wallet_id, label, synced_at = row
    return StalestWallet(wallet_id, label, synced_at and age_seconds(synced_at, at))


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(TABLES[table].select_count()).fetchone()[0])


def _last_run(connection: sqlite3.Connection, kind: str) -> dict[str, Any] | None:
    row = connection.execute(
        f"SELECT {', '.join(_RUN_COLUMNS)} FROM sync_runs WHERE kind = ?"  # noqa: S608
        " ORDER BY run_id DESC LIMIT 1",
        (kind,),
    ).fetchone()
    return None if row is None else dict(zip(_RUN_COLUMNS, row, strict=True))
