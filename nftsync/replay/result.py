"""What a replay came to: the object that `replay --json` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from nftsync.store.inbox import WebhookState

__all__ = ["ReplayResult"]

_COUNTS = ("done", "failed", "dead", "unrouted", "quarantined", "fetches")


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
        error: why it ended early (the provider is down or refuses), or None.
    """

    done: int = 0
    failed: int = 0
    dead: int = 0
    unrouted: int = 0
    quarantined: int = 0
    fetches: int = 0
    seconds: float = 0.0
    error: str | None = None

    def count(self, counts: dict[WebhookState, int]) -> None:
        """Add webhooks that were settled; those given back are none."""
        for state, count in counts.items():
            if state != "pending":
                setattr(self, state, getattr(self, state) + count)

    def as_counts(self) -> dict[str, int]:
        """The whole numbers, by name."""
        return {name: getattr(self, name) for name in _COUNTS}

    def __sub__(self, before: ReplayResult) -> ReplayResult:
        """What was added since an earlier copy of this result."""
        earlier = before.as_counts()
        added = ReplayResult()
        for name, count in self.as_counts().items():
            setattr(added, name, count - earlier[name])
        return added

    @property
    def settled(self) -> int:
        """Webhooks that ended in any state."""
        return self.done + self.failed + self.dead + self.unrouted + self.quarantined

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
        reads = "1 read" if self.fetches == 1 else f"{self.fetches:,} reads"
        return f"Webhooks: {named or idle}; {reads} in {self.seconds:.1f} s."
