"""Configuration and result of a replay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from nftsync.provider.config import ClientConfig
from nftsync.provider.webhooks import Routes
from nftsync.pull.guard import RemovalLimits
from nftsync.pull.result import SyncResult
from nftsync.store.database import BUSY_SECONDS
from nftsync.text import counted

if TYPE_CHECKING:
    from nftsync.provider.client import Access

#: Syncs all tracked wallets, until the event is set.
RunSync: TypeAlias = Callable[[threading.Event], SyncResult]
#: Counts of a replay: webhooks by end state, and reads.
COUNTS = ("done", "failed", "dead", "unrouted", "quarantined", "fetches")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Intervals and timeouts of a replay, in seconds.

    `poll` is for an inbox without a notification. `recheck` is the delay of a second read, because
    the first response may predate the webhook; `late_check` finds webhooks deferred by a wrong
    clock. `busy_sync`, `failed_sync` and `sync_check` are delays of requested syncs. `decide` is
    the longest wait of reads with removals.
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
    decide: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Configuration of a replay.

    `access` is shared with the process's syncs. Webhooks for another `organization_id` are
    quarantined. `max_objects` may be in progress; of the unknown wallets and tokens that an object
    names, at most `max_unknown` are read.
    """

    client: ClientConfig
    access: Access
    routes: Routes
    run_sync: RunSync
    organization_id: str | None = None
    concurrency: int = 16
    max_objects: int = 512
    max_unknown: int = 1_000
    limits: RemovalLimits = field(default_factory=RemovalLimits)
    timing: Timing = Timing()


class ReplayResult(msgspec.Struct, kw_only=True):
    """Webhooks by end state, and the cost of this replay.

    Attributes:
        fetches: reads of any kind.
        reads_held: reads whose removals are held for review; their webhooks are done.
        error: why the replay ended early (the provider is down or refuses), or None.
    """

    done: int = 0
    failed: int = 0
    dead: int = 0
    unrouted: int = 0
    quarantined: int = 0
    fetches: int = 0
    seconds: float = 0.0
    reads_held: int = msgspec.field(default=0, name="held")
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        if self.error is None:
            del value["error"]
        return value

    def summary(self) -> str:
        counts = {
            "done": self.done,
            "failed (will be retried)": self.failed,
            "dead (attempts used up)": self.dead,
            "without a route": self.unrouted,
            "quarantined": self.quarantined,
        }
        named = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        idle = "none were due" if self.error is None else "none were processed"
        return (
            f"Webhooks: {named or idle}; {counted(self.fetches, 'read')} in {self.seconds:.1f} s."
        )
