"""The database: its tables, the mirror that writes them, and functions to open it.

Throughout the package, `connection` is an open database, `database` is one whose rows are tuples,
`at` is the current time, and all times are text in the stored form. Functions that write run in the
caller's write transaction and leave the commit to it. Functions that open a database raise
StoreError if it is missing, empty, not nftsync's or unreadable.
"""

from typing import Literal, TypeAlias, get_args

#: The states of a webhook, defined here so that the commands' help loads no other module.
WebhookState: TypeAlias = Literal[
    "pending", "running", "done", "failed", "dead", "unrouted", "quarantined"
]

STATES: tuple[WebhookState, ...] = get_args(WebhookState)

#: The results of a wallet's last read.
WALLET_STATUSES = ("never", "ok", "incomplete", "failed")
