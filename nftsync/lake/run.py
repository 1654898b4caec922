"""Entry points of a lake: a sync, the approval of removals, the list of runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from nftsync.lake.cluster import connected
from nftsync.lake.driver import Driver
from nftsync.lake.folder import private_files
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import Lake
from nftsync.pull.api import client_config, removal_limits
from nftsync.pull.list_files import read_collections_file, read_wallets_file
from nftsync.pull.result import SyncResult
from nftsync.pull.run import SyncRequest
from nftsync.settings import Settings
from nftsync.terminal import interruptible
from nftsync.threads import Failures

_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True)
class Where:
    """Where a run's work is done.

    Attributes:
        scheduler: the address of a Dask scheduler; None: workers are started on this machine.
        workers: how many are started; None: one per processor.
        buckets: into how many a new lake is divided; None: 64.
        silence: a driver that shows no sign for so long, in seconds, is gone.
    """

    scheduler: str | None = None
    workers: int | None = None
    buckets: int | None = None
    silence: float = 60.0


def sync_lake(
    settings: Settings,
    lake: str,
    where: Where,
    *,
    resume: bool = False,
    allow_removals: bool = False,
    progress: bool | None = None,
) -> SyncResult:
    """Read the wallets of the wallets file, or all that the lake tracks, into the lake.

    Args:
        settings: how to read the provider, and which wallets.
        lake: its folder or address.
        where: where the work is done.
        resume: resume the newest run, if it was interrupted.
        allow_removals: approve all removals.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        InputError: there is nothing to read, the lake is divided otherwise, or the run to resume
            read another provider.
        SettingsError: the provider cannot be read with these settings.
        SyncRunning: another driver is at work, or has taken this run over.
        StoreError: the lake cannot be used, or the scheduler cannot be reached.
    """
    wallets = collections = None
    if settings.wallets_file is not None:
        wallets = read_wallets_file(settings.wallets_file)
    if settings.collections_file is not None:
        collections = read_collections_file(settings.collections_file)
    config = client_config(settings)
    request = SyncRequest(
        wallets=wallets,
        resume=resume,
        allow_removals=allow_removals,
        limits=removal_limits(settings),
        collections=collections,
    )

    def begin(ledger: Ledger, interrupted: threading.Event) -> LakeRun:
        return ledger.begin(
            _digest(request),
            where.buckets,
            where.silence,
            provider=_normalized(config.base_url),
            resume=resume,
            interrupted=interrupted,
        )

    with _driving(lake, where, request, progress, begin) as driver, driver.paced(config):
        return driver.run(config, settings.concurrency)


def approve_in_lake(
    lake: str, wallets: list[str] | None, where: Where, *, progress: bool | None = None
) -> SyncResult:
    """Apply the removals that a lake holds for review, by a run of its own.

    Args:
        lake: its folder or address.
        wallets: of these wallets; None: of all, and what was removed so far no longer counts.
        where: where the work is done.
        progress: show bars; None shows them on a terminal and in a notebook.

    Raises:
        SyncRunning: another driver is at work, or has taken this run over.
        StoreError: the lake cannot be used, or the scheduler cannot be reached.
    """
    request = SyncRequest(allow_removals=wallets is None)

    def begin(ledger: Ledger, interrupted: threading.Event) -> LakeRun:
        return ledger.begin("", None, where.silence, "approval", interrupted=interrupted)

    with _driving(lake, where, request, progress, begin) as driver:
        return driver.approve(wallets)


@contextmanager
def _driving(
    lake: str,
    where: Where,
    request: SyncRequest,
    progress: bool | None,
    begin: Callable[[Ledger, threading.Event], LakeRun],
) -> Iterator[Driver]:
    """Begin a run, and hold its lake and the cluster for a block."""
    with (
        explained(lake),
        private_files(),
        interruptible() as interrupted,
        # First, so that a wrong address begins no run.
        connected(where.scheduler, where.workers, interrupted) as client,
    ):
        tables = Lake(lake)
        create_tables(tables)
        ledger = Ledger(tables)
        run = begin(ledger, interrupted)
        failures = Failures()
        with ledger.renewing(run, where.silence, failures.of("the heartbeat")) as lost:
            yield Driver(
                tables, ledger, run, client, request, lost, failures, interrupted, progress
            )


def _digest(request: SyncRequest) -> str:
    """What tells a run that was asked for the same from others."""
    if request.wallets is None and not request.allow_removals:
        return ""
    wallets = sorted({line.wallet_id: line for line in request.wallets or ()}.values())
    asked = request.wallets is None, request.allow_removals, wallets
    return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()


def _normalized(base_url: str) -> str:
    """Return one spelling of a provider's address."""
    parts = urlsplit(base_url)
    origin = f"{parts.scheme}://{parts.netloc}".lower()
    return origin.removesuffix(_PORTS.get(parts.scheme, "")) + parts.path.rstrip("/")


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
