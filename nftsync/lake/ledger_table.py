"""Storage of a lake's ledger: a Delta table with one row per run.

Each version contains all rows, and a digest that reveals damage.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyarrow.fs import PyFileSystem

from nftsync.errors import StoreError
from nftsync.lake.delta import create_table, first_entries, open_table, sync_table
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.storage import Lake, StoredFile
from nftsync.store.runs import Counts

#: Properties of a later ledger: the number of its format, and the first version that reads it. Such
#: a ledger must have other columns, or another key for its digest.
_FORMAT, _NEEDED = "nftsync.format", "nftsync.needed"
#: The digest's key in a commit's metadata.
_DIGEST = "nftsync_rows"
_ENTRY = "the newest ledger entry"
_DAMAGED = f"{_ENTRY} is damaged, probably by a power cut"

Rows: TypeAlias = list[dict[str, Any]]


class LakeRun(msgspec.Struct, kw_only=True):
    """Row of the ledger: a run, with the columns of `sync_runs`.

    Attributes:
        plan: the SHA-256 of the request; empty: all tracked wallets.
        attempt: the number of takeovers.
        changed_from, changed_until: the first and last time of its changes; empty: none.
        manifest: pinned; None: not finished, or expired.
    """

    run_id: int
    kind: str = "sync"
    status: str = "running"
    started_at: str
    finished_at: str | None = None
    wallets_total: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    error: str | None = None
    driver: str | None = None
    folder: str = ""
    beat: int = 0
    buckets: int
    plan: str = ""
    provider: str = ""
    attempt: int = 0
    changed_from: str = ""
    changed_until: str = ""
    manifest: StoredFile | None = None

    @property
    def expired(self) -> bool:
        """Whether the run finished, but can no longer be read."""
        finished = self.driver is not None and self.status in {"ok", "partial"}
        return finished and self.manifest is None


_SUMS = Counts.__struct_fields__
_FIELDS = [x for y in (LakeRun, Counts) for x in msgspec.structs.fields(y) if x.name != "counts"]
_TYPES = {int: pa.int64(), float: pa.float64()}
_SCHEMA = pa.schema({x.name: _TYPES.get(x.type, pa.string()) for x in _FIELDS})


class _Added(msgspec.Struct):
    path: str


class _Action(msgspec.Struct, rename="camel"):
    """A line of an entry in Delta's log."""

    commit_info: dict[str, Any] | None = None
    add: _Added | None = None
    remove: _Added | None = None


_decode = msgspec.json.Decoder(_Action).decode


