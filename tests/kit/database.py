"""Databases for tests of frames, built row by row with the real schema."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pandas as pd

from nftsync.store.contracts import name_new_tokens
from nftsync.store.schema import open_store
from nftsync.times import format_time

START = datetime(2026, 3, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_time(START + timedelta(seconds=seconds))


def utc(seconds: float = 0) -> str:
    """Return a stored time, in seconds from now."""
    return format_time(datetime.now(UTC) + timedelta(seconds=seconds))


def uuid(number: int, kind: int = 0) -> str:
    return str(UUID(int=(kind << 64) + number + 0xABCDEF << 20))


def wallet_id(number: int) -> str:
    return uuid(number, 1)


def token_id(number: int) -> str:
    return uuid(number, 2)


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        open_store(path).close()
        return path.read_bytes()


def begun(path: Path) -> Path:
    """Make an empty database in place of any other."""
    for name in (f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    path.write_bytes(_empty())
    path.chmod(0o600)  # as nftsync makes it
    return path


def begun_once(path: Path) -> Path:
    """Make an empty database unless it exists; a process that makes one imports pandas."""
    return path if path.exists() else begun(path)


class Builder:
    """Builder of a database, in place of any other at its path."""

    def __init__(self, path: Path) -> None:
        self.path = begun(path)
        self.connection = open_store(path)

    def close(self) -> Path:
        self.connection.close()
        return self.path

    def index(self) -> None:
        """Index the tokens for search, and name collections by their tokens."""
        self.connection.execute("INSERT INTO tokens_fts (tokens_fts) VALUES ('rebuild')")
        (last,) = self.connection.execute("SELECT max(token_no) FROM tokens").fetchone()
        name_new_tokens(self.connection, 0, last)

    def insert(self, table: str, given: dict[str, Any] | None = None, /, **values: Any) -> int:
        """Insert a row; given values replace others."""
        row = values | (given or {})
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        return self.connection.execute(statement, tuple(row.values())).lastrowid or 0

    def wallet(self, number: int, seen: float = 0, **values: object) -> None:
        row = {"wallet_id": wallet_id(number), "wallet_no": number, "first_seen_at": at(seen)}
        self.insert("wallets", values, **row)

    def token(self, number: int, seen: float = 0, **values: object) -> None:
        row = {"token_id": token_id(number), "token_no": number, "first_seen_at": at(seen)}
        self.insert("tokens", values, **row, updated_at=at(seen), sequence=1, changed_sequence=1)

    def balance(
        self, wallet: int, token: int, amount: str, seen: float = 0, **values: object
    ) -> None:
        since = at(seen) if amount.strip("0") or not amount else None
        row = {"wallet_no": wallet, "token_no": token, "amount": amount, "held_since": since}
        self.insert("balance_rows", values, **row, first_seen_at=at(seen), updated_at=at(seen))

    def change(
        self, wallet: int, token: int, old: str | None, new: str | None, seen: float, **values: Any
    ) -> int:
        row = {"wallet_no": wallet, "token_no": token, "old_amount": old, "new_amount": new}
        return self.insert("balance_change_rows", values, **row, observed_at=at(seen), baseline=0)

    def token_change(self, token: int, before: str, after: str, seen: float, **values: Any) -> int:
        row = {"token_no": token, "before": before, "after": after, "observed_at": at(seen)}
        return self.insert("token_change_rows", values, **row)

    def state(self, wallet: int, first: float, last: float, stored: float, **values: object) -> int:
        row = {"first_read_at": at(first), "last_read_at": at(last), "observed_at": at(stored)}
        row |= {"wallet_no": wallet, "reads": 1, "body_sha256": "ab" * 32}
        return self.insert("wallet_state_rows", values, **row)


def small(path: Path) -> Builder:
    """A database with a few rows of every kind."""
    build = Builder(path)
    build.wallet(1, label="Vault", wallet_group="cold", synced_at=at(9), status="ok", state_id=1)
    build.wallet(2, tracked=0, status="failed", error="HTTP 500")
    build.wallet(3)
    build.token(
        1,
        contract_address="0x" + "aB" * 20,
        blockchain_token_id="0012",
        name="One",
        edition_id=2**63 - 1,
        extra='{"rank":7,"metadata":{"attributes":[{"trait_type":"Sky","value":"Blue"}]}}',
        organization_id=uuid(9),
    )
    build.token(2, contract_address="0x" + "Ab" * 20, name="Two", total_edition=0)
    build.token(3, contract_address="KT1abc", name="Three")
    build.token(4, name="Four")
    build.balance(1, 1, str(2**256 - 1), 1)
    build.balance(1, 2, "0", 2)
    build.balance(2, 1, "3", 3)
    build.balance(2, 3, "1.5", 4)
    build.change(1, 1, None, str(2**256 - 1), 1, baseline=1, run_id=5)
    build.change(1, 2, None, "7", 1, baseline=1, run_id=5)
    build.change(1, 2, "7", "0", 2, webhook_id="w-1")
    build.change(2, 1, None, "3", 3)
    build.change(2, 3, None, "1.5", 4)
    build.change(2, 4, None, "1", 4)
    build.change(2, 4, "1", None, 5)
    build.token_change(1, '{"name": "Uno"}', '{"name": "One"}', 6, run_id=5)
    build.state(1, 1, 9, 1, run_id=5)
    build.insert("sync_runs", run_id=5, kind="sync", status="ok", started_at=at(0), plan=b"x")
    webhook = {"webhook_id": "w-1", "created_at_utc": "yesterday", "received_at": at(2)}
    build.insert("webhooks", webhook, body=b"{}", changes='{"a": 1}', state="pending")
    message = {"message_id": "msg_1", "rule": "moves", "destination": "ops", "created_at": at(3)}
    build.insert("messages", message, body=b"{}", state="failed", keys="[]")
    return build


def rows_of(frame: pd.DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    """Return some columns of each row: times as stored, None for missing values."""

    def plain(value: Any) -> Any:
        if isinstance(value, pd.Timestamp):
            return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return None if pd.isna(value) else value

    return [
        {name: plain(value) for name, value in row.items()}
        for row in frame[columns].to_dict("records")
    ]
