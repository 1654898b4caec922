"""Finished runs of a lake, and their buckets as open databases."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import msgspec

from nftsync.lake.bucket import LakeState, open_bucket, temporary_path
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import BucketEntry, Manifest, read_manifest
from nftsync.lake.reasons import explained
from nftsync.lake.storage import Lake, StoredFile
from nftsync.store.schema import open_store

#: A folder, or an address that Delta knows.
LakeAddress: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class Pinned:
    """A finished run and its manifest's file, small enough to send to workers.

    `ledger` has the ledger's runs, packed, and `problem` damage of the ledger.
    """

    url: str
    run: LakeRun
    file: StoredFile
    ledger: bytes
    problem: str | None = None

    @property
    def lake(self) -> Lake:
        return _lake(self.url)

    @property
    def manifest(self) -> Manifest:
        """The manifest, which each process reads once."""
        return _manifest(self.url, self.file)

    @property
    def runs(self) -> list[LakeRun]:
        return msgspec.msgpack.decode(self.ledger, type=list[LakeRun])

    def open(self, bucket: int | None, path: Path) -> None:
        """Write a bucket's database to a new path, with the lake's runs and names.

        None: an empty database.
        """
        manifest = self.manifest
        entry = BucketEntry() if bucket is None else manifest.buckets[bucket]
        state = LakeState(
            runs=self.runs,
            sequence=manifest.sequence,
            approved_at=manifest.approved_at,
            names=manifest.names,
        )
        with explained(self.url):
            open_bucket(self.lake, entry, state, path)


_lake = lru_cache(maxsize=4)(Lake)


@lru_cache(maxsize=4)
def _manifest(url: str, file: StoredFile) -> Manifest:
    with explained(url):
        return read_manifest(_lake(url), file)


def pinned(lake: LakeAddress, run: int | None = None) -> Pinned:
    """Return a finished run, by default the last."""
    url = os.fspath(lake)
    with explained(url):
        tables = Lake(url)
        ledger = Ledger(tables)
        runs = ledger.runs()
        one = ledger.finished(run, runs)
    if one.manifest is None:
        raise TypeError("a finished run pins a manifest")
    # Later runs have failed, or are at work.
    until = msgspec.msgpack.encode([x for x in runs if run is None or x.run_id <= run])
    # The root, as workers may be in another folder.
    return Pinned(tables.root, one, one.manifest, until, ledger.problem)


@contextmanager
def new_database(pin: Pinned) -> Iterator[sqlite3.Connection]:
    """Yield a new temporary database that has only the lake's runs."""
    with temporary_path() as path:
        pin.open(None, path)
        with closing(open_store(path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            yield connection
