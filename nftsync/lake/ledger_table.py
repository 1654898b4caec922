"""The Delta table behind a lake's ledger: one row per run.

Each version has all rows and a digest of them, so damage to a version is detected.
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

#: The name of the digest in what Delta records with a version.
_DIGEST = "nftsync_rows"
_DAMAGED = "the newest entry of its ledger is damaged, as a power cut may leave it"


class LakeRun(msgspec.Struct, kw_only=True):
    """A row of the ledger: a run, the columns of `sync_runs` among them.

    Attributes:
        driver: who drives it, a random name.
        beat: grows while its driver lives.
        buckets: into how many the lake is divided.
        plan: the SHA-256 of what it was asked for; blank: all tracked wallets.
        provider: the provider's address, as one spelling; blank: unknown.
        start: the version of each table that it begins from, as the run before pinned it.
        attempt: how often its writing was begun anew; by each driver of its own accord, as nobody
            knows what the last one's workers still write, and under which settings.
        applied_at: the time of everything that it changes.
        not_before: the time of what the run before has changed.
        approved_at: when the removals so far were approved; blank: never.
        greatest_sequence, greatest_change, greatest_state, greatest_token_change: the greatest
            numbers that were given.
        versions: the version of each table that it pinned; None: it has not finished.
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
    def let_go(self) -> bool:
        """It was a run of this lake that could be read, and no longer can."""
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
            ("plan", "provider", *_JSON, "applied_at", "not_before", "approved_at"), pa.string()
        ),
        **dict.fromkeys(("attempt", *(STORED_NAMES.get(x, x) for x in GREATEST)), pa.int64()),
    }
)


class _DamagedError(StoreError):
    """A version of the ledger is damaged."""


class LedgerTable:
    """The ledger of a lake, as Delta stores it.

    Attributes:
        problem: a damage that was passed over, or None.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.problem: str | None = None

    def read(self) -> list[LakeRun]:
        """Return all runs, the oldest first, from the newest undamaged version.

        Raises:
            StoreError: no version of it can be read.
        """
        lake = self._lake
        try:
            return _runs_of(self._whole(lake.open_first("runs")))
        except (*STORE_ERRORS, _DamagedError):
            whole = self.newest_whole()
            if whole is None:
                raise
            self.problem = _DAMAGED
            return _runs_of(whole[1])

    def open(self) -> tuple[DeltaTable, list[LakeRun]]:
        """Open the newest version to change it; a missing table is made.

        Raises:
            StoreError: it is damaged.
        """
        table = self._lake.create("runs", _SCHEMA)
        return table, _runs_of(self._whole(table))

    def write(self, table: DeltaTable, runs: list[LakeRun]) -> None:
        """Write the runs as a new version, on disk before it returns.

        Raises:
            CommitFailedError: there is a newer version than the one that was opened.
        """
        before, rows = table.version(), pa.Table.from_pylist([_row_of(x) for x in runs], _SCHEMA)
        same = pa.schema(table.schema()).names == _SCHEMA.names
        # A change is of the version that was read, or it is none: where the table has no rows yet,
        # Delta would otherwise let two through.
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
            # The version before may be another driver's, which has not synced it so far.
            sync_table(Path(self._lake.root, "runs"), before - 1, table.version())

    def newest_whole(self) -> tuple[int, list[dict[str, Any]]] | None:
        """Return the newest version in a folder that is whole, with its rows, if there is one."""
        if not is_folder(self._lake.root):
            return None
        versions = TableLog(Path(self._lake.root, "runs")).versions()
        for version in reversed(versions):
            if version == 0 and len(versions) > 2:
                return None  # there were runs, of which nothing is left
            try:
                return version, self._whole(self._lake.open("runs", version))
            except (*STORE_ERRORS, _DamagedError):
                continue
        return None

    def _whole(self, table: DeltaTable) -> list[dict[str, Any]]:
        """Return the rows of a version.

        Raises:
            StoreError: the version is damaged.
        """
        rows: list[dict[str, Any]] = pa.table(table.scan()).to_pylist()
        if not is_folder(self._lake.root):
            return rows  # an object store has an entry whole or not at all
        actions = TableLog(Path(self._lake.root, "runs")).actions(table.version()) or []
        commit = next((each["commitInfo"] for each in actions if "commitInfo" in each), None)
        digest = _digest_of(rows)
        # A version that an earlier nftsync wrote has no digest.
        if commit is None or commit.get(_DIGEST, digest) != digest:
            raise _DamagedError(
                f"{self._lake.url}: the newest entry of its ledger is damaged: run `nftsync lake"
                " sync`, which repairs it"
            )
        return rows


def _digest_of(rows: list[dict[str, Any]]) -> str:
    """Return the SHA-256 of rows, whatever their order."""
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
