"""Frames that show a table as it is: wallets, their states, runs, webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

import pandas as pd

from nftsync.errors import InputError
from nftsync.frames._columns import Kind, read_frame
from nftsync.frames._source import IN_JSON, Parameters, Store, need_database, reading
from nftsync.models import normalize_uuid

__all__ = ["WalletIds", "runs", "wallet_ids", "wallet_states", "wallets", "webhooks"]

#: One wallet id, or several.
WalletIds: TypeAlias = "str | UUID | Iterable[str | UUID]"

_WALLETS: dict[str, Kind] = {
    "wallet_id": "text",
    "label": "text",
    "wallet_group": "text",
    "tracked": "flag",
    "first_seen_at": "time",
    "synced_at": "time",
    "status": "text",
    "error": "text",
}
_WALLET_STATES: dict[str, Kind] = {
    "wallet_id": "text",
    "first_read_at": "time",
    "last_read_at": "time",
    "reads": "count",
    "body_sha256": "text",
    "run_id": "integer",
}
_RUNS: dict[str, Kind] = {
    "run_id": "count",
    "kind": "text",
    "status": "text",
    "started_at": "time",
    "finished_at": "time",
    "wallets_total": "count",
    "wallets_ok": "count",
    "wallets_unchanged": "count",
    "wallets_failed": "count",
    "tokens_added": "count",
    "tokens_changed": "count",
    "balances_added": "count",
    "balances_changed": "count",
    "balances_removed": "count",
    "requests": "count",
    "retries": "count",
    "seconds": "real",
    "error": "text",
}
_WEBHOOKS: dict[str, Kind] = {
    "webhook_id": "text",
    "organization_id": "text",
    "action": "text",
    "resource_type": "text",
    "resource_id": "text",
    "created_at_utc": "text",
    "changes": "text",
    "received_at": "time",
    "state": "text",
    "attempts": "count",
    "next_attempt_at": "time",
    "last_error": "text",
    "finished_at": "time",
    "deliveries": "count",
    "run_id": "integer",
}


def wallet_ids(wallet: WalletIds) -> list[str]:
    """Check one wallet id or several, and lower-case them.

    Raises:
        InputError: one is no UUID.
    """
    given = [wallet] if isinstance(wallet, str | UUID) else wallet
    if not isinstance(given, Iterable):
        raise InputError(f"{wallet!r} is not a wallet id; give one or several")
    return [normalize_uuid(str(one), "wallet id") for one in given]


def wallets(db: Store = None) -> pd.DataFrame:
    """All known wallets, in the order they became known.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.

    Returns:
        A row per wallet: `wallet_id`, `label`, `wallet_group`, `tracked` (bool),
        `first_seen_at`, `synced_at` (start of the last complete read), `status` (`never`, `ok`,
        `incomplete`, `failed`), `error`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.wallets reads the wallets of a database, with or without holdings")
    with reading(db) as source:
        return read_frame(source, _WALLETS, "wallets ORDER BY wallet_no")


def wallet_states(db: Store = None, wallet: WalletIds | None = None) -> pd.DataFrame:
    """The distinct states that wallets were found in, in the order they were stored.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.
        wallet: one wallet id or several; None is all.

    Returns:
        A row per state: `wallet_id`, `first_read_at` and `last_read_at` (between which each read
        found the same), `reads`, `body_sha256`, `run_id` (`Int64`).

    Raises:
        InputError: a wallet id is no UUID, or `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.wallet_states reads the states of wallets that a database recorded")
    where = ""
    parameters: Parameters = ()
    if wallet is not None:
        where = f" WHERE wallet_id {IN_JSON}"
        parameters = (json.dumps(wallet_ids(wallet)),)
    with reading(db) as source:
        return read_frame(
            source, _WALLET_STATES, f"wallet_states{where} ORDER BY state_id", parameters
        )


def runs(db: Store = None) -> pd.DataFrame:
    """All runs of sync and replay, the oldest first.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.

    Returns:
        A row per run: `run_id`, `kind`, `status`, `started_at`, `finished_at` (NaT while it
        runs), what it did (`wallets_total` to `retries`), `seconds`, `error`.

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.runs reads the runs that a database recorded")
    with reading(db) as source:
        return read_frame(source, _RUNS, "sync_runs ORDER BY run_id")


def webhooks(db: Store = None) -> pd.DataFrame:
    """All webhooks that were stored, in the order they came; without their bodies.

    The raw bytes (up to 256 KiB each) stay in the database: `SELECT body FROM webhooks`.

    Args:
        db: a path, a `sqlite3.Connection`, a `sqlite_utils.Database`, or None for the configured
            database.

    Returns:
        A row per webhook: `webhook_id`, `organization_id`, `action`, `resource_type`,
        `resource_id`, `created_at_utc` (text, as sent), `changes` (JSON text), `received_at`,
        `state`, `attempts`, `next_attempt_at`, `last_error`, `finished_at`, `deliveries`,
        `run_id` (`Int64`).

    Raises:
        InputError: `db` is neither a path nor a connection.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    need_database(db, "frames.webhooks reads the webhooks that a database recorded")
    with reading(db) as source:
        return read_frame(source, _WEBHOOKS, "webhooks ORDER BY rowid")
