"""Delta tables of a lake: opening and creating them, and their logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from nftsync.errors import InputError
from nftsync.lake.reasons import ADDRESSES
from nftsync.lake.storage import Lake
from nftsync.whole_files import sync_to_disk

_CONFIGURATION = {
    # Pinned versions stay readable until `lake compact` expires their run.
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.checkpointInterval": "10",
    # Limits the size of checkpoints; deletes no files.
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
#: Timeouts of the first request to an address; Delta's own are minutes.
_FIRST = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "3", "retry_timeout": "10s"}
#: A commit of the next version or none: a retry would follow another driver's version.
ONE_VERSION = CommitProperties(max_commit_retries=0)
#: Disks sync many files faster in parallel.
_SYNCS_AT_ONCE = 16


def open_table(lake: Lake, name: str, version: int | None = None) -> DeltaTable:
    """Open a table at a version, by default the newest."""
    return DeltaTable(f"{lake.root}/{name}", version=version)


def first_entries(lake: Lake, name: str) -> tuple[PyFileSystem, list[str]]:
    """Return files and the entries of a table's log, oldest first.

    Short timeouts let a wrong address fail within seconds.
    """
    try:
        files = PyFileSystem(DeltaStorageHandler(lake.root, _FIRST))
    except TableNotFoundError as error:
        if "Unknown scheme" in str(error):
            raise InputError(f"{lake.url} is not a lake address: {ADDRESSES}") from error
        raise
    infos = files.get_file_info(FileSelector(f"{name}/_delta_log", allow_not_found=True))
    return files, sorted(info.path for info in infos if info.path.endswith(".json"))


def create_table(
    lake: Lake,
    name: str,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: CommitProperties = ONE_VERSION,
) -> DeltaTable:
    """Open a table; create it if it is missing."""
    with suppress(TableNotFoundError):
        return open_table(lake, name)
    try:
        return DeltaTable.create(
            f"{lake.root}/{name}",
            schema=schema,
            partition_by=list(partition_by),
            configuration=_CONFIGURATION,
            commit_properties=properties,
        )
    except DeltaError:  # another process has just created it
        return open_table(lake, name)


def sync_table(lake: Lake, name: str, since: int, files: Collection[str] = ()) -> None:
    """Wait until a folder's table has its versions after `since` and some files on disk."""
    if lake.folder is None:
        return
    table = lake.folder / name
    new = {Path(unquote(file)) for file in files}
    for path in (table / "_delta_log").iterdir():
        version = path.name[:20]
        if version == "_last_checkpoint" or (version.isdigit() and int(version) > since):
            new.add(path)
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as threads:
        list(threads.map(sync_to_disk, new))
        # Folders come after the files in them.
        list(threads.map(sync_to_disk, {table.parent, table, *(file.parent for file in new)}))
