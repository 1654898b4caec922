"""How a database comes to its tables: the files of `migrations`, which sqlite-utils applies."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import nftsync
from nftsync.errors import NewerDatabase, StoreError
from nftsync.store.contracts import take_in_contracts
from nftsync.store.database import (
    begin_immediate,
    connect_reader,
    connect_writer,
    explained,
)
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    from sqlite_utils import Database

__all__ = ["check_schema", "made_at", "open_store", "opened", "reading"]


#: The name under which sqlite-utils notes in `_sqlite_migrations` what has been applied.
_SET = "nftsync"

#: In order, each in `migrations/NAME.sql`; a database that knows others is from a newer nftsync.
_MIGRATIONS = ("first_tables", "inbox", "full_syncs", "collections", "removals")


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
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ? ORDER BY id",
            (_SET,),
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


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # They import pandas, which takes 0.3 s: only here, where it is known that a migration is due.
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(_SET)
    for name in _MIGRATIONS:
        apply: Callable[[Database], None] = partial(_run_file, name=name)
        migrations(name=name)(apply)
    # Immediate, and looked at again inside: of two processes that start at once, one migrates.
    with connection:
        begin_immediate(connection)
        if 0 < check_schema(connection, path) < len(_MIGRATIONS):
            copy = path.with_name(f"{path.name}.before-{nftsync.__version__}")
            with (
                whole_file(copy, replace=True) as unfinished,
                closing(sqlite3.connect(path)) as source,
                closing(sqlite3.connect(unfinished)) as target,
            ):
                source.backup(target)
        migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False))


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
