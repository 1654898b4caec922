"""What commands and scripts call: a sync with given settings, and the runs of a lake."""

from __future__ import annotations

from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.run import Where, sync_lake
from nftsync.lake.storage import Lake
from nftsync.pull.api import client_config, removal_limits
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.settings import Settings


def sync_with(
    settings: Settings,
    lake: str,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    buckets: int | None = None,
    silence: float = 60.0,
    resume: bool = False,
    allow_removals: bool = False,
    progress: bool | None = None,
) -> SyncResult:
    """Read the wallets of the wallets file, or all that the lake tracks, into the lake.

    Raises:
        NftsyncError: nothing could be read at all, or the lake cannot be used.
    """
    wallets = collections = None
    if settings.wallets_file is not None:
        wallets = read_wallets_file(settings.wallets_file)
    if settings.collections_file is not None:
        collections = read_collections_file(settings.collections_file)
    request = SyncRequest(
        wallets=wallets,
        resume=resume,
        allow_removals=allow_removals,
        limits=removal_limits(settings),
        collections=collections,
    )
    where = Where(scheduler, workers, buckets, silence)
    return sync_lake(
        lake,
        client_config(settings),
        request,
        where,
        concurrency=settings.concurrency,
        progress=progress,
    )


def runs_of(lake: str) -> list[LakeRun]:
    """The runs of a lake, the oldest first.

    Raises:
        StoreError: there is no lake, or it cannot be read.
    """
    with explained(lake):
        ledger = Ledger(Lake(lake))
        runs = ledger.runs()
        ledger.warn()
        return runs
