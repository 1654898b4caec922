"""Storage of a lake's ledger: a Delta table with one row per run.

Each version contains all rows, and a digest that reveals damage.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from nftsync.errors import StoreError
from nftsync.lake.folder import TableLog, is_folder, sync_table
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.rows import STORED_NAMES
from nftsync.lake.storage import Lake, Versions
from nftsync.store.runs import Counts

#: Properties of a ledger in another format: its number, and the first version that reads it. A
#: ledger of format 1 has none. A ledger with other columns needs another format.
_FORMAT, _NEEDED = "nftsync.format", "nftsync.needed"
#: The digest's key in a commit's metadata.
_DIGEST = "nftsync_rows"
_DAMAGED = "the newest ledger entry is damaged, probably by a power cut"


class LakeRun(msgspec.Struct, kw_only=True):
    """Row of the ledger: a run, with the columns of `sync_runs`.

    Attributes:
        plan: the SHA-256 of the request; empty: all tracked wallets.
        start: the version of each table at the start.
        attempt: the number of takeovers.
        not_before: the time of the previous run's changes.
        versions: pinned, by table; None: not finished, or expired.
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
    start: Versions = {}
    attempt: int = 0
    applied_at: str | None = None
    not_before: str = ""
    approved_at: str = ""
    greatest_sequence: int = 0
    greatest_change: int = 0
    greatest_state: int = 0
    greatest_token_change: int = 0
    versions: Versions | None = None

    @property
    def expired(self) -> bool:
        """Whether the run finished, but can no longer be read."""
        finished = self.driver is not None and self.status in {"ok", "partial"}
        return finished and self.versions is None


_SUMS = Counts.__struct_fields__
_JSON = ("start", "versions")
_NAMES = {stored: name for name, stored in STORED_NAMES.items()}
GREATEST = ("greatest_sequence", "greatest_change", "greatest_state", "greatest_token_change")
_SCHEMA = pa.schema(
    {
        "run_id": pa.int64(),
        **dict.fromkeys(("kind", "status", "started_at", "finished_at"), pa.string()),
        "wallets_total": pa.int64(),
        **{name: pa.float64() if name == "seconds" else pa.int64() for name in _SUMS},
        **dict.fromkeys(("error", "driver"), pa.string()),
        **dict.fromkeys(("beat", "buckets"), pa.int64()),
        **dict.fromkeys(
            ("plan", "provider", "folder", *_JSON, "applied_at", "not_before", "approved_at"),
            pa.string(),
        ),
        **dict.fromkeys(("attempt", *(STORED_NAMES.get(x, x) for x in GREATEST)), pa.int64()),
    }
)


class _DamagedError(StoreError):
    """Damaged ledger."""


class LedgerTable:
    """The ledger's Delta table."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.problem: str | None = None

    def read(self) -> list[LakeRun]:
        """Return all runs, oldest first, from the newest intact version."""
        lake = self._lake
        try:
            return _runs_of(self._whole(lake.open_first("runs")))
        except (*STORE_ERRORS, _DamagedError):
            whole = self.newest_whole()
            if whole is None:
                raise
            self.refuse_gap(whole[0])
            self.problem = _DAMAGED
            return _runs_of(whole[1])

    def open(self) -> tuple[DeltaTable, list[LakeRun]]:
        """Open the newest version for a change; create a missing table."""
        table = self._lake.create("runs", _SCHEMA)
        return table, _runs_of(self._whole(table))

    def write(self, table: DeltaTable, runs: list[LakeRun]) -> None:
        """Write the runs as a new version, and wait until it is on disk."""
        before, rows = table.version(), pa.Table.from_pylist([_row_of(x) for x in runs], _SCHEMA)
        same = pa.schema(table.schema()).names == _SCHEMA.names
        # Without retries: on a table without rows, Delta would otherwise accept two changes.
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            schema_mode=None if same else "overwrite",
            commit_properties=CommitProperties(
                max_commit_retries=0, custom_metadata={_DIGEST: _digest_of(rows.to_pylist())}
            ),
        )
        if is_folder(self._lake.root):
            # A driver may not have synced the previous version, nor a vacuum its two versions.
            sync_table(Path(self._lake.root, "runs"), max(-1, before - 2), table.version())

    def newest_whole(self) -> tuple[int, list[dict[str, Any]]] | None:
        """Return the newest intact version and its rows."""
        if not is_folder(self._lake.root):
            return None
        versions = TableLog(Path(self._lake.root, "runs")).versions()
        for version in reversed(versions):
            if version == 0 and len(versions) > 2:
                return None  # all entries with runs are damaged
            try:
                return version, self._whole(self._lake.open("runs", version))
            except (*STORE_ERRORS, _DamagedError):
                continue
        return None

    def refuse_gap(self, whole: int) -> None:
        """Raise if an intact entry follows damage after version `whole`, unlike in a power cut."""
        log = TableLog(Path(self._lake.root, "runs"))
        if any(log.actions(x) is not None for x in log.versions() if x > whole + 1):
            raise StoreError(
                f"{self._lake.url}: entry {whole + 1} of the ledger or a checkpoint is damaged, but"
                " not the newest entry. `nftsync lake sync` repairs checkpoints; for an entry,"
                " restore the folder `runs` from a backup"
            )

    def _whole(self, table: DeltaTable) -> list[dict[str, Any]]:
        """Return the rows of a version; raise an error if they are damaged or newer."""
        properties = table.metadata().configuration
        if (number := properties.get(_FORMAT, "1")) != "1":
            raise StoreError(
                f"{self._lake.url}: a newer nftsync wrote this lake (format {number}). Install"
                f" nftsync {properties.get(_NEEDED, 'of that version')} or later"
            )
        rows: list[dict[str, Any]] = pa.table(table.scan()).to_pylist()
        if not is_folder(self._lake.root):
            return rows  # an object store never keeps part of an entry
        log = TableLog(Path(self._lake.root, "runs"))
        if not log.confirms(table.version(), _DIGEST, _digest_of(rows)):
            raise _DamagedError(
                f"{self._lake.url}: the newest ledger entry is damaged. Repair it: `nftsync lake"
                " sync`"
            )
        return rows


def _digest_of(rows: list[dict[str, Any]]) -> str:
    in_order = sorted(rows, key=lambda row: int(row["run_id"]))
    return hashlib.sha256(msgspec.json.encode(in_order, order="sorted")).hexdigest()


def _runs_of(rows: list[dict[str, Any]]) -> list[LakeRun]:
    return sorted((_run_of(row) for row in rows), key=lambda run: run.run_id)


def _row_of(run: LakeRun) -> dict[str, Any]:
    row = msgspec.structs.asdict(run)
    row |= msgspec.structs.asdict(row.pop("counts"))
    row |= {name: msgspec.json.encode(row[name]).decode() for name in _JSON}
    return {STORED_NAMES.get(name, name): value for name, value in row.items()}


def _run_of(row: dict[str, Any]) -> LakeRun:
    row = {_NAMES.get(name, name): value for name, value in row.items()}
    counts = Counts(**{name: row.pop(name) for name in _SUMS})
    return LakeRun(counts=counts, **row | {name: msgspec.json.decode(row[name]) for name in _JSON})
