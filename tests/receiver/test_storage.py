"""The inbox keeps each webhook once; while the database takes no writes, webhooks get 503."""

import hashlib
import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.provider.webhooks import Webhook, read_webhook
from nftsync.receiver.committer import Committer
from nftsync.store import STATES
from nftsync.store.inbox import Delivery, Stored, store
from nftsync.store.schema import open_store
from tests.kit.inbox import quarantine_id
from tests.kit.worlds import PATIENCE
from tests.receiver.conftest import ORGANIZATION, Running, body, fields

AT = "2026-01-31T12:00:00.000000Z"
LATER = "2026-01-31T13:00:00.000000Z"


def test_a_webhook_without_an_id_is_known_again_by_its_body(connection: sqlite3.Connection) -> None:
    wallet = str(uuid.uuid4())
    first, second = body(id=None, resourceId=wallet), body(id="evt_1", resourceId=wallet)
    assert put(connection, first, second, first, organization_id=ORGANIZATION) == [
        *("stored", "stored", "duplicate"),
    ]
    assert put(connection, second) == ["duplicate"]
    digests = [hashlib.sha256(content).hexdigest() for content in (first, second)]
    assert [(row["webhook_id"], row["deliveries"]) for row in rows(connection)] == [
        (digest, 2) for digest in digests
    ]


def test_a_requeued_webhook_is_a_duplicate(
    connection: sqlite3.Connection,
) -> None:
    content = body()
    assert put(connection, content, organization_id=str(uuid.UUID(int=5))) == ["quarantined"]
    connection.execute("UPDATE webhooks SET state = 'done'")
    connection.commit()
    assert put(connection, content, content) == ["duplicate", "duplicate"]
    assert [(row["webhook_id"], row["state"], row["deliveries"]) for row in rows(connection)] == [
        (quarantine_id(content), "done", 3)
    ]


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
    expected = {
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
        "next_attempt_at": AT,
        "finished_at": None,
        "state": "pending",
        "attempts": 0,
        "deliveries": 1,
        "last_error": None,
        "run_id": None,
    }
    (row,) = rows(connection)
    assert row | expected == row


def test_a_repeated_webhook_is_only_counted(
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


def test_a_known_id_with_another_body_is_quarantined(
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


@settings(max_examples=50)
@given(
    batches=st.lists(
        st.lists(few_bodies | st.sampled_from([b"", b"x", b"{}"]), max_size=8), max_size=4
    )
)
def test_batches_do_not_change_the_stored_webhooks(
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


def delivery(content: bytes) -> Delivery:
    return Delivery(content, read_webhook(content, None))


def test_a_webhook_that_cannot_be_stored_takes_no_other_down(tmp_path: Path) -> None:
    """No webhook is like that by now; if one is, it alone is refused."""
    bad = Delivery(b"x", Webhook("id", "organization", "\ud800", "Wallet", "resource", "", None))
    good = [delivery(body()) for _ in range(6)]
    database = tmp_path / "nftsync.db"
    committer = Committer(database)
    with ThreadPoolExecutor(7) as pool:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so that they come into one batch
            outcomes = [pool.submit(committer.submit, x) for x in [*good[:3], bad, *good[3:]]]
            time.sleep(0.3)
            other.execute("ROLLBACK")
        found = [outcome.result() for outcome in outcomes]
    assert found == [*["stored"] * 3, "not stored", *["stored"] * 3]
    assert committer.submit(delivery(body())) == "stored"
    committer.close()


@pytest.mark.parametrize("other", ["nothing", "an empty file", "another database"])
def test_webhooks_are_refused_while_the_file_is_moved(
    run: Callable[..., Running], tmp_path: Path, other: str
) -> None:
    """Nor is a file made there: it would share this one's log and shared memory."""
    receiver = run()
    elsewhere = tmp_path / "elsewhere.db"
    before, meanwhile, afterwards = body(), body(), body()
    assert receiver.post(before) == 200
    receiver.database.rename(elsewhere)
    if other == "an empty file":
        receiver.database.touch()
    elif other == "another database":
        Committer(tmp_path / "another.db").close()
        (tmp_path / "another.db").rename(receiver.database)
    content = receiver.database.read_bytes() if other != "nothing" else None
    for _ in range(3):
        assert receiver.post(meanwhile) == 503
        assert receiver.client.get("/readyz").status_code == 503
        assert receiver.client.get("/healthz").status_code == 200
    assert receiver.database.exists() == (content is not None)
    assert content is None or receiver.database.read_bytes() == content
    elsewhere.rename(receiver.database)
    assert receiver.post(afterwards) == 200
    assert receiver.client.get("/readyz").status_code == 200
    assert receiver.webhooks("body") == [(before,), (afterwards,)]


def test_who_serves_learns_once_that_the_writer_broke(run: Callable[..., Running]) -> None:
    broken = ValueError("nobody foresaw it")
    told: SimpleQueue[Exception] = SimpleQueue()

    def on_stored() -> None:
        raise broken

    receiver = run(on_stored=on_stored, on_broken=told.put)
    assert receiver.post(body()) == 200
    assert told.get(timeout=PATIENCE) is broken
    while receiver.client.get("/healthz").status_code == 200:
        pass
    assert receiver.post(body()) == 503
    assert told.empty()


def test_a_writer_that_is_held_up_keeps_no_later_request_waiting_for_long(tmp_path: Path) -> None:
    """So a few threads answer however many come one after another while the database is locked."""
    committer = Committer(tmp_path / "nftsync.db")
    with (
        closing(sqlite3.connect(tmp_path / "nftsync.db", isolation_level=None)) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        outcomes = list(pool.map(committer.submit, [delivery(body()) for _ in range(80)]))
        assert outcomes == ["not stored"] * 80
        assert time.monotonic() - began < 20  # of 40 if each waited 2 s
        other.execute("ROLLBACK")
    until = time.monotonic() + PATIENCE
    while committer.submit(delivery(body())) != "stored":  # it has 0.1 s, at first
        assert time.monotonic() < until
    committer.close()


def test_a_lock_and_its_end_are_logged_once(
    receiver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert [receiver.post(body()) for _ in range(2)] == [503, 503]
    receiver.post(body())
    messages = [x.getMessage() for x in caplog.records if x.name == "nftsync.receiver"]
    assert messages == ["cannot store webhooks", "webhooks are stored again"]
