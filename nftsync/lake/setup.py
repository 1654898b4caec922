"""Setup and repair of a lake."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from nftsync.errors import StoreError
from nftsync.lake.bucket import BUCKETS
from nftsync.lake.delta import ONE_VERSION, create_table, first_entries, open_table
from nftsync.lake.folder import locked, make_folder, set_aside
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.manifest import MANIFESTS
from nftsync.lake.reasons import STORE_ERRORS
from nftsync.lake.steps import STEPS
from nftsync.lake.storage import Lake
from nftsync.lake.tables import PUBLISHED

_log = logging.getLogger(__name__)


def repair_lake(lake: Lake) -> None:
    """Set aside the newest entries of a local lake's ledger if a power cut damaged them."""
    if lake.folder is not None and lake.folder.is_dir():
        with locked(lake.folder), suppress(TableNotFoundError):
            _repair_ledger(lake, lake.folder / "runs" / "_delta_log")


def _repair_ledger(lake: Lake, log: Path) -> None:
    table = LedgerTable(lake)
    try:
        version = table.newest()[0]
    except StoreError:
        if len([*log.glob("*.json")]) > 1:
            raise
        set_aside(log, -1)  # a power cut during creation
        return
    if table.problem is None:
        with suppress(*STORE_ERRORS):
            open_table(lake, "runs")
            return
    set_aside(log, version)
    open_table(lake, "runs")  # fails if an earlier entry is damaged
    if table.problem is not None:
        _log.warning(
            "%s: the newest ledger entry was damaged, probably by a power cut. It is set aside, and"
            " the entry before it is used.",
            lake.url,
        )


def create_lake(lake: Lake) -> None:
    """Create a lake, or repair damage by a power cut."""
    if lake.folder is not None:
        # Before workers, which may have another umask.
        for name in (BUCKETS, MANIFESTS, STEPS, *PUBLISHED):
            make_folder(lake.folder / name)
        repair_lake(lake)
    if not first_entries(lake, "runs")[1]:
        _check_conditional_puts(lake)


#: Threads that commit at once in a new lake, and how often: on a busy machine, they may take turns.
_RIVALS, _ROUNDS = 4, 3
#: Seconds for all threads to start.
_TOGETHER = 10.0


def _check_conditional_puts(lake: Lake) -> None:
    """Commit versions from several threads at once; the store must refuse all but one of each.

    A store that ignores the condition would lose commits silently.
    """
    together = threading.Barrier(_RIVALS, timeout=_TOGETHER)

    def commits(table: DeltaTable) -> bool:
        with suppress(threading.BrokenBarrierError):  # a thread did not start in time
            together.wait()
        with suppress(CommitFailedError):
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=ONE_VERSION
            )
            return True
        return False

    tested = f"{STEPS}/{uuid4().hex}"  # a compaction deletes what an interruption leaves
    create_table(lake, tested, pa.schema({"column": pa.int64()}))
    for _ in range(_ROUNDS):
        rivals = [open_table(lake, tested) for _ in range(_RIVALS)]
        with ThreadPoolExecutor(_RIVALS) as threads:
            committed = sum(threads.map(commits, rivals))
        if committed > 1:
            raise StoreError(
                f"{lake.url}: the store lets one writer overwrite another writer's commit. A lake"
                " needs a store with conditional puts (If-None-Match)"
            )
    lake.drop(tested)
