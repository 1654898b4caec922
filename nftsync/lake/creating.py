"""A lake is made or repaired: its tables, on a store that keeps writers apart."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from nftsync.errors import StoreError
from nftsync.lake.folder import is_folder, make_folder
from nftsync.lake.repair import repair_lake
from nftsync.lake.rows import BUCKET, TABLES, schema_of
from nftsync.lake.storage import ADDED_IN, STAGED, Lake

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
