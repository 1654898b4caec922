"""The tables of a state file. Each function works inside the caller's transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from nftsync.sandbox.webhook_config import WebhookConfig
from nftsync.sandbox.webhook_faults import WebhookFault
from nftsync.sandbox.webhooks import Attempt, Delivery, Webhook
from nftsync.sandbox.world import WorldContents
from nftsync.sandbox.worldfile import Holding, Record

__all__ = [
    "delete_delivery",
    "delete_holding",
    "insert_wallets",
    "insert_world",
    "load_config",
    "load_deliveries",
    "load_world",
    "upsert_config",
    "upsert_delivery",
    "upsert_facts",
    "upsert_holdings",
    "upsert_records",
]

# Records are kept once each, under their SHA-256; a digest of NULL is a record that is not there.
# The rowids (`place`) keep the order in which things are listed.
_SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE records (digest BLOB PRIMARY KEY, record BLOB NOT NULL) STRICT",
    "CREATE TABLE tokens (token TEXT PRIMARY KEY, digest BLOB) STRICT",
    """CREATE TABLE wallets (
        place INTEGER PRIMARY KEY, wallet TEXT NOT NULL UNIQUE, shown TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE holdings (
        place INTEGER PRIMARY KEY, wallet TEXT NOT NULL, token TEXT NOT NULL,
        shown TEXT NOT NULL, amount TEXT NOT NULL, digest BLOB, UNIQUE (wallet, token)
    ) STRICT""",
    """CREATE TABLE deliveries (
        place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
        delivery BLOB NOT NULL, body BLOB NOT NULL
    ) STRICT""",
)


class _Kept(msgspec.Struct):
    """A delivery without its body, which is kept as the bytes it is."""

    type: str
    fault: WebhookFault
    attempts: list[Attempt]
    next_attempt_at: datetime | None


def insert_world(
    connection: sqlite3.Connection, contents: WorldContents, mark: int, version: int
) -> None:
    """Make the tables, mark the file as a state, and fill in a world."""
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {mark:d}")
    connection.execute(f"PRAGMA user_version = {version:d}")
    facts = {
        "organization": contents.organization_id,
        "mint_contract": contents.mint_contract,
        "minted": str(contents.minted),
    }
    upsert_facts(connection, facts)
    insert_wallets(connection, contents.wallets.items())
    upsert_records(connection, contents.records.items())
    held = contents.holdings
    upsert_holdings(
        connection, ((wallet, *each) for wallet in held for each in held[wallet].items())
    )


def upsert_facts(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Note single values by their names."""
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def upsert_config(connection: sqlite3.Connection, config: WebhookConfig) -> None:
    """Note the webhook configuration."""
    upsert_facts(connection, {"config": msgspec.json.encode(config).decode()})


def load_config(connection: sqlite3.Connection) -> WebhookConfig | None:
    """The webhook configuration, where one was ever set."""
    row = connection.execute("SELECT value FROM facts WHERE name = 'config'").fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=WebhookConfig)


def insert_wallets(connection: sqlite3.Connection, wallets: Iterable[tuple[str, str]]) -> None:
    """Add wallets: id in lower case, id as it is answered."""
    connection.executemany("INSERT INTO wallets (wallet, shown) VALUES (?, ?)", wallets)


def upsert_records(connection: sqlite3.Connection, records: Iterable[tuple[str, Record]]) -> None:
    """Note tokens' own records."""
    connection.executemany(
        "INSERT OR REPLACE INTO tokens VALUES (?, ?)",
        [(token, _digest(connection, record)) for token, record in records],
    )


def upsert_holdings(
    connection: sqlite3.Connection, holdings: Iterable[tuple[str, str, Holding]]
) -> None:
    """Note entries of wallets' lists; one that is there already keeps its place."""
    connection.executemany(
        "INSERT INTO holdings (wallet, token, shown, amount, digest) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (wallet, token) DO UPDATE"
        " SET shown = excluded.shown, amount = excluded.amount, digest = excluded.digest",
        [
            (wallet, token, each.token_id, each.amount, _digest(connection, each.token))
            for wallet, token, each in holdings
        ],
    )


def delete_holding(connection: sqlite3.Connection, wallet: str, token: str) -> None:
    """Take an entry off a wallet's list."""
    connection.execute("DELETE FROM holdings WHERE wallet = ? AND token = ?", (wallet, token))


def upsert_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Note an undelivered webhook."""
    kept = _Kept(delivery.type, delivery.fault, delivery.attempts, delivery.next_attempt_at)
    connection.execute(
        "INSERT INTO deliveries (id, delivery, body) VALUES (?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET delivery = excluded.delivery",
        (delivery.id, msgspec.json.encode(kept), delivery.body),
    )


def delete_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Forget a webhook."""
    connection.execute("DELETE FROM deliveries WHERE id = ?", (delivery.id,))


def load_deliveries(connection: sqlite3.Connection) -> list[Delivery]:
    """The undelivered webhooks, oldest first."""
    rows = connection.execute("SELECT delivery, body FROM deliveries ORDER BY place")
    return [_delivery(kept, body) for kept, body in rows]


def load_world(connection: sqlite3.Connection) -> WorldContents:
    """The whole world.

    Raises:
        LookupError: a part of it is missing.
    """
    # Records that edits have replaced.
    connection.execute(
        "DELETE FROM records WHERE digest NOT IN (SELECT digest FROM tokens WHERE digest NOT NULL"
        " UNION ALL SELECT digest FROM holdings WHERE digest NOT NULL)"
    )
    known = {
        digest: msgspec.Raw(record)
        for digest, record in connection.execute("SELECT digest, record FROM records")
    }
    wallets = dict(connection.execute("SELECT wallet, shown FROM wallets ORDER BY place"))
    held: dict[str, dict[str, Holding]] = {wallet: {} for wallet in wallets}
    for wallet, token, shown, amount, digest in connection.execute(
        "SELECT wallet, token, shown, amount, digest FROM holdings ORDER BY place"
    ):
        record = msgspec.UNSET if digest is None else known[digest]
        held[wallet][token] = Holding(shown, amount, record)
    records: dict[str, Record] = {
        token: msgspec.UNSET if digest is None else known[digest]
        for token, digest in connection.execute("SELECT token, digest FROM tokens")
    }
    facts = dict(connection.execute("SELECT name, value FROM facts"))
    return WorldContents(
        organization_id=facts["organization"],
        mint_contract=facts["mint_contract"],
        minted=int(facts["minted"]),
        wallets=wallets,
        holdings=held,
        records=records,
    )


def _digest(connection: sqlite3.Connection, record: Record) -> bytes | None:
    if not isinstance(record, msgspec.Raw):
        return None
    text = bytes(record)
    digest = hashlib.sha256(text).digest()
    connection.execute("INSERT OR IGNORE INTO records VALUES (?, ?)", (digest, text))
    return digest


def _delivery(kept_text: bytes, body: bytes) -> Delivery:
    kept = msgspec.json.decode(kept_text, type=_Kept)
    return Delivery(
        kept.type,
        msgspec.json.decode(body, type=Webhook),
        body,
        kept.fault,
        "pending",
        kept.attempts,
        kept.next_attempt_at,
    )
