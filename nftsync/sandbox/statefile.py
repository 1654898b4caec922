"""The file that keeps a sandbox over restarts, also over one by `kill -9`.

An SQLite database of the sandbox's own, which one sandbox at a time holds. Each change is one
transaction and is written when it happens. Only its owner may read it, as the secret is in it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from nftsync.errors import InputError, StoreError
from nftsync.sandbox import staterows
from nftsync.sandbox.webhook_config import WebhookConfig
from nftsync.sandbox.webhooks import Delivery
from nftsync.sandbox.world import World
from nftsync.sandbox.worldfile import Holding, Record

__all__ = ["StateFile"]

#: In the header of state files (SQLite's application_id).
_MARK = 0x6E667473
_VERSION = 1

_Loaded = TypeVar("_Loaded")


class StateFile:
    """An open state file, as the journal of a sandbox; see `nftsync.sandbox.journal`.

    Args:
        path: the file; where there is none, or an empty one, a state begins.

    Attributes:
        path: the file.
        is_new: whether no world was in it.

    Raises:
        InputError: it is something else, of another version, in use, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._depth = 0
        _make_private(self.path)
        self._connection = sqlite3.connect(
            self.path, timeout=1, isolation_level=None, check_same_thread=False
        )
        try:
            self.is_new = self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise InputError(_refusal(self.path, error)) from error
        except BaseException:
            self._connection.close()
            raise

    def begin(self, world: World) -> None:
        """Keep a whole world as the first content.

        Raises:
            StoreError: it cannot be written.
        """
        self._write(staterows.insert_world, world.contents(), _MARK, _VERSION)

    def world(self) -> World:
        """The world that is kept.

        Raises:
            InputError: the file is damaged.
        """
        return World.restore(self._read(staterows.load_world))

    def config(self) -> WebhookConfig | None:
        """The webhook configuration that is kept.

        Raises:
            InputError: the file is damaged.
        """
        return self._read(staterows.load_config)

    def waiting(self) -> list[Delivery]:
        """The undelivered webhooks, oldest first.

        Raises:
            InputError: the file is damaged.
        """
        return self._read(staterows.load_deliveries)

    def close(self) -> None:
        """Close the file, for another sandbox to open."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Journal`.

        Raises:
            StoreError: the change cannot be written. The sandbox goes on with it in memory.
        """
        with self._lock:
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    self._end("ROLLBACK")
                raise
            else:
                if self._depth == 1:
                    self._end("COMMIT")
            finally:
                self._depth -= 1

    def keep_wallet(self, wallet: str, shown: str) -> None:
        """See `Journal`."""
        self._write(staterows.insert_wallets, [(wallet, shown)])

    def keep_record(self, token: str, record: Record) -> None:
        """See `Journal`."""
        self._write(staterows.upsert_records, [(token, record)])

    def keep_holding(self, wallet: str, token: str, holding: Holding | None) -> None:
        """See `Journal`."""
        if holding is None:
            self._write(staterows.delete_holding, wallet, token)
        else:
            self._write(staterows.upsert_holdings, [(wallet, token, holding)])

    def keep_minted(self, minted: int) -> None:
        """See `Journal`."""
        self._write(staterows.upsert_facts, {"minted": str(minted)})

    def keep_config(self, config: WebhookConfig) -> None:
        """See `Journal`."""
        self._write(staterows.upsert_config, config)

    def keep_delivery(self, delivery: Delivery) -> None:
        """See `Journal`."""
        self._write(staterows.upsert_delivery, delivery)

    def drop_delivery(self, delivery: Delivery) -> None:
        """See `Journal`."""
        self._write(staterows.delete_delivery, delivery)

    def _prepare(self) -> bool:
        """Make sure that the file is one of ours, or empty, and hold it; tell whether it is new."""
        run = self._connection.execute
        # One sandbox at a time, and no shared memory beside the file.
        run("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        mark = run("PRAGMA application_id").fetchone()[0]
        is_new = mark == 0 and run("SELECT 1 FROM sqlite_schema").fetchone() is None
        version = run("PRAGMA user_version").fetchone()[0]
        if not is_new and mark != _MARK:
            raise InputError(_other(self.path))
        if not is_new and version != _VERSION:
            raise InputError(
                f"{self.path} is a sandbox state of version {version}, and this nftsync reads "
                f"{_VERSION}; name another file with --state"
            )
        run("PRAGMA journal_mode = WAL").fetchone()
        run("PRAGMA synchronous = NORMAL")
        run("BEGIN IMMEDIATE")
        run("COMMIT")
        return is_new

    def _write(self, change: Callable[..., None], *subject: object) -> None:
        with self.transaction():
            try:
                if not self._connection.in_transaction:
                    self._connection.execute("BEGIN IMMEDIATE")
                change(self._connection, *subject)
            except sqlite3.Error as error:
                raise StoreError(_unwritten(self.path, error)) from error

    def _read(self, load: Callable[[sqlite3.Connection], _Loaded]) -> _Loaded:
        try:
            with self._lock:
                return load(self._connection)
        except (sqlite3.Error, msgspec.MsgspecError, LookupError) as error:
            raise InputError(
                f"the state file {self.path} is damaged ({error}); begin another with --state"
            ) from error

    def _end(self, command: str) -> None:
        if not self._connection.in_transaction:
            return
        try:
            self._connection.execute(command)
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise StoreError(_unwritten(self.path, error)) from error


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, or make an empty one theirs alone."""
    try:
        if path.is_file() and path.stat().st_size:
            return
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise InputError(
            f"the state file {path} cannot be opened: {error.strerror or error}"
        ) from error


def _other(path: Path) -> str:
    return f"{path} is no state of a sandbox and is left as it is; name another file with --state"


def _refusal(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "not a database" in text:
        return _other(path)
    if "locked" in text:
        return (
            f"another sandbox is using the state file {path}; end it or name another with --state"
        )
    return f"the state file {path} cannot be used: {text}"


def _unwritten(path: Path, error: sqlite3.Error) -> str:
    return f"the state file {path} cannot be written, so a restart will not know this: {error}"
