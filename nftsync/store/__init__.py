"""The database: its tables, the mirror that writes them, and functions to open it."""

from typing import Literal, TypeAlias, get_args

#: Of a webhook. It stands here, where it loads nothing, for the commands' help.
WebhookState: TypeAlias = Literal[
    "pending", "running", "done", "failed", "dead", "unrouted", "quarantined"
]

STATES: tuple[WebhookState, ...] = get_args(WebhookState)

#: How the last read of a wallet went.
WALLET_STATUSES = ("never", "ok", "incomplete", "failed")
