"""Plotly charts of holdings, changes and webhooks.

Each function takes a frame of the measure that it draws, or a database: a path, a connection, a
`sqlite_utils.Database`, or None for the configured one. It returns a `plotly.graph_objects.Figure`,
which you can change. Figures need no internet access, and show text from data literally.

`top` is the number of groups to show individually. `exclude` leaves out wallets, by id or label.
`hidden=True` includes hidden tokens of a database; otherwise the subtitle gives their number.
`names` maps addresses, ids or values to names; without it, charts use collections and labels.

Plotly comes with the extra `notebook`; without it, functions raise an NftsyncError. Other errors
are those of `nftsync.frames`.
"""

from __future__ import annotations

from nftsync.charts._bars import holding_ages, holdings_by_collection
from nftsync.charts._concentration import concentration, holders, overlap
from nftsync.charts._history import arrivals_and_departures, holdings_over_time
from nftsync.charts._webhooks import webhook_backlog, webhook_lag

__all__ = [
    "arrivals_and_departures",
    "concentration",
    "holders",
    "holding_ages",
    "holdings_by_collection",
    "holdings_over_time",
    "overlap",
    "webhook_backlog",
    "webhook_lag",
]
