"""The tables and views, as migrations.

Analysts read the names of the contract; behind `balances`, `balance_changes`, `token_changes` and
`wallet_states` stand narrow tables that name wallets and tokens by number: a third of the bytes,
appended in order instead of at random places, and quick to join.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from nftsync.errors import NewerDatabase, StoreError
from nftsync.store.database import connect_reader, connect_writer, create_private_file, explained

__all__ = ["check_schema", "open_store", "opened", "reading"]


_MIGRATION_SET = "nftsync"

#: What has been applied, where and as sqlite-utils keeps it. That package is not asked to apply
#: it: it imports pandas where that is there, which costs a first sync 0.3 s and 80 MB.
_LEDGER = """
CREATE TABLE IF NOT EXISTS "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name")
"""

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

CREATE TABLE webhooks (
    webhook_id TEXT PRIMARY KEY,
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
    run_id INTEGER
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
INSERT INTO mirror_state (id) VALUES (1);

CREATE VIRTUAL TABLE tokens_fts USING fts5 (
    name, description, creator_name, content = 'tokens', content_rowid = 'token_no'
)
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


#: Webhooks get a number that stays theirs, the SHA-256 of their body (which outlives a pruned one),
#: the lease they are worked on under, and when their object is to be looked at once more. The first
#: version had the table, but nothing that wrote it.
_INBOX = """
ALTER TABLE webhooks RENAME TO webhooks_before;
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
DROP TABLE webhooks_before;
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

CREATE INDEX sync_runs_syncs ON sync_runs (started_at) WHERE kind = 'sync';
ALTER TABLE resources ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;

-- Written to find out whether the database takes writes.
CREATE TABLE inbox_checks (id INTEGER PRIMARY KEY CHECK (id = 1), checked_at TEXT NOT NULL) STRICT
"""


#: In order, the statements of each; a database that knows others is from a newer nftsync.
_MIGRATIONS = {
    "first_tables": ";\n".join(
        [_TABLES, *(f'CREATE VIEW "{name}" AS {query}' for name, query in _VIEWS.items())]
    ),
    "inbox": _INBOX,
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
            _refuse_others(path)
        connection = connect_writer(path)
        try:
            if check_schema(connection, path) != len(_MIGRATIONS):
                _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _refuse_others(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=10)
    try:
        check_schema(connection, path)
    finally:
        connection.close()


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
            (_MIGRATION_SET,),
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
    # Immediate, and looked at again inside: of two processes that start at once, one migrates.
    connection.execute("BEGIN IMMEDIATE")
    try:
        seen = check_schema(connection, path)
        if 0 < seen < len(_MIGRATIONS):
            _keep_copy(path)
        _run_all(connection, _LEDGER)
        for name, statements in list(_MIGRATIONS.items())[seen:]:
            _run_all(connection, statements)
            connection.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES (?, ?, ?)",
                (_MIGRATION_SET, name, str(datetime.now(UTC))),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _run_all(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement.strip())


def _keep_copy(path: Path) -> None:
    from nftsync import __version__

    copy = path.with_name(f"{path.name}.before-{__version__}")
    create_private_file(copy)
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        target.close()
        source.close()


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
