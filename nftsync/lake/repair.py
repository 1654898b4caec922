"""Repair of a lake's folder after a power cut, so that the next run can start."""

from __future__ import annotations

import logging
from pathlib import Path

from nftsync.errors import StoreError
from nftsync.lake.folder import TableLog, is_folder, locked
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.rows import TABLES
from nftsync.lake.storage import Lake, Versions

_log = logging.getLogger(__name__)


def repair_lake(lake: Lake) -> None:
    """Set aside the damaged files of a folder that no run has pinned.

    A driver that is alive meanwhile loses nothing: its own entries are whole.

    Raises:
        StoreError: older entries of the ledger are damaged.
    """
    root = Path(lake.root)
    if not is_folder(lake.root) or not root.is_dir():
        return
    with locked(root):
        pinned = _repair_ledger(lake, TableLog(root / "runs"))
        for name in (*TABLES, "staged"):
            log = TableLog(root / name)
            floor = pinned[name] if name in pinned else log.newest_checkpoint()
            log.mend(floor)


def _repair_ledger(lake: Lake, log: TableLog) -> Versions:
    """Set aside the ledger's newest entries, if damaged; what the newest finished run pinned."""
    table, versions = LedgerTable(lake), log.versions()
    if not versions:
        return {}
    whole = table.newest_whole()
    if whole is None or whole[0] < versions[-1]:
        log.set_aside(versions[-1] + 1, -1)  # a damaged checkpoint may be all
        whole = table.newest_whole()
    if whole is None and versions == [0]:
        log.set_aside(0, -1)  # a power cut while the lake was made
        return {}
    if whole is None:
        raise StoreError(
            f"{lake.url}: its ledger is damaged: restore its folder `runs` from a backup, or sync"
            " into a new lake"
        )
    if whole[0] < versions[-1]:
        log.set_aside(whole[0] + 1, whole[0])
        _log.warning(
            "%s: the newest entry of its ledger was damaged, as a power cut may leave it; it is set"
            " aside, and the entry before counts.",
            lake.url,
        )
    pinned = [run.versions for run in table.read() if run.versions is not None]
    return pinned[-1] if pinned else {}
