"""Setup of a lake: create missing tables, repair its folder after a power cut."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from nftsync.errors import StoreError
from nftsync.lake.folder import TableLog, is_folder, locked, make_folder
from nftsync.lake.ledger_table import LedgerTable
from nftsync.lake.rows import BUCKET, TABLES, schema_of
from nftsync.lake.storage import ADDED_IN, STAGED, Lake, Versions

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


#: So many write at once, when a lake is new.
_RIVALS = 4
#: Seconds that they wait for each other.
_TOGETHER = 10.0


def create_tables(lake: Lake) -> None:
    """Make the tables of a lake that are missing, and repair what a power cut left of others.

    Raises:
        InputError: its address is none.
        StoreError: it cannot be used, or the store does not keep writers apart.
    """
    if is_folder(lake.root):
        make_folder(Path(lake.root))
        repair_lake(lake)
    try:
        lake.open_first("runs")
        new = False
    except TableNotFoundError:
        new = True
    for name, table in TABLES.items():
        schema = schema_of(name)
        if table.log:
            schema = schema.append(pa.field(ADDED_IN, pa.int64()))
        lake.create(name, schema, [BUCKET])
    lake.create("staged", STAGED, ["run_id", "step"])
    if new:
        _let_rivals_write(lake)


def _let_rivals_write(lake: Lake) -> None:
    """Have several write the same version at once, of whom the store must refuse all but one.

    One that passes over the condition of a put would lose commits in silence.
    """
    rivals = {f"rival/{uuid4().hex}": lake.open("staged") for _ in range(_RIVALS)}
    together = threading.Barrier(_RIVALS, timeout=_TOGETHER)

    def write(name: str) -> None:
        with suppress(threading.BrokenBarrierError):  # a rival could not be started in time
            together.wait()
        write_deltalake(
            rivals[name],
            STAGED.empty_table(),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(name, 1)]),
        )

    with ThreadPoolExecutor(_RIVALS) as threads:
        list(threads.map(write, rivals))
    newest = lake.look("staged")
    if any(newest.transaction_version(name) is None for name in rivals):
        raise StoreError(
            f"{lake.url}: the store lets one writer overwrite what another has committed; a lake"
            " needs one that knows conditional puts (If-None-Match)"
        )
