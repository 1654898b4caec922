"""Reads of a database at one moment, as Arrow columns."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.errors import InputError, StoreError
from nftsync.records import INTEGER_COLUMNS
from nftsync.store.database import as_json, explained
from nftsync.store.schema import reading as reading_file
from nftsync.store.schema import upgraded

#: Rows held as Python objects at a time, few enough for the processor's cache.
_CHUNK = 500


class _HasConnection(Protocol):
    """A `sqlite_utils.Database`, whose package is slow to import."""

    conn: sqlite3.Connection


_Database: TypeAlias = "str | os.PathLike[str] | sqlite3.Connection | _HasConnection | None"
#: A database to read a frame from; None is the configured one. Some functions take several.
Store: TypeAlias = "_Database | Iterable[_Database] | Mapping[str, _Database]"
#: Wallet numbers, token numbers, or positions.
Numbers: TypeAlias = npt.NDArray[np.int64]
#: A condition whose parameter is a JSON array.
IN_JSON = "IN (SELECT value FROM json_each(?))"
#: Values for the placeholders of a query.
Parameters: TypeAlias = tuple[object, ...]


class Source:
    """Database in one read transaction, so that all reads show the same moment."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor

    @property
    def file(self) -> str:
        """Path of the database; empty if it has none."""
        return _file_of(self.cursor.connection)

    def rows(self, query: str, parameters: Parameters = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a query; read them all before the next query."""
        return self.cursor.execute(query, parameters)

    def columns(
        self, query: str, types: Sequence[pa.DataType], parameters: Parameters = ()
    ) -> list[pa.Array]:
        cursor = self.cursor.execute(query, parameters)
        chunks: list[list[pa.Array]] = [[pa.array([], kind)] for kind in types]
        try:
            while rows := cursor.fetchmany(_CHUNK):
                for chunk, kind, values in zip(chunks, types, zip(*rows, strict=True), strict=True):
                    chunk.append(pa.array(values, kind))
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            raise StoreError("the database has text that is not UTF-8; restore a backup") from error
        # Popped, so that each column's chunks are freed once concatenated.
        return [pa.concat_arrays(chunks.pop(0)) for _ in types]

    def numbered(
        self, kind: str, columns: Sequence[str], wanted: Numbers | None = None
    ) -> tuple[Numbers, list[pa.Array]]:
        """Read all `wanted` wallets or tokens (distinct), and perhaps others, by number."""
        which, parameters = self.restriction(kind, wanted)
        names = [f"{kind}_no", *columns]
        integers = INTEGER_COLUMNS | {names[0]}
        types = [pa.int64() if name in integers else pa.large_string() for name in names]
        query = f"SELECT {', '.join(names)} FROM {kind}s WHERE {which} ORDER BY {kind}_no"
        numbers, *rest = self.columns(query, types, parameters)
        return numbers.to_numpy(), rest

    def restriction(self, kind: str, wanted: Numbers | None) -> tuple[str, Parameters]:
        """Return a condition for the wanted numbers; true if they are most of the table."""
        if wanted is None:
            return "true", ()
        greatest = self.cursor.execute(f"SELECT max({kind}_no) FROM {kind}s").fetchone()[0]
        if len(wanted) * 3 > (greatest or 0):
            return "true", ()
        return f"{kind}_no {IN_JSON}", (as_json(wanted.tolist()),)


def positions(numbers: Numbers, wanted: Numbers) -> Numbers:
    """Return the position of each wanted number in ascending distinct numbers; -1 if absent."""
    if not len(numbers):
        return np.full(len(wanted), -1)
    greatest = int(numbers[-1])
    if numbers[0] >= 0 and greatest < 8 * max(len(numbers), len(wanted)) + 1000:
        table = np.full(greatest + 2, -1)
        table[numbers] = np.arange(len(numbers))
        return table[np.where((wanted < 0) | (wanted > greatest), greatest + 1, wanted)]
    nearest = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where(numbers[nearest] == wanted, nearest, -1)


@contextmanager
def reading(db: Store | Source) -> Iterator[Source]:
    """Open a database, or use an open one, for reads of one moment."""
    if isinstance(db, Source):
        yield db
        return
    database = getattr(db, "conn", db)
    if isinstance(database, sqlite3.Connection):
        with explained("the connection"), _snapshot_of(database) as source:
            yield source
        return
    if database is None:
        from nftsync.settings import database_and_source

        database = database_and_source()[0]
    if not isinstance(database, str | os.PathLike):
        raise InputError(
            f"cannot read frames from type {type(db).__name__}; use a path, a sqlite3.Connection, "
            "a sqlite_utils.Database, or None for the configured database"
        )
    with reading_file(os.fspath(database)) as connection, closing(connection.cursor()) as cursor:
        yield Source(cursor)


@contextmanager
def _snapshot_of(connection: sqlite3.Connection) -> Iterator[Source]:
    text_factory = connection.text_factory
    connection.text_factory = str
    try:
        with (
            upgraded(connection, _file_of(connection) or "the in-memory database") as readable,
            closing(readable.cursor()) as cursor,
        ):
            cursor.row_factory = None
            own = not readable.in_transaction
            try:
                if own:
                    cursor.execute("BEGIN DEFERRED")
                yield Source(cursor)
            finally:
                if own and readable.in_transaction:
                    # A rollback would abort the caller's other cursors.
                    readable.execute("COMMIT")
    finally:
        connection.text_factory = text_factory


def _file_of(connection: sqlite3.Connection) -> str:
    with closing(connection.cursor()) as cursor:
        cursor.row_factory = None
        files = {row[1]: str(row[2] or "") for row in cursor.execute("PRAGMA database_list")}
    return files["main"]


def named_databases(db: Iterable[Any]) -> dict[str, Any]:
    """Return the databases of a list or mapping by name.

    A database in a list has the name of its file without suffix, its path if other files have that
    name, or `database 2` if it has no file.
    """
    databases = [*(db.values() if isinstance(db, Mapping) else db)]
    files = [*map(_path_of, databases)]
    stems = [Path(file).stem or f"database {place}" for place, file in enumerate(files, start=1)]
    pairs = zip(stems, files, strict=True)
    names = [file if file and stems.count(stem) > 1 else stem for stem, file in pairs]
    names = [*db] if isinstance(db, Mapping) else names
    if not names:
        raise InputError("the list of databases is empty; give at least one")
    real = [file and os.path.realpath(file) for file in files]
    for place, (name, file) in enumerate(zip(names, real, strict=True)):
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{name!r:.60} is not a name of a database; use text")
        if file and real.index(file) < place:
            raise InputError(f"{file} is given twice; give each database once")
    return dict(zip(names, databases, strict=True))


def _path_of(db: Store) -> str:
    """Return the path of a database; empty if it has none."""
    if isinstance(db, str | os.PathLike):
        return str(os.fspath(db))
    with reading(db) as source:
        return source.file
