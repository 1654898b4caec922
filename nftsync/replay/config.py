"""What a replay works with: the provider, the routes, a sync of all wallets, and its timing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nftsync.provider.client import Access, ClientConfig
from nftsync.provider.routes import Routes
from nftsync.pull.result import SyncResult

__all__ = ["ReplayConfig", "RunSync", "Timing"]

#: Makes a sync of all tracked wallets, until the event is set.
RunSync: TypeAlias = Callable[[threading.Event], SyncResult]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long a replay waits for what, in seconds.

    Attributes:
        poll: how often the inbox is looked at when nobody says that something came.
        read_timeout: the longest wait for a read before other things are seen to.
        renew: how often the lease is renewed.
        quiet: after so much quiet a run is over.
        restart: until it begins again after trouble with the database.
        recheck: until an object that had not changed is read once more: what answered may have
            been behind what announced the change.
        first_pause: how long a provider that is down is left alone at first; doubled each time.
        longest_pause: the bound of that.
        first_deferral: how long one object that is refused waits at first; doubled each time.
        longest_deferral: the bound of that.
        late_check: how often webhooks are looked for that a wrong clock has deferred.
        busy_sync: until a sync is tried again that another sync kept from running.
        failed_sync: until a sync is tried again that failed.
        sync_check: a webhook that the next sync is too early for is looked at again after so long
            at the latest; a clock that was wrong may have said when it is due.
    """

    poll: float = 0.5
    read_timeout: float = 0.02
    renew: float = 5.0
    quiet: float = 5.0
    restart: float = 3.0
    recheck: float = 5.0
    first_pause: float = 1.0
    longest_pause: float = 60.0
    first_deferral: float = 5.0
    longest_deferral: float = 900.0
    late_check: float = 30.0
    busy_sync: float = 10.0
    failed_sync: float = 60.0
    sync_check: float = 3_600.0


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """What a replay works with.

    Attributes:
        client: how to read the provider.
        access: rate limit and credentials, shared with the process's syncs.
        routes: which reads follow on a type.
        run_sync: makes a sync of all tracked wallets.
        organization_id: webhooks of others are quarantined; None: there is no such check.
        concurrency: reads at once.
        most_objects: objects in hand at most.
        timing: how long it waits for what.
    """

    client: ClientConfig
    access: Access
    routes: Routes
    run_sync: RunSync
    organization_id: str | None = None
    concurrency: int = 16
    most_objects: int = 512
    timing: Timing = Timing()
