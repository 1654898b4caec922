"""How much waits in the inbox, and since when, as Prometheus reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nftsync.errors import NftsyncError
from nftsync.store.connection import connect_reader

__all__ = ["Backlog"]

# `done` is left out: it grows for ever, and so would the time to count it.
_COUNTS = """
    SELECT state, count(*), min(received_at) FROM webhooks
    WHERE state IN ('pending', 'running', 'failed', 'dead', 'unrouted', 'quarantined')
    GROUP BY state"""
_STATES = ("pending", "running", "failed", "dead", "unrouted", "quarantined")


class Backlog(Collector):
    """Reads the inbox whenever the figures are asked for.

    Args:
        database: the database.
    """

    def __init__(self, database: Path) -> None:
        self._database = database

    def describe(self) -> list[GaugeMetricFamily]:
        """Name the figures without reading them."""
        return list(_families())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give the figures; none while the database cannot be read."""
        waiting, age = _families()
        try:
            with closing(connect_reader(self._database)) as connection:
                connection.execute("PRAGMA busy_timeout = 1000")
                rows = connection.execute(_COUNTS).fetchall()
        except (NftsyncError, sqlite3.Error):
            return
        counts = {state: (count, since) for state, count, since in rows}
        for state in _STATES:
            waiting.add_metric([state], counts.get(state, (0, None))[0])
        since = counts.get("pending", (0, None))[1]
        age.add_metric([], 0.0 if since is None else _age(since))
        yield waiting
        yield age


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "nftsync_inbox_webhooks", "Webhooks that are not done, by state.", labels=["state"]
        ),
        GaugeMetricFamily(
            "nftsync_inbox_oldest_pending_seconds",
            "Time since the oldest pending webhook was received; 0 when there is none.",
        ),
    )


def _age(since: str) -> float:
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
