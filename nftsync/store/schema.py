"""The schema: sqlite-utils applies the SQL files in `migrations`."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from nftsync.errors import EarlierDatabase, NewerDatabase, StoreError
from nftsync.store.catalog import TABLES
from nftsync.store.contracts import take_in_contracts
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


#: The name under which sqlite-utils notes in `_sqlite_migrations` what has been applied.
_SET = "nftsync"

#: In order, each in `migrations/NAME.sql`; a database that knows others is from a newer nftsync.
_MIGRATIONS = (
    "first_tables",
    "inbox",
    "full_syncs",
    "collections",
    "removals",
    "removal_guard",
    "sequence_numbers",
)


def _run_file(database: Database, name: str) -> None:
    file = files(__package__).joinpath("migrations", f"{name}.sql")
    for statement in file.read_text(encoding="utf-8").split(";\n"):
        database.execute(statement)
    if name == "collections":
        (until,) = database.execute("SELECT indexed_token_no FROM mirror_state").fetchone()
        take_in_contracts(database.conn, 0, until)


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
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY id", (_SET,)
        )
        applied = [row[0] for row in cursor]
    if not applied and names:
        raise StoreError(f"{path} is not an nftsync database; name another with --database")
    if not set(applied).issubset(_MIGRATIONS):
        raise NewerDatabase(
            f"{path} was written by a newer nftsync; update nftsync (pip install -U nftsync) "
            "or name another --database"
        )
    return len(applied)


def made_at(connection: sqlite3.Connection) -> str | None:
    """When the database was made, in sqlite-utils' form of a time; None: it is empty."""
    made: str | None
    (made,) = connection.execute("SELECT min(applied_at) FROM _sqlite_migrations").fetchone()
    return made


def migrate(path: Path) -> Path | None:
    """Upgrade the database of an earlier version; return its copy, or None if it needs no upgrade.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be written.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened_as_is(path) as connection, explained(path):
        if not is_earlier(connection, path):
            return None
    open_store(path).close()
    return _copy_of(path)


def _copy_of(path: Path) -> Path:
    """Return where the copy of a database is left that is about to be migrated."""
    return path.with_name(f"{path.name}.before-{__version__}")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # Immediate, and looked at again inside: of two processes that start at once, one migrates.
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
    # They import pandas, which takes 0.3 s: only here, where it is known that a migration is due.
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(_SET)
    for name in _MIGRATIONS:
        apply: Callable[[Database], None] = partial(_run_file, name=name)
        migrations(name=name)(apply)
    migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))


def _refuse_empty(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raise a StoreError if a database has no tables yet, or none of nftsync's."""
    if check_schema(connection, path) == 0:
        raise StoreError(f"{path} is empty; `nftsync sync` makes its tables")


def is_earlier(connection: sqlite3.Connection, path: Path | str) -> bool:
    """Return whether an earlier version of nftsync made a database that is not empty."""
    return 0 < check_schema(connection, path) < len(_MIGRATIONS)


@contextmanager
def upgraded(connection: sqlite3.Connection, name: Path | str) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a database with the tables of this version.

    For a database of this version, it is the given connection. For an earlier one, it is a
    connection to a temporary copy, which is migrated, so that no query has to handle missing tables
    and columns. The given connection is only read.

    Args:
        connection: any connection.
        name: the database's name in messages.

    Raises:
        StoreError: the database is empty or not nftsync's. Or it needs a copy, and there is no room
            for one, or the connection has uncommitted changes.
        NewerDatabase: a newer nftsync wrote the database.
    """
    _refuse_empty(connection, name)
    if not is_earlier(connection, name):
        yield connection
        return
    # SQLite keeps a database without a name in memory and, if it is large, in a temporary file that
    # ends with the connection.
    with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as copy:
        try:
            lacking = _upgrade_copy(connection, copy, name)
        except sqlite3.OperationalError as error:
            if kind_of(error) != sqlite3.SQLITE_FULL:
                raise
            raise StoreError(
                f"{name} was made by an earlier version of nftsync, and the folder for temporary"
                " files has no room for a copy to upgrade and read; make room there, name another"
                " one with SQLITE_TMPDIR, or upgrade the database with `nftsync migrate`"
            ) from error
        without = f" and lacks {', '.join(lacking)}" if lacking else ""
        warnings.warn(
            f"{name} was made by an earlier version of nftsync{without}; nftsync reads a temporary"
            " copy that it upgrades. To upgrade the file itself: `nftsync migrate`, or a sync",
            EarlierDatabase,
            stacklevel=1,  # Python shows a text once for each line: here, once for each database
        )
        yield copy


def _upgrade_copy(
    source: sqlite3.Connection, copy: sqlite3.Connection, name: Path | str
) -> list[str]:
    """Copy a database and migrate the copy; return the tables and public columns it lacked."""

    def refuse_busy(status: int, _remaining: int, _pages: int) -> None:
        # Python would retry without end, and the caller's own transaction cannot end meanwhile.
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            raise StoreError(
                f"{name} was made by an earlier version of nftsync and is being written, so it"
                " cannot be copied and read; end the transaction, or upgrade it with"
                " `nftsync migrate`"
            )

    copy.executescript(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768"
    )
    source.backup(copy, progress=refuse_busy)
    before = _names(copy)
    _apply_due(copy)
    copy.execute("PRAGMA query_only = 1")
    tables = {table for table, _ in before}
    return sorted(
        {
            table if table not in tables else f"{table}.{column}"
            for table, column in _names(copy) - before
            if table not in tables or (table in TABLES and column in TABLES[table].columns)
        }
    )


def _names(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the tables and views, with each of their columns."""
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_xinfo(m.name) c"
        " WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'"
    )
    return {(table, column) for table, column in rows}


@contextmanager
def opened_as_is(path: Path | str) -> Iterator[sqlite3.Connection]:
    """Open a database of this or an earlier version during a block, with the tables that it has.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with explained(path):
        connection = connect_reader(path)
    with closing(connection):
        with explained(path):
            _refuse_empty(connection, path)
        yield connection


@contextmanager
def opened(path: Path | str, *, live: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database to read it during a block, with this version's tables; see `upgraded`.

    Args:
        path: the database.
        live: refuse a database of an earlier version, as a copy would not show later changes.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
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
    """Open a database and read it at one moment, whatever is written beside.

    Raises:
        StoreError: it is missing, empty, not nftsync's or cannot be read.
        NewerDatabase: a newer nftsync wrote it.
    """
    with opened(path) as connection, explained(path):
        connection.execute("BEGIN DEFERRED")
        yield connection
