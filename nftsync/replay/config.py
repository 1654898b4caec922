"""The configuration and the result of a replay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Routes
from nftsync.pull.removal_guard import RemovalLimits
from nftsync.pull.result import SyncResult
from nftsync.store.database import BUSY_SECONDS
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.provider.access import Access

#: Makes a sync of all tracked wallets, until the event is set.
RunSync: TypeAlias = Callable[[threading.Event], SyncResult]
#: What a replay counts: webhooks by the state they came to, and reads.
COUNTS = ("done", "failed", "dead", "unrouted", "quarantined", "fetches")


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
        busy: how long another process may keep the database locked.
        judge: reads that show something to be gone wait at most so long for others to be judged
            together with.
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
    busy: float = BUSY_SECONDS
    judge: float = 1.0


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
        most_unknown: so many wallets and tokens that the mirror does not know are read at most
            because one object names them.
        limits: how much may vanish within 24 hours.
        timing: how long it waits for what.
    """

    client: ClientConfig
    access: Access
    routes: Routes
    run_sync: RunSync
    organization_id: str | None = None
    concurrency: int = 16
    most_objects: int = 512
    most_unknown: int = 1_000
    limits: RemovalLimits = field(default_factory=RemovalLimits)
    timing: Timing = Timing()


class ReplayResult(msgspec.Struct, kw_only=True):
    """Webhooks by the state they ended this replay in, and what that took.

    Attributes:
        done: worked off.
        failed: will be tried again.
        dead: have used up their attempts.
        unrouted: no route for their type.
        quarantined: of another organization.
        fetches: reads made, of whatever kind.
        seconds: how long it took.
        held: reads that show more to be gone than was believed; their webhooks are done.
        error: why it ended early (the provider is down or refuses), or None.
    """

    done: int = 0
    failed: int = 0
    dead: int = 0
    unrouted: int = 0
    quarantined: int = 0
    fetches: int = 0
    seconds: float = 0.0
    held: int = 0
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The value that `replay --json` prints."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        if self.error is None:
            del value["error"]
        return value

    def summary(self) -> str:
        """The result in a line for a person."""
        counts = {
            "done": self.done,
            "failed (will be tried again)": self.failed,
            "dead (attempts used up)": self.dead,
            "without a route": self.unrouted,
            "quarantined": self.quarantined,
        }
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        idle = "none were due" if self.error is None else "none were worked off"
        return (
            f"Webhooks: {named or idle}; {counted(self.fetches, 'read')} in {self.seconds:.1f} s."
        )
