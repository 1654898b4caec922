"""Webhooks in numbers, stored and worked off."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from nftsync.provider.client import ClientConfig
from nftsync.provider.routes import Route, merged
from nftsync.provider.webhooks import read_webhook
from nftsync.pull.result import SyncResult
from nftsync.replay.result import ReplayResult
from nftsync.replay.run import ReplayConfig, replay_once
from nftsync.store.inbox import Delivery, store
from nftsync.store.mirror import Mirror
from nftsync.times import now

_numbers = itertools.count(1)


def deliveries(object_ids: Sequence[str], resource_type: str = "Wallet") -> list[Delivery]:
    """A webhook on each object, as the receiver hands it over."""
    bodies = [
        json.dumps(
            {
                "organizationId": "00000001-0000-4000-8000-000000000000",
                "action": "update",
                "id": f"00000e0e-0000-4000-8000-{next(_numbers):012x}",
                "resourceId": object_id,
                "resourceType": resource_type,
                "createdAtUtc": "2026-01-31T12:00:00.1234567+00:00",
                "changes": None,
            }
        ).encode()
        for object_id in object_ids
    ]
    return [Delivery(body, read_webhook(body, None)) for body in bodies]


def receive(mirror: Mirror, object_ids: Sequence[str], resource_type: str = "Wallet") -> None:
    with mirror.transaction() as transaction:
        store(transaction.connection, deliveries(object_ids, resource_type), now())


def replay(database: Path, url: str, routes: Mapping[str, Route] | None = None) -> ReplayResult:
    """Work off what waits, as `nftsync replay` does."""
    client = ClientConfig(base_url=url, attempts=2, timeout=5.0)

    def no_sync(_: threading.Event) -> SyncResult:
        raise AssertionError("nobody asked for a sync")

    config = ReplayConfig(
        client=client,
        access=client.access(),
        routes=merged(routes or {}),
        run_sync=no_sync,
        concurrency=8,
    )
    return replay_once(database, config, threading.Event(), progress=False)