class LedgerTable:
    """The ledger's Delta table."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._table: DeltaTable | None = None
        self._known: tuple[int, Rows] = -1, []
        self.problem: str | None = None

    def read(self) -> list[LakeRun]:
        """Return all runs, oldest first, from the newest intact version."""
        if self._table is not None:
            return self.open()[1]
        return _runs_of(self.newest()[1])

    def newest(self) -> tuple[int, Rows]:
        """Return the newest intact version and its rows; `problem` tells if others follow.

        Each entry names the file of all its rows, so that no reader needs the entries before it:
        Delta would read dozens.
        """
        files, names = first_entries(self._lake, "runs")
        if not names:
            raise TableNotFoundError
        for name in reversed(names):
            version = int(PurePosixPath(name).stem)
            try:
                rows = self._rows(files, version)
            except (StoreError, OSError):
                self._refuse_other_format()
                if self._lake.folder is None:  # an object store never keeps part of an entry
                    raise
                continue
            if version or len(names) < 3:  # else, all entries with runs are damaged
                self.problem = None if name == names[-1] else _DAMAGED
                return version, rows
        raise self._lake.damaged("the ledger")

    def open(self) -> tuple[DeltaTable, list[LakeRun]]:
        """Open the newest version for a change; create a missing table.

        Reads only the entries since the last call.
        """
        if self._table is None:
            # Without retries: of two creations, the later one would add an entry.
            properties = CommitProperties(
                max_commit_retries=0, custom_metadata={_DIGEST: _digest_of([])}
            )
            self._table = create_table(self._lake, "runs", _SCHEMA, properties=properties)
        else:
            self._table.update_incremental()
        if (version := self._table.version()) != self._known[0]:
            self._known = version, self._rows(self._lake.files, version)
        return self._table, _runs_of(self._known[1])

    def write(self, table: DeltaTable, runs: list[LakeRun]) -> None:
        """Write the runs as a new version, and wait until it is on disk."""
        before, rows = table.version(), pa.Table.from_pylist([_row_of(x) for x in runs], _SCHEMA)
        # Without retries: on a table without rows, Delta would otherwise accept two changes.
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            commit_properties=CommitProperties(
                max_commit_retries=0, custom_metadata={_DIGEST: _digest_of(rows.to_pylist())}
            ),
        )
        if table.version() == before + 1:
            self._known = table.version(), rows.to_pylist()
        # A driver may not have synced the previous version.
        sync_table(self._lake, "runs", before - 1, table.file_uris())

    def _rows(self, files: PyFileSystem, version: int) -> Rows:
        """Return the rows of a version; raise an error if they are damaged."""
        with files.open_input_file(f"runs/_delta_log/{version:020}.json") as entry:
            lines = bytes(entry.read()).splitlines()
        try:
            actions = [_decode(line) for line in lines]
            table = _SCHEMA.empty_table()
            for path in [action.add.path for action in actions if action.add]:
                with files.open_input_file(f"runs/{path}") as file:
                    content = pa.BufferReader(file.read())
                # A thread that frees Python's bytes while Python exits would abort the process.
                table = pq.ParquetFile(content).read(use_threads=False)
            rows: Rows = table.to_pylist()
        except (ValueError, pa.ArrowException, msgspec.MsgspecError) as error:
            raise self._lake.damaged(_ENTRY) from error
        digests = [action.commit_info.get(_DIGEST) for action in actions if action.commit_info]
        # The last line may be lost: each entry but the first two removes a file.
        is_complete = version < 2 or any(action.remove for action in actions)
        if table.schema != _SCHEMA or digests != [_digest_of(rows)] or not is_complete:
            raise self._lake.damaged(_ENTRY)
        return rows

    def _refuse_other_format(self) -> None:
        """Raise an error if another version of nftsync wrote the ledger."""
        with suppress(*STORE_ERRORS):
            table = open_table(self._lake, "runs")
            if "versions" in pa.schema(table.schema()).names:
                raise StoreError(
                    f"{self._lake.url} is a lake of nftsync 0.5. Export it with nftsync 0.5"
                    " (`nftsync lake export`), and import the database into a new lake (`nftsync"
                    " lake import`)"
                )
            properties = table.metadata().configuration
            if (number := properties.get(_FORMAT)) is not None:
                raise StoreError(
                    f"{self._lake.url}: a newer nftsync wrote this lake (format {number}). Install"
                    f" nftsync {properties.get(_NEEDED, 'of that version')} or later"
                )


def _digest_of(rows: Rows) -> str:
    in_order = sorted(rows, key=lambda row: int(row["run_id"]))
    return hashlib.sha256(msgspec.json.encode(in_order, order="sorted")).hexdigest()


def _runs_of(rows: Rows) -> list[LakeRun]:
    return sorted((_run_of(row) for row in rows), key=lambda run: run.run_id)


def _row_of(run: LakeRun) -> dict[str, Any]:
    row = msgspec.structs.asdict(run)
    row |= msgspec.structs.asdict(row.pop("counts"))
    return row | {"manifest": msgspec.json.encode(row["manifest"]).decode()}


def _run_of(row: dict[str, Any]) -> LakeRun:
    row = dict(row)
    counts = Counts(**{name: row.pop(name) for name in _SUMS})
    manifest = msgspec.json.decode(row.pop("manifest"), type=StoredFile | None)
    return LakeRun(counts=counts, manifest=manifest, **row)
