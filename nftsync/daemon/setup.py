"""A replay, and full syncs beside it, made from settings; what `serve` and `replay` share."""

from __future__ import annotations

import threading
from contextlib import closing

from nftsync.errors import InputError, SettingsError
from nftsync.provider.client import Access
from nftsync.provider.routes import merged
from nftsync.pull.api import client_config
from nftsync.pull.plan import SyncRequest, read_wallets_file, register_all
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay.config import ReplayConfig, RunSync
from nftsync.settings import Settings
from nftsync.store.mirror import Mirror

__all__ = ["full_sync", "replay_config"]


def replay_config(settings: Settings) -> ReplayConfig:
    """All that a replay works with.

    Raises:
        SettingsError: no `base_url` is set, or a client cannot be made so.
    """
    client = client_config(settings)
    # One limit on requests at once for webhooks and syncs together.
    access = client.access(at_once=settings.concurrency)
    return ReplayConfig(
        client=client,
        access=access,
        routes=merged(settings.routes),
        # From the start: what a cut-off sync has read, it may have read before the webhook came.
        run_sync=full_sync(settings, access, resume=False),
        organization_id=settings.organization_id,
        concurrency=settings.concurrency,
    )


def full_sync(settings: Settings, access: Access, *, resume: bool) -> RunSync:
    """A sync of all tracked wallets, those of the wallets file among them.

    Args:
        settings: the settings.
        access: rate limiter and credentials, shared with the replay.
        resume: go on with one that was cut off, where there is one.
    """
    client = client_config(settings)

    def run(stopped: threading.Event) -> SyncResult:
        if settings.wallets_file is not None and settings.wallets_file != "-":
            try:
                lines = read_wallets_file(settings.wallets_file)
            except InputError as error:  # which by itself says that there is no wallet to read
                raise SettingsError(str(error)) from error
            with closing(Mirror(settings.database)) as mirror:
                register_all(mirror, lines)
        return sync_wallets(
            settings.database,
            client,
            SyncRequest(resume=resume),
            concurrency=settings.concurrency,
            progress=False,
            access=access,
            stopped=stopped,
        )

    return run
