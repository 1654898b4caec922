"""Plotly charts of holdings, changes and webhooks.

Each function takes what the measures in `nftsync.frames` take and returns a
`plotly.graph_objects.Figure`, which its caller can go on changing. Figures are readable on a light
and on a dark page and need no internet. Text from data shows as it is and acts on nothing. Where
there is nothing to draw yet, the figure says what would fill it.

Plotly comes with `pip install 'nftsync[notebook]'` and is loaded when a chart is drawn. A database
that is missing, is not nftsync's or cannot be read is a StoreError.
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
