"""Entry points of a lake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import msgspec

from nftsync.errors import StoreError
from nftsync.lake.cluster import connected
from nftsync.lake.driver import Driver
from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.manifest import BucketEntry, Manifest, read_manifest
from nftsync.lake.reasons import STORE_ERRORS, explained
from nftsync.lake.setup import create_lake
from nftsync.lake.storage import Lake
from nftsync.pull.api import client_config, heartbeat, removal_limits
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.pull.plan import SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.settings import Settings
from nftsync.terminal import interruptible
from nftsync.threads import Failures

_PORTS = {"http": ":80", "https": ":443"}
#: Most wallets that one worker reads as fast as several, because each takes seconds to start.
_FEW_WALLETS = 500


@dataclass(frozen=True)
class ClusterOptions:
    """Options of the Dask cluster and the lake.

    Without the address of a `scheduler`, workers start on this machine: by default, one for few
    wallets, or one per processor. The number of wallets decides the default of `buckets`. Without
    `publish`, the run leaves the Delta tables as they are.
    """

    scheduler: str | None = None
    workers: int | None = None
    buckets: int | None = None
    takeover_after: float = 60.0
    publish: bool = True


def sync_lake(
    settings: Settings,
    lake: str,
    options: ClusterOptions,
    *,
    resume: bool = False,
    allow_removals: bool = False,
    progress: bool | None = None,
) -> SyncResult:
    """Sync the wallets of the wallets file, or all wallets that the lake tracks.

    `resume` resumes the newest run if it was interrupted; `allow_removals` approves all removals.

    Raises:
        InputError: no wallets to read, another number of buckets, or another provider.
        SettingsError: the provider cannot be read with these settings.
        StoreError: the lake or the scheduler cannot be used.
    """
    with heartbeat(settings) as reported:
        request = _request(settings)._replace(resume=resume, allow_removals=allow_removals)
        config = client_config(settings)
        begin = partial(
            Ledger.begin,
            plan=_digest(request),
            wallets=None if request.wallets is None else len(request.wallets),
            buckets=options.buckets,
            provider=_normalized(config.base_url),
            resume=resume,
        )
        with _driving(lake, options, request, progress, begin) as driver:
            reported.start()
            result = driver.run(config, settings.concurrency)
        reported.problem = result.problem
    return result


def _request(settings: Settings) -> SyncRequest:
    wallets, collections = settings.wallets_file, settings.collections_file
    return SyncRequest(
        wallets=read_wallets_file(wallets) if wallets else None,
        collections=read_collections_file(collections) if collections else None,
        limits=removal_limits(settings),
    )


def approve_in_lake(
    lake: str, wallets: list[str] | None, options: ClusterOptions, *, progress: bool | None = None
) -> SyncResult:
    """Apply the removals that a lake holds for review, in a separate run.

    `wallets` None approves all; earlier removals then no longer count toward the limit.
    """
    request = SyncRequest(allow_removals=wallets is None)
    begin = partial(Ledger.begin, plan="", buckets=None, kind="approval")
    with _driving(lake, options, request, progress, begin) as driver:
        return driver.approve(wallets)


@contextmanager
def _driving(
    lake: str,
    options: ClusterOptions,
    request: SyncRequest,
    progress: bool | None,
    begin: Callable[..., LakeRun],
) -> Iterator[Driver]:
    with explained(lake), private_files(), interruptible() as interrupted, ExitStack() as stack:
        files = Lake(lake)
        ledger, workers = Ledger(files), options.workers
        if options.scheduler is None and workers is None:
            workers = 1 if _wallets_of(ledger, request) <= _FEW_WALLETS else None
        # Connect first: a wrong address must not start a run.
        client = stack.enter_context(connected(options.scheduler, workers, interrupted))
        create_lake(files)
        run = begin(ledger, timeout=options.takeover_after, interrupted=interrupted)
        failures = Failures()
        with ledger.heartbeat(run, options.takeover_after, failures.of("the heartbeat")) as lost:
            earlier = [row for row in ledger.runs() if row.run_id < run.run_id]
            pinned = [row.manifest for row in earlier if row.manifest is not None]
            base = Manifest(buckets=[BucketEntry() for _ in range(run.buckets)])
            if pinned:
                base = read_manifest(files, pinned[-1])
            events = lost, failures, interrupted, progress
            yield Driver(
                files, ledger, run, earlier, base, client, request, options.publish, *events
            )


def _wallets_of(ledger: Ledger, request: SyncRequest) -> int:
    """Return the number of wallets to read, or the most of any earlier run."""
    if request.wallets is not None:
        return len(request.wallets)
    with suppress(StoreError, *STORE_ERRORS):  # a new or damaged lake
        return max((run.wallets_total for run in ledger.runs()), default=0)
    return 0


def _digest(request: SyncRequest) -> str:
    """Return a digest that equal requests share; empty: all tracked wallets."""
    if request.wallets is None and not request.allow_removals:
        return ""
    wallets = sorted({line.wallet_id: line for line in request.wallets or ()}.values())
    asked = request.wallets is None, request.allow_removals, wallets
    return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()


def _normalized(base_url: str) -> str:
    parts = urlsplit(base_url)
    origin = f"{parts.scheme}://{parts.netloc}".lower()
    return origin.removesuffix(_PORTS.get(parts.scheme, "")) + parts.path.rstrip("/")


def runs_of(lake: str) -> list[LakeRun]:
    """Return the runs of a lake, oldest first."""
    with explained(lake):
        ledger = Ledger(Lake(lake))
        runs = ledger.runs()
        ledger.warn()
        return runs
