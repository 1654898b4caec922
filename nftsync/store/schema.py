"""The tables, views and the full-text index, as migrations that sqlite-utils applies.

Analysts read the names of the contract; behind `balances`, `balance_changes`, `token_changes` and
`wallet_states` stand narrow tables that name wallets and tokens by number: a third of the bytes,
appended in order instead of at random places, and quick to join.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nftsync.errors import NewerDatabase, StoreError
from nftsync.store.database import (
    begin_immediate,
    connect_reader,
    connect_writer,
    create_private_file,
    explained,
)

if TYPE_CHECKING:
    from sqlite_utils import Database

__all__ = ["check_schema", "open_store", "opened", "reading"]


#: The name under which sqlite-utils notes in `_sqlite_migrations` what has been applied.
_SET = "nftsync"

_TABLES = """
CREATE TABLE wallets (
    wallet_id TEXT NOT NULL UNIQUE,
    label TEXT,
    wallet_group TEXT,
    tracked INTEGER NOT NULL DEFAULT 1 CHECK (tracked IN (0, 1)),
    first_seen_at TEXT NOT NULL,
    synced_at TEXT,
    status TEXT NOT NULL DEFAULT 'never'
        CHECK (status IN ('never', 'ok', 'incomplete', 'failed')),
    error TEXT,
    wallet_no INTEGER PRIMARY KEY,
    ticket INTEGER NOT NULL DEFAULT 0,
    etag TEXT,
    body_sha256 TEXT,
    state_id INTEGER
) STRICT;

