"""The inbox keeps each webhook once and counts each time it came."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import read_webhook
from nftsync.store import STATES
from nftsync.store.inbox import Delivery, Stored, store
from nftsync.store.schema import open_store
from tests.kit.inbox import quarantine_id
from tests.receiver.world import ORGANIZATION, body, fields

AT = "2026-01-31T12:00:00.000000Z"
LATER = "2026-01-31T13:00:00.000000Z"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_store(tmp_path / "nftsync.db")) as opened:
        opened.execute("PRAGMA synchronous = OFF")
        yield opened


def put(
    connection: sqlite3.Connection,
    *contents: bytes,
    at: str = AT,
    organization_id: str | None = None,
) -> list[Stored]:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        deliveries = [Delivery(x, read_webhook(x, organization_id)) for x in contents]
        return store(connection, deliveries, at)


def rows(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    cursor = connection.execute("SELECT * FROM webhooks ORDER BY webhook_no")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def test_a_new_webhook_waits_for_replay_at_once(connection: sqlite3.Connection) -> None:
    content = body(id="AAAAAAAA-0000-4000-8000-000000000001", changes={"a": 1})
    assert put(connection, content) == ["stored"]
    sent = json.loads(content)
    assert rows(connection) == [
        {
            "webhook_id": "aaaaaaaa-0000-4000-8000-000000000001",
            "organization_id": ORGANIZATION,
            "action": "create",
            "resource_type": "Wallet",
            "resource_id": sent["resourceId"],
            "created_at_utc": sent["createdAtUtc"],
            "changes": '{"a": 1}',
            "body": content,
            "body_sha256": hashlib.sha256(content).hexdigest(),
            "received_at": AT,
            "state": "pending",
            "attempts": 0,
            "next_attempt_at": AT,
            "last_error": None,
            "finished_at": None,
            "deliveries": 1,
            "run_id": None,
            "webhook_no": 1,
            "lease_no": None,
            "look_again_at": None,
        }
    ]


def test_the_same_webhook_again_is_only_counted_whatever_became_of_it(
    connection: sqlite3.Connection,
) -> None:
    content = body()
    put(connection, content)
    for deliveries, state in enumerate(STATES, start=2):
        connection.execute("UPDATE webhooks SET state = ?, body = NULL", (state,))
        before = rows(connection)
        assert put(connection, content, at=LATER) == ["duplicate"]
        before[0]["deliveries"] = deliveries
        assert rows(connection) == before
    # An organization that was set meanwhile makes it no other webhook.
    assert put(connection, content, organization_id=str(uuid.UUID(int=5))) == ["duplicate"]


def test_an_id_that_comes_with_another_body_is_quarantined_beside_it(
    connection: sqlite3.Connection,
) -> None:
    first = fields()
    one, other = json.dumps(first).encode(), json.dumps(first | {"action": "update"}).encode()
    put(connection, one)
    before = rows(connection)
    assert put(connection, other, at=LATER) == ["quarantined"]
    kept, beside = rows(connection)
    assert [kept] == before
    assert beside["webhook_id"] == quarantine_id(other)
    assert beside["state"] == "quarantined"
    assert beside["last_error"] == "this id was seen with another body"
    assert beside["finished_at"] == beside["received_at"] == LATER
    assert beside["next_attempt_at"] is None
    assert (beside["action"], beside["resource_id"]) == ("update", first["resourceId"])
    assert put(connection, other, one, other) == ["duplicate"] * 3
    assert [row["deliveries"] for row in rows(connection)] == [2, 3]


FEW = [str(ORGANIZATION[:-1] + digit) for digit in "123"]
few_bodies = st.builds(
    lambda name, action: json.dumps(fields(id=name, action=action, resourceId=FEW[0])).encode(),
    st.sampled_from(FEW),
    st.sampled_from(["a", "b", "c"]),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.lists(few_bodies | st.sampled_from([b"", b"x", b"{}"]), max_size=8), max_size=4
    )
)
def test_however_webhooks_come_in_batches_the_same_is_kept(
    connection: sqlite3.Connection, batches: list[list[bytes]]
) -> None:
    """The first body of an id has it, each other body is quarantined once, and all are counted."""
    owners: dict[str, bytes] = {}
    expected: dict[str, int] = {}
    for content in [content for batch in batches for content in batch]:
        read = read_webhook(content, None)
        name = quarantine_id(content)
        if hasattr(read, "webhook_id") and owners.setdefault(read.webhook_id, content) == content:
            name = read.webhook_id
        expected[name] = expected.get(name, 0) + 1
    connection.execute("DELETE FROM webhooks")
    results = [put(connection, *batch) for batch in batches]
    found = {row["webhook_id"]: row["deliveries"] for row in rows(connection)}
    assert found == expected
    assert sum(x != "duplicate" for batch in results for x in batch) == len(expected)
