"""Setup and repair of a lake."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from nftsync.errors import StoreError
from nftsync.lake.folder import TableLog, is_folder, locked, make_folder
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.rows import BUCKET, TABLES, schema_of
from nftsync.lake.staged import STEPS
from nftsync.lake.storage import ONE_VERSION, Lake, Versions

_log = logging.getLogger(__name__)


def repair_lake(lake: Lake) -> None:
    """Set aside the damaged files of a local lake that no run has pinned."""
    root = Path(lake.root)
    if not is_folder(lake.root) or not root.is_dir():
        return
    with locked(root):
        pinned = _repair_ledger(lake, TableLog(root / "runs"))
        for name in TABLES:
            log = TableLog(root / name)
            log.mend(pinned[name] if name in pinned else log.newest_checkpoint())
            if name in pinned:
                lake.table(name, pinned[name])  # raises if it is damaged


def _repair_ledger(lake: Lake, log: TableLog) -> Versions:
    """Set aside damaged newest ledger entries; return the versions of the last finished run."""
    table, versions = LedgerTable(lake), log.versions()
    if not versions:
        return {}
    whole = table.newest_whole()
    if whole is None or whole[0] < versions[-1]:
        log.set_aside(versions[-1] + 1, -1)  # only a checkpoint may be damaged
        whole = table.newest_whole()
    if whole is None and versions == [0]:
        log.set_aside(0, -1)  # a power cut during creation
        return {}
    if whole is None:
        raise StoreError(
            f"{lake.url}: the ledger is damaged. Restore the folder `runs` from a backup, or sync"
            " into a new lake"
        )
    if whole[0] < versions[-1]:
        table.refuse_gap(whole[0])
        log.set_aside(whole[0] + 1, whole[0])
        _log.warning(
            "%s: the newest ledger entry was damaged, probably by a power cut. It is set aside, and"
            " the entry before it is used.",
            lake.url,
        )
    pinned = [run.versions for run in table.read() if run.versions is not None]
    return pinned[-1] if pinned else {}


def create_tables(lake: Lake) -> None:
    """Create a lake's missing tables, and repair damage by a power cut."""
    if is_folder(lake.root):
        make_folder(Path(lake.root, STEPS))  # before workers, which may have another umask
        repair_lake(lake)
    try:
        lake.open_first("runs")
        new = False
    except TableNotFoundError:
        new = True
    with ThreadPoolExecutor(len(TABLES)) as threads:
        list(threads.map(lambda name: lake.create(name, schema_of(name), [BUCKET]), TABLES))
    if new:
        _check_conditional_puts(lake)


#: A table that syncs do not write.
_CHECKED = "resources"
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
                [], "append", table.schema(), [BUCKET], commit_properties=ONE_VERSION
            )
            return True
        return False

    for _ in range(_ROUNDS):
        rivals = [lake.open(_CHECKED) for _ in range(_RIVALS)]
        with ThreadPoolExecutor(_RIVALS) as threads:
            committed = sum(threads.map(commits, rivals))
        if committed > 1:
            raise StoreError(
                f"{lake.url}: the store lets one writer overwrite another writer's commit. A lake"
                " needs a store with conditional puts (If-None-Match)"
            )
