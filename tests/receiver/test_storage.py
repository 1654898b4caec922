"""When the database takes no writes: 503, and everything is well again afterwards."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest

from nftsync.provider.webhooks import Webhook, read_webhook
from nftsync.receiver.committer import Committer
from nftsync.store.inbox import Delivery
from tests.kit.worlds import PATIENCE
from tests.receiver.world import Running, body


def delivery(content: bytes) -> Delivery:
    return Delivery(content, read_webhook(content, None))


def test_a_lock_that_ends_in_time_only_delays(receiver: Running) -> None:
    content = body()
    with ThreadPoolExecutor(1) as pool:
        with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            status = pool.submit(receiver.post, content)
            time.sleep(0.3)
            assert not status.done()
            other.execute("ROLLBACK")
        assert status.result() == 200
    assert receiver.webhooks("deliveries") == [(1,)]


def test_a_webhook_that_cannot_be_stored_takes_no_other_down(tmp_path: Path) -> None:
    """Nothing that was read is like that; should something be, it alone goes without a 200."""
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
def test_nothing_is_answered_200_while_the_file_is_not_at_its_path(
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


def test_what_was_answered_200_stays_in_the_log_of_a_file_that_was_moved(tmp_path: Path) -> None:
    database, elsewhere = tmp_path / "nftsync.db", tmp_path / "elsewhere.db"
    committer = Committer(database)
    contents = [body() for _ in range(50)]
    assert {committer.submit(delivery(content)) for content in contents} == {"stored"}
    database.rename(elsewhere)
    assert committer.submit(delivery(body())) == "not stored"
    assert not database.exists()
    committer.close()
    elsewhere.rename(database)
    with closing(sqlite3.connect(database)) as connection:
        kept = connection.execute("SELECT body FROM webhooks ORDER BY webhook_no").fetchall()
    assert kept == [(content,) for content in contents]


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


def test_what_waits_when_it_closes_is_stored(tmp_path: Path) -> None:
    committer = Committer(tmp_path / "nftsync.db")
    contents = [body() for _ in range(40)]
    with ThreadPoolExecutor(41) as pool:
        outcomes = [pool.submit(committer.submit, delivery(content)) for content in contents]
        time.sleep(0.001)
        committer.close()
        stored = [x for x, y in zip(contents, outcomes, strict=True) if y.result() == "stored"]
    with closing(sqlite3.connect(tmp_path / "nftsync.db")) as connection:
        kept = {row[0] for row in connection.execute("SELECT body FROM webhooks")}
    assert kept == set(stored)


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
