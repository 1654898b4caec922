"""The database's schema and migrations: SQL files, run by sqlite-utils."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from nftsync.errors import EarlierDatabase, NewerDatabase, StoreError
from nftsync.store.contracts import contract_key, name_new_tokens
from nftsync.store.database import (
    begin_immediate,
    connect_reader,
    connect_writer,
    explained,
    kind_of,
)
from nftsync.version import __version__
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    from sqlite_utils import Database


#: The name of our migrations in sqlite-utils' table `_sqlite_migrations`.
_SET = "nftsync"

#: The last migration of 0.5.0, the first version for users. A new database runs `schema.sql` under
#: this name instead, and records the others as applied.
_FIRST = "watch"
#: In order. The later ones are in `migrations/NAME.sql`; the text is the feature that one adds for
#: users, if any.
_MIGRATIONS = {
    _FIRST: "",
    "outbox_order": "",
    "partial_spans": "",
    "hex_addresses": "",
    "token_faults": "records of unreadable metadata",
    "later_changes": "",
    "new_fields": "",
    "delivery_headers": "headers of webhooks",
}


def open_store(path: Path) -> sqlite3.Connection:
    """Open the database for writing; create or migrate it if necessary.

    A migration leaves a copy at `DATABASE.before-VERSION`.
    """
    with explained(path):
        if path.is_file() and path.stat().st_size > 0:
            # Before the first pragma, which would write WAL mode into a foreign file.
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


@cache
def empty_store() -> bytes:
    """Return the file of an empty database, quicker to copy than to create."""
    with TemporaryDirectory(prefix="nftsync-") as folder:
        path = Path(folder, "empty.db")
        open_store(path).close()
        return path.read_bytes()


def check_schema(connection: sqlite3.Connection, path: Path | str) -> int:
    """Return the number of applied migrations; refuse other programs' databases."""
    cursor = connection.cursor()
    cursor.row_factory = None
    names = {row[0] for row in cursor.execute("SELECT name FROM sqlite_schema")}
    applied: list[str] = []
    if "_sqlite_migrations" in names:
        cursor.execute(
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY id", (_SET,)
        )
        applied = [row[0] for row in cursor]
    if not applied and names:
        raise StoreError(f"{path} is not an nftsync database; name another with --database")
    if applied and _FIRST not in applied:
        raise StoreError(
            f"{path} is from before nftsync 0.5; upgrade it first with nftsync 0.5 (`nftsync"
            " migrate`), or name another --database"
        )
    since = applied[applied.index(_FIRST) :] if applied else []
    if not set(since).issubset(_MIGRATIONS):
        raise NewerDatabase(
            f"{path} was written by a newer nftsync; update nftsync, or name another --database"
        )
    return len(since)


def made_at(connection: sqlite3.Connection) -> str | None:
    """Return when the database was created, in sqlite-utils' format."""
    made: str | None
    (made,) = connection.execute("SELECT min(applied_at) FROM _sqlite_migrations").fetchone()
    return made


def migrate(path: Path) -> Path | None:
    """Upgrade an earlier version's database; return its copy, or None if it needs no upgrade."""
    with opened_as_is(path) as connection, explained(path):
        if not is_earlier(connection, path):
            return None
    open_store(path).close()
    return _copy_of(path)


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.before-{__version__}")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # Checked again in the transaction: of two processes that start at once, only one migrates.
    with connection:
        begin_immediate(connection)
        if is_earlier(connection, path):
            with (
                whole_file(_copy_of(path), replace=True) as unfinished,
                closing(sqlite3.connect(path)) as source,
                closing(sqlite3.connect(unfinished)) as target,
            ):
                source.backup(target)
        _apply_due(connection)


def _apply_due(connection: sqlite3.Connection) -> None:
    # Imported here because they import pandas, which takes 0.3 s.
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(_SET)
    scripts = {name: f"migrations/{name}.sql" for name in _MIGRATIONS}
    if check_schema(connection, "the database") == 0:
        scripts = {_FIRST: "schema.sql"}
    for name in _MIGRATIONS:
        apply: Callable[[Database], None] = partial(_run_script, file=scripts.get(name))
        migrations(name=name)(apply)
    migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))