CREATE TABLE tokens (
    token_id TEXT NOT NULL UNIQUE,
    organization_id TEXT,
    contract_address TEXT,
    blockchain_token_id TEXT,
    name TEXT,
    description TEXT,
    image TEXT,
    animation_url TEXT,
    external_url TEXT,
    background_color TEXT,
    edition_id INTEGER,
    total_edition INTEGER,
    creator_name TEXT,
    creator_image_url TEXT,
    creator_external_page_url TEXT,
    extra TEXT,
    first_seen_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    token_no INTEGER PRIMARY KEY,
    ticket INTEGER NOT NULL,
    changed_ticket INTEGER NOT NULL,
    detailed INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE token_sources (
    token_no INTEGER PRIMARY KEY,
    list_ticket INTEGER NOT NULL,
    list_fields TEXT NOT NULL,
    detail_ticket INTEGER NOT NULL,
    detail_fields TEXT NOT NULL
) STRICT;

CREATE TABLE balance_rows (
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    amount TEXT NOT NULL,
    held_since TEXT,
    first_seen_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (wallet_no, token_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX balance_rows_by_token ON balance_rows (token_no);

CREATE TABLE balance_change_rows (
    change_id INTEGER PRIMARY KEY,
    wallet_no INTEGER NOT NULL,
    token_no INTEGER NOT NULL,
    old_amount TEXT,
    new_amount TEXT,
    observed_at TEXT NOT NULL,
    baseline INTEGER NOT NULL,
    run_id INTEGER,
    webhook_id TEXT
) STRICT;
CREATE INDEX balance_change_rows_by_wallet ON balance_change_rows (wallet_no);

CREATE TABLE token_change_rows (
    change_id INTEGER PRIMARY KEY,
    token_no INTEGER NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    observed_at TEXT NOT NULL,
    run_id INTEGER,
    webhook_id TEXT
) STRICT;
CREATE INDEX token_change_rows_by_token ON token_change_rows (token_no);

CREATE TABLE wallet_state_rows (
    state_id INTEGER PRIMARY KEY,
    wallet_no INTEGER NOT NULL,
    first_read_at TEXT NOT NULL,
    last_read_at TEXT NOT NULL,
    reads INTEGER NOT NULL,
    body_sha256 TEXT NOT NULL,
    run_id INTEGER,
    observed_at TEXT NOT NULL
) STRICT;
CREATE INDEX wallet_state_rows_by_wallet ON wallet_state_rows (wallet_no);

CREATE TABLE sync_runs (
    run_id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('sync', 'replay')),
    status TEXT NOT NULL
        CHECK (status IN ('running', 'ok', 'partial', 'failed', 'interrupted')),
    started_at TEXT NOT NULL,
    finished_at TEXT,
    wallets_total INTEGER NOT NULL DEFAULT 0,
    wallets_ok INTEGER NOT NULL DEFAULT 0,
    wallets_unchanged INTEGER NOT NULL DEFAULT 0,
    wallets_failed INTEGER NOT NULL DEFAULT 0,
    tokens_added INTEGER NOT NULL DEFAULT 0,
    tokens_changed INTEGER NOT NULL DEFAULT 0,
    balances_added INTEGER NOT NULL DEFAULT 0,
    balances_changed INTEGER NOT NULL DEFAULT 0,
    balances_removed INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    error TEXT,
    first_ticket INTEGER NOT NULL DEFAULT 0,
    with_tokens INTEGER NOT NULL DEFAULT 0,
    plan BLOB
) STRICT;

CREATE TABLE resources (
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    body TEXT NOT NULL,
    fetched_at TEXT NOT NULL,
    PRIMARY KEY (resource_type, resource_id)
) STRICT;

-- What the mirror must remember between processes: how tickets follow the machine's monotonic
-- clock, the greatest ticket applied, and how far the full-text index has come.
CREATE TABLE mirror_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    ticket_offset INTEGER NOT NULL DEFAULT 0,
    greatest_ticket INTEGER NOT NULL DEFAULT 0,
    indexed_token_no INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO mirror_state (id) VALUES (1)
"""

_VIEWS = {
    "balances": """
        SELECT w.wallet_id, t.token_id, b.amount, b.first_seen_at, b.updated_at
        FROM balance_rows b
        JOIN wallets w USING (wallet_no)
        JOIN tokens t USING (token_no)""",
    "balance_changes": """
        SELECT c.change_id, w.wallet_id, t.token_id, c.old_amount, c.new_amount,
            c.observed_at, c.baseline, c.run_id, c.webhook_id
        FROM balance_change_rows c
        JOIN wallets w USING (wallet_no)
        JOIN tokens t USING (token_no)""",
    "token_changes": """
        SELECT c.change_id, t.token_id, c.before, c.after, c.observed_at, c.run_id, c.webhook_id
        FROM token_change_rows c
        JOIN tokens t USING (token_no)""",
    "wallet_states": """
        SELECT w.wallet_id, s.first_read_at, s.last_read_at, s.reads, s.body_sha256, s.run_id,
            s.observed_at, s.state_id
        FROM wallet_state_rows s
        JOIN wallets w USING (wallet_no)""",
    "holdings": """
        SELECT w.wallet_id, w.label AS wallet_label, w.wallet_group,
            t.token_id, t.contract_address, t.blockchain_token_id, b.amount,
            t.name, t.description, t.image, t.animation_url, t.external_url, t.background_color,
            t.edition_id, t.total_edition,
            t.creator_name, t.creator_image_url, t.creator_external_page_url,
            b.held_since, b.updated_at AS balance_updated_at, t.updated_at AS token_updated_at,
            w.synced_at AS wallet_synced_at, w.status AS wallet_status
        FROM balance_rows b
        JOIN wallets w USING (wallet_no)
        JOIN tokens t USING (token_no)""",
}


#: Webhooks have a number that stays theirs, their body's SHA-256 (which outlives it), a lease
#: that they are worked on under, and when their object is to be read once more. The first version
#: had a table of this name, but nothing that wrote it.
_INBOX = """
DROP TABLE IF EXISTS webhooks;
CREATE TABLE webhooks (
    webhook_id TEXT NOT NULL UNIQUE,
    organization_id TEXT,
    action TEXT,
    resource_type TEXT,
    resource_id TEXT,
    created_at_utc TEXT,
    changes TEXT,
    body BLOB,
    received_at TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN
        ('pending', 'running', 'done', 'failed', 'dead', 'unrouted', 'quarantined')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT,
    last_error TEXT,
    finished_at TEXT,
    deliveries INTEGER NOT NULL DEFAULT 1,
    run_id INTEGER,
    body_sha256 TEXT,
    webhook_no INTEGER PRIMARY KEY,
    lease_no INTEGER,
    look_again_at TEXT
) STRICT;
-- What is due, how much waits in each state, and since when: one index answers all three.
CREATE INDEX webhooks_by_state ON webhooks (state, next_attempt_at, received_at);
CREATE INDEX webhooks_by_object ON webhooks (resource_id, resource_type, state)
    WHERE state IN ('pending', 'failed', 'running');
CREATE INDEX webhooks_to_look_again ON webhooks (look_again_at) WHERE look_again_at IS NOT NULL;

-- A worker's right to the webhooks that name it. A number is never used twice, so a worker whose
-- lease was taken away cannot be mistaken for its successor.
CREATE TABLE leases (
    lease_no INTEGER PRIMARY KEY AUTOINCREMENT,
    expires_at TEXT NOT NULL,
    run_id INTEGER
) STRICT;

ALTER TABLE resources ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;

-- Written to find out whether the database takes writes.
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT
"""


#: Whether a run was to read every tracked wallet, noted as it begins.
_FULL_SYNCS = """
ALTER TABLE sync_runs ADD COLUMN reads_all INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS sync_runs_syncs;
CREATE INDEX sync_runs_of_all ON sync_runs (started_at) WHERE reads_all
"""


def _first_tables(database: Database) -> None:
    _run_all(database, _TABLES)
    for name, query in _VIEWS.items():
        database.create_view(name, query)
    # Without triggers, which make the mirror's writes 3.5 times slower: it indexes what changed.
    database.table("tokens").enable_fts(["name", "description", "creator_name"])


def _run_all(database: Database, statements: str) -> None:
    for statement in statements.split(";\n"):
        database.execute(statement.strip())


#: In order; a database that knows others is from a newer nftsync.
_MIGRATIONS: dict[str, Callable[[Database], None]] = {
    "first_tables": _first_tables,
    "inbox": partial(_run_all, statements=_INBOX),
    "full_syncs": partial(_run_all, statements=_FULL_SYNCS),
}


def open_store(path: Path) -> sqlite3.Connection:
    """Open the database to write it, and create or migrate it first where that is due.

    Before an older database is migrated, a copy of it is left at `DATABASE.before-VERSION`.

    Raises:
        NewerDatabase: a newer nftsync has migrated it.
        StoreError: it is no database of nftsync's, or cannot be opened or written.
    """
    with explained(path):
        if path.is_file() and path.stat().st_size > 0:
            # Before the first pragma: WAL mode would be written into a file that isn't ours.
            with closing(sqlite3.connect(path, timeout=10)) as connection:
                check_schema(connection, path)
        connection = connect_writer(path)
        try:
            if check_schema(connection, path) != len(_MIGRATIONS):
                _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def check_schema(connection: sqlite3.Connection, path: Path | str) -> int:
    """Tell how many migrations a database has seen.

    Raises:
        NewerDatabase: it has seen one that this nftsync does not know.
        StoreError: it holds tables, but none of nftsync's.
    """
    cursor = connection.cursor()
    cursor.row_factory = None
    names = {row[0] for row in cursor.execute("SELECT name FROM sqlite_schema")}
    applied: list[str] = []
    if "_sqlite_migrations" in names:
        cursor.execute(
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY id",
            (_SET,),
        )
        applied = [row[0] for row in cursor]
    if not applied and names:
        raise StoreError(f"{path} is not an nftsync database; name another with --database")
    if not set(applied) <= _MIGRATIONS.keys():
        raise NewerDatabase(
            f"{path} was written by a newer nftsync; update nftsync (pip install -U nftsync) "
            "or name another --database"
        )
    return len(applied)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # They import pandas, which takes 0.3 s: only here, where it is known that a migration is due.
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(_SET)
    for name, apply in _MIGRATIONS.items():
        migrations(name=name)(apply)
    # Immediate, and looked at again inside: of two processes that start at once, one migrates.
    begin_immediate(connection)
    try:
        if 0 < check_schema(connection, path) < len(_MIGRATIONS):
            _keep_copy(path)
        migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _keep_copy(path: Path) -> None:
    from nftsync import __version__

    copy = path.with_name(f"{path.name}.before-{__version__}")
    create_private_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


@contextmanager
def opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database of nftsync's to read it during a block; it is not migrated.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with explained(path):
        connection = connect_reader(path)
    with closing(connection):
        with explained(path):
            if check_schema(connection, path) == 0:
                raise StoreError(f"{path} is empty; `nftsync sync` makes its tables")
        yield connection


@contextmanager
def reading(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database and read it at one moment, whatever is written beside.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened(path) as connection, explained(path):
        connection.execute("BEGIN DEFERRED")
        yield connection
