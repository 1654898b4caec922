"""One sync per database at a time; the lock goes with the process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from nftsync.errors import SyncRunning
from nftsync.store.connection import explained

__all__ = ["sync_lock"]


@contextmanager
def sync_lock(database: Path) -> Iterator[None]:
    """Hold the database's sync lock during a block.

    Raises:
        SyncRunning: another sync holds it.
        StoreError: the lock file beside the database cannot be written.
    """
    path = database.resolve()
    lock = filelock.FileLock(path.with_name(path.name + ".sync-lock"), timeout=0, mode=0o600)
    with explained(database):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise SyncRunning(
                f"another sync holds {database}; wait for it to end, or use another --database"
            ) from None
    try:
        yield
    finally:
        lock.release()