def _run_script(database: Database, file: str | None) -> None:
    if file is None:
        return
    database.conn.create_function("contract_key", 1, contract_key, deterministic=True)
    statement = ""
    for line in files(__package__).joinpath(file).read_text(encoding="utf-8").splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            database.execute(statement)
            statement = ""
    if file == "migrations/hex_addresses.sql":
        (until,) = database.execute("SELECT indexed_token_no FROM mirror_state").fetchone()
        name_new_tokens(database.conn, 0, until)


def _refuse_empty(connection: sqlite3.Connection, path: Path | str) -> None:
    if check_schema(connection, path) == 0:
        raise StoreError(f"{path} is empty; to create its tables: `nftsync sync`")


def is_earlier(connection: sqlite3.Connection, path: Path | str) -> bool:
    return 0 < check_schema(connection, path) < len(_MIGRATIONS)


@contextmanager
def upgraded(connection: sqlite3.Connection, name: Path | str) -> Iterator[sqlite3.Connection]:
    """Yield a connection with this version's tables.

    For an earlier version's database, it reads a migrated temporary copy.
    """
    _refuse_empty(connection, name)
    if not is_earlier(connection, name):
        yield connection
        return
    # SQLite keeps a database without a name in memory or, if large, in a temporary file.
    with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as copy:
        try:
            _upgrade_copy(connection, copy, name)
        except sqlite3.OperationalError as error:
            if kind_of(error) != sqlite3.SQLITE_FULL:
                raise
            raise StoreError(
                f"{name} was made by an earlier version of nftsync. To read it, nftsync upgrades a"
                " temporary copy, and the folder for temporary files has no room. Free some space,"
                " set SQLITE_TMPDIR to another folder, or run `nftsync migrate`"
            ) from error
        missing = [*_MIGRATIONS.values()][check_schema(connection, name) :]
        features = ", ".join(filter(None, missing))
        without = f", without {features}" if features else ""
        warnings.warn(
            f"{name} was made by an earlier version of nftsync{without}; to upgrade it: `nftsync"
            " migrate`. Until then, nftsync reads an upgraded temporary copy",
            EarlierDatabase,
            stacklevel=1,
        )
        yield copy


def _upgrade_copy(source: sqlite3.Connection, copy: sqlite3.Connection, name: Path | str) -> None:
    def refuse_busy(status: int, _remaining: int, _pages: int) -> None:
        # Python would retry forever if the caller's own transaction holds the lock.
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise StoreError(
                f"{name} was made by an earlier version of nftsync, and an open write transaction"
                " prevents reading a copy; commit it or roll it back, or run `nftsync migrate`"
            )

    copy.executescript(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768"
    )
    source.backup(copy, progress=refuse_busy)
    _apply_due(copy)
    copy.execute("PRAGMA query_only = 1")


@contextmanager
def opened_as_is(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, unmigrated."""
    with explained(path):
        connection = connect_reader(path)
    with closing(connection):
        with explained(path):
            _refuse_empty(connection, path)
        yield connection


@contextmanager
def opened(path: Path | str, *, live: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, with this version's tables; see `upgraded`.

    `live` refuses an earlier version's database, because a copy shows no later changes.
    """
    with opened_as_is(path) as connection, ExitStack() as stack:
        with explained(path):
            if live and is_earlier(connection, path):
                raise StoreError(
                    f"{path} was made by an earlier version of nftsync; upgrade it first, with"
                    " `nftsync migrate`"
                )
            readable = stack.enter_context(upgraded(connection, path))
        yield readable


@contextmanager
def reading(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database, and read one snapshot of it."""
    with opened(path) as connection, explained(path):
        connection.execute("BEGIN DEFERRED")
        yield connection
