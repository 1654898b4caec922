import hashlib
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator
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
from tests.kit.serve_process import ORGANIZATION
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE
from tests.receiver.conftest import body, fields

AT = "2026-01-31T12:00:00.000000Z"
LATER = "2026-01-31T13:00:00.000000Z"
OTHER = str(uuid.UUID(int=5))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_store(tmp_path / "nftsync.db")) as opened:
        opened.execute("PRAGMA synchronous = OFF")
        opened.row_factory = sqlite3.Row
        yield opened


def put(
    connection: sqlite3.Connection, *contents: bytes, at: str = AT, organization: str | None = None
) -> list[Stored]:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        deliveries = [Delivery(x, read_webhook(x, organization)) for x in contents]
        return store(connection, deliveries, at)


def rows(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute("SELECT * FROM webhooks ORDER BY webhook_no")]


def test_new_fields_of_webhooks_are_noted_once_also_of_unusable_ones(connection):
    first = body(id=OTHER, tenant="x", changes=[1], action=None)
    assert put(connection, first, b"{", body(tenant=2)) == ["stored", "quarantined", "stored"]
    put(connection, json.dumps({"kind": 1}).encode(), first, at=LATER)
    found = connection.execute(
        "SELECT field, documented_type, first_seen_at FROM new_fields ORDER BY field"
    )
    assert [tuple(row) for row in found] == [
        ("webhook.changes", "object", AT),
        ("webhook.kind", None, LATER),
        ("webhook.tenant", None, AT),
    ]


