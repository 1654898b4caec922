"""Opening a database that exists, to read it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nftsync.errors import StoreError
from nftsync.store.connection import connect_reader, explained
from nftsync.store.schema import check_schema

__all__ = ["opened"]


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
