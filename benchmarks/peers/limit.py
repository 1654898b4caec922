"""The limit: the same bytes from memory, decoded and inserted, and nothing else.

python limit.py FOLDER_OF_WALLETS WALLETS_FILE DATABASE

No HTTP, no history, no states, no index for searching. Two tables with their keys, and an index on
the balances by token; 100 wallets a transaction.
"""

import itertools
import json
import sqlite3
import sys
import time
from pathlib import Path

import msgspec

TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE tokens (
    token_id TEXT PRIMARY KEY, organization_id TEXT, contract_address TEXT,
    blockchain_token_id TEXT, name TEXT, description TEXT, image TEXT, animation_url TEXT,
    external_url TEXT, background_color TEXT, edition_id INTEGER, total_edition INTEGER,
    creator_name TEXT, creator_image_url TEXT, creator_external_page_url TEXT
) STRICT;
CREATE TABLE balances (
    wallet_id TEXT NOT NULL, token_id TEXT NOT NULL, amount TEXT NOT NULL,
    PRIMARY KEY (wallet_id, token_id)
) STRICT;
CREATE INDEX balances_by_token ON balances (token_id);
"""
COLUMNS = TABLES.partition("token_id TEXT PRIMARY KEY, ")[2].partition("\n)")[0]
NAMES = [part.split()[0] for part in COLUMNS.split(",")]
TOKEN = (
    f"INSERT INTO tokens VALUES ({', '.join('?' * (len(NAMES) + 1))})"
    " ON CONFLICT (token_id) DO UPDATE SET " + ", ".join(f"{n} = excluded.{n}" for n in NAMES)
)
BALANCE = (
    "INSERT INTO balances VALUES (?, ?, ?)"
    " ON CONFLICT (wallet_id, token_id) DO UPDATE SET amount = excluded.amount"
)


class Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    description: str | None = None
    image: str | None = None
    animation_url: str | None = None
    external_url: str | None = None
    background_color: str | None = None
    edition_id: int | None = None
    total_edition: int | None = None
    creator_name: str | None = None
    creator_image_url: str | None = None
    creator_external_page_url: str | None = None


class Token(msgspec.Struct, rename="camel"):
    id: str
    organization_id: str | None = None
    contract_address: str | None = None
    blockchain_token_id: str | None = None
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class Entry(msgspec.Struct, rename="camel"):
    token_id: str
    amount: str
    token: Token


class Balances(msgspec.Struct, rename="camel"):
    nft_token_balances: list[Entry]


folder, wallets_file, database = sys.argv[1:]
bodies = [
    (wallet, (Path(folder) / wallet / "nft-balances").read_bytes())
    for wallet in Path(wallets_file).read_text().split()
]

began = time.perf_counter()
decode = msgspec.json.Decoder(Balances).decode
fields = msgspec.structs.astuple
connection = sqlite3.connect(database, isolation_level=None)
connection.executescript(TABLES)
waiting = iter(bodies)
while batch := list(itertools.islice(waiting, 100)):
    read = [(wallet, decode(body).nft_token_balances) for wallet, body in batch]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        TOKEN,
        (
            (
                entry.token.id,
                entry.token.organization_id,
                entry.token.contract_address,
                entry.token.blockchain_token_id,
                *fields(entry.token.metadata),
            )
            for _, entries in read
            for entry in entries
        ),
    )
    connection.executemany(
        BALANCE,
        ((wallet, entry.token_id, entry.amount) for wallet, entries in read for entry in entries),
    )
    connection.execute("COMMIT")
seconds = time.perf_counter() - began
(balances,) = connection.execute("SELECT count(*) FROM balances").fetchone()
print(json.dumps({"seconds": seconds, "balances": balances}))