def test_a_new_webhook_waits_for_replay_at_once(connection):
    content = body(id="AAAAAAAA-0000-4000-8000-000000000001", changes={"a": 1})
    assert put(connection, content) == ["stored"]
    expected = read_webhook(content, None)._asdict() | {
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


def test_a_webhook_without_an_id_is_known_again_by_its_body(connection):
    first, second = body(id=None, resourceId=OTHER), body(id="evt_1", resourceId=OTHER)
    results = put(connection, first, second, first, organization=ORGANIZATION)
    assert results == ["stored", "stored", "duplicate"]
    assert put(connection, second) == ["duplicate"]
    assert [(row["webhook_id"], row["deliveries"]) for row in rows(connection)] == [
        (hashlib.sha256(content).hexdigest(), 2) for content in (first, second)
    ]


def test_a_requeued_webhook_is_a_duplicate(connection):
    content = body()
    assert put(connection, content, organization=OTHER) == ["quarantined"]
    connection.execute("UPDATE webhooks SET state = 'done'")
    connection.commit()
    assert put(connection, content, content) == ["duplicate", "duplicate"]
    assert [(row["webhook_id"], row["state"], row["deliveries"]) for row in rows(connection)] == [
        (quarantine_id(content), "done", 3)
    ]


def test_a_repeated_webhook_is_only_counted(connection):
    """Whatever its state, and whatever the organization by now."""
    content = body()
    put(connection, content)
    for deliveries, state in enumerate(STATES, start=2):
        connection.execute("UPDATE webhooks SET state = ?, body = NULL", (state,))
        before = rows(connection)
        assert put(connection, content, at=LATER) == ["duplicate"]
        assert rows(connection) == [row | {"deliveries": deliveries} for row in before]
    assert put(connection, content, organization=OTHER) == ["duplicate"]


def test_a_known_id_with_another_body_is_quarantined(connection):
    first = fields()
    one, other = json.dumps(first).encode(), json.dumps(first | {"action": "delete"}).encode()
    put(connection, one)
    before = rows(connection)
    assert put(connection, other, at=LATER) == ["quarantined"]
    expected = {
        "webhook_id": quarantine_id(other),
        "state": "quarantined",
        "last_error": "this id was seen with another body",
        "finished_at": LATER,
        "received_at": LATER,
        "next_attempt_at": None,
        "action": "delete",
        "resource_id": first["resourceId"],
    }
    kept, beside = rows(connection)
    assert ([kept], beside | expected) == (before, beside)
    assert put(connection, other, one, other) == ["duplicate"] * 3
    assert [row["deliveries"] for row in rows(connection)] == [2, 3]


FEW = [ORGANIZATION[:-1] + digit for digit in "123"]
few_bodies = st.builds(
    lambda name, action: json.dumps(fields(id=name, action=action, resourceId=FEW[0])).encode(),
    st.sampled_from(FEW),
    st.sampled_from(["a", "b", "c"]),
)
batch = st.lists(few_bodies | st.sampled_from([b"", b"x", b"{}"]), max_size=8)


@settings(max_examples=50)
@given(batches=st.lists(batch, max_size=4))
def test_batches_do_not_change_the_stored_webhooks(connection, batches):
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
    assert {row["webhook_id"]: row["deliveries"] for row in rows(connection)} == expected
    assert sum(x != "duplicate" for batch in results for x in batch) == len(expected)


def delivery() -> Delivery:
    content = body()
    return Delivery(content, read_webhook(content, None))


def test_a_webhook_that_cannot_be_stored_takes_no_other_down(tmp_path):
    """No webhook is like that by now; if one is, it alone is refused."""
    bad = Delivery(b"x", Webhook("id", "organization", "\ud800", "Wallet", "resource", "", None))
    given = [*(delivery() for _ in range(3)), bad, *(delivery() for _ in range(3))]
    database = tmp_path / "nftsync.db"
    committer = Committer(database)
    with ThreadPoolExecutor(7) as pool:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so that they come into one batch
            outcomes = [pool.submit(committer.submit, each) for each in given]
            time.sleep(0.3)
            other.execute("ROLLBACK")
        found = [outcome.result() for outcome in outcomes]
    assert found == [*["stored"] * 3, "not stored", *["stored"] * 3]
    assert committer.submit(delivery()) == "stored"
    committer.close()


@pytest.mark.parametrize("other", ["nothing", "an empty file", "another database"])
def test_webhooks_are_refused_while_the_file_is_moved(run, tmp_path, other):
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


def test_who_serves_learns_once_that_the_writer_broke(run):
    broken = ValueError("nobody foresaw it")
    told: SimpleQueue[Exception] = SimpleQueue()

    def on_stored() -> None:
        raise broken

    receiver = run(on_stored=on_stored, on_broken=told.put)
    assert receiver.post(body()) == 200
    assert told.get(timeout=PATIENCE) is broken
    wait_until(lambda: receiver.client.get("/healthz").status_code != 200)
    assert receiver.post(body()) == 503
    assert told.empty()


def test_a_writer_that_is_held_up_refuses_later_webhooks_sooner(tmp_path):
    """Otherwise, many webhooks would occupy all threads while the database is locked."""
    late, fresh = committers = [Committer(tmp_path / "nftsync.db") for _ in range(2)]
    assert [each.submit(delivery()) for each in committers] == ["stored"] * 2
    with (
        closing(sqlite3.connect(tmp_path / "nftsync.db", isolation_level=None)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert late.submit(delivery()) == "not stored"
        first = pool.submit(fresh.submit, delivery())
        refused = 0
        while not first.done():
            assert late.submit(delivery()) == "not stored"
            refused += 1
        assert first.result() == "not stored"
        assert refused > 3
        other.execute("ROLLBACK")
    for each in committers:
        wait_until(lambda each=each: each.submit(delivery()) == "stored")  # it has 0.1 s, at first
        each.close()


def test_a_lock_and_its_end_are_logged_once(receiver, caplog):
    with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert [receiver.post(body()) for _ in range(2)] == [503, 503]
    receiver.post(body())
    messages = [x.getMessage() for x in caplog.records if x.name == "nftsync.receiver"]
    assert messages == ["cannot store webhooks", "webhooks are stored again"]
