"""Faults that once cost a message, its order, its time or its reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nftsync.alerts import WatchRule
from nftsync.store import outbox
from nftsync.store.mirror import Mirror
from nftsync.times import format_time, now, shifted
from nftsync.watch import planner as planning
from nftsync.watch.delivery import SendResult
from nftsync.watch.sender import MessageSender
from nftsync.watch.texts import Outgoing
from tests.kit.database import token_id, wallet_id
from tests.kit.serve_process import query
from tests.kit.worlds import PATIENCE
from tests.watch.test_outbox import row_of, store

A, B = 1, 2
HOUR = timedelta(hours=1)


class Answering:
    """A channel whose destination gives one answer."""

    def __init__(self, answer: Callable[[], SendResult]) -> None:
        self.answer = answer
        self.aborted = threading.Event()
        self.is_closed = False

    def send(self, _: Outgoing) -> SendResult:
        return self.answer()

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.is_closed = True


def send_all(database: Path, answer: Callable[[], SendResult]) -> None:
    """Make one attempt for each due message."""
    with Mirror(database) as mirror:
        sender = MessageSender(mirror, "ops", Answering(answer), lambda _kind, _reason: [])
        try:
            while sender.step(5):
                """It makes its attempts."""
        finally:
            sender.close()


def test_a_message_that_some_recipients_refused_keeps_their_reason(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    store(database, ("ops", "msg_0", "wallet 1"))
    send_all(database, lambda: SendResult("sent", "mail: 550 no such user"))
    row = row_of(database, "msg_0")
    assert (row["state"], row["last_error"]) == ("done", "mail: 550 no such user")


def test_a_day_that_a_destination_asks_to_wait_is_waited_after_a_restart(tmp_path: Path) -> None:
    database = tmp_path / "nftsync.db"
    store(database, ("ops", "msg_0", "wallet 1"))
    send_all(database, lambda: SendResult("down", "HTTP 429", 86_400.0))
    later = shifted(now(), timedelta(hours=20))
    with Mirror(database) as mirror:
        assert outbox.due_messages(mirror.connection, "ops", later, 8) == []
        later = shifted(now(), timedelta(hours=25))
        assert outbox.due_messages(mirror.connection, "ops", later, 8) == [1]


@pytest.mark.parametrize("hours", [1, 12, 29])
@pytest.mark.parametrize("result", ["new", "down", "refused"])
def test_messages_are_sent_after_the_clock_was_set_back(
    tmp_path: Path, hours: int, result: str
) -> None:
    """They wait no longer than their state's longest wait, and so do later ones of the wallet."""
    database = tmp_path / "nftsync.db"
    store(database, ("ops", "msg_0", "wallet 1"), ("ops", "msg_1", "wallet 1"))
    if result != "new":
        send_all(database, lambda: SendResult("down" if result == "down" else "refused", "no"))
    moment = shifted(now(), -hours * HOUR)
    with Mirror(database) as mirror:
        due = outbox.due_messages(mirror.connection, "ops", moment, 8)
        assert due == [1]
        # A message that waits by a right clock is not due.
        assert outbox.due_messages(mirror.connection, "ops", now(), 8) == [1] * (result == "new")


def test_a_search_for_due_messages_reads_no_waiting_ones(tmp_path: Path) -> None:
    """Of many failed messages none is due, and many later ones of one wallet wait for its first."""
    database = tmp_path / "nftsync.db"
    steps = []
    for count in (100, 10_000):
        names = [f"msg_{count}_{n}" for n in range(count)]
        store(database, *(("ops", name, f"wallet {name}") for name in names))
        query(
            database,
            "UPDATE messages SET state = 'failed', attempts = 5, next_attempt_at = ?",
            shifted(now(), 3 * HOUR),
        )
        store(database, *(("ops", f"{name}_later", f"wallet {names[0]}") for name in names))
        store(database, ("ops", f"msg_{count}_new", f"wallet {count}"))
        with Mirror(database) as mirror:
            done: list[int] = []
            mirror.connection.set_progress_handler(lambda done=done: done.append(1), 1)
            due = outbox.due_messages(mirror.connection, "ops", now(), 8)
            mirror.connection.set_progress_handler(None, 1)
        assert len(due) == 1
        query(database, "UPDATE messages SET state = 'done' WHERE message_no = ?", due[0])
        steps.append(len(done))
    assert steps[1] < 2 * steps[0]


def test_an_outage_is_reported_by_each_later_run_and_during_a_long_retry_after(
    tmp_path: Path,
) -> None:
    """Also if no attempt ends any more; the report is one a day, and ends with the outage."""
    database = tmp_path / "nftsync.db"
    store(database, ("ops", "msg_0", "wallet 1"))
    reports: list[str] = []

    def run(answer: Callable[[], SendResult]) -> None:
        """Send once, like a run of `nftsync watch`."""

        def others(kind: str, reason: str) -> list[outbox.Message]:
            reports.append(f"{kind}: {reason}")
            return [outbox.Message("msg_report", "destinations", "other", b"{}", ["destination"])]

        with Mirror(database) as mirror:
            sender = MessageSender(mirror, "ops", Answering(answer), others)
            try:
                while sender.step(5):
                    """It makes its attempts."""
            finally:
                sender.close()

    run(lambda: SendResult("down", "HTTP 429", 86_400.0))
    assert reports == []
    query(database, "UPDATE outages SET since = ?", shifted(now(), -2 * HOUR))
    for _ in range(2):
        run(lambda: pytest.fail("it asked to wait"))
    assert set(reports) == {"down: HTTP 429"}
    assert query(database, "SELECT destination, state FROM messages") == [
        ("ops", "pending"),
        ("other", "pending"),
    ]
    query(database, "UPDATE messages SET next_attempt_at = created_at")
    run(lambda: SendResult("sent"))
    assert query(database, "SELECT * FROM outages") == []


def test_a_sender_whose_attempts_break_releases_its_messages(tmp_path: Path) -> None:
    """The defect ends its thread, whose owner ends `serve`; another process can send at once."""
    database = tmp_path / "nftsync.db"
    store(database, *(("ops", f"msg_{n}", f"wallet {n}") for n in range(2)))
    is_first = threading.Lock()
    channel = Answering(lambda: SendResult("sent"))

    def breaks() -> SendResult:
        if not is_first.acquire(blocking=False):
            channel.aborted.wait(PATIENCE)
        raise LookupError("a defect")

    channel.answer = breaks
    with Mirror(database) as mirror:
        sender = MessageSender(mirror, "ops", channel, lambda _kind, _reason: [])
        with pytest.raises(LookupError):
            sender.step(PATIENCE)
        sender.close()
    assert channel.is_closed
    assert query(database, "SELECT DISTINCT state, attempts FROM messages") == [("pending", 0)]
    assert query(database, "SELECT * FROM leases") == []


def test_a_clock_that_was_ahead_silences_no_rule(watched: Any, monkeypatch: Any) -> None:
    watched.read({A: {}})
    rule = WatchRule(name="moves", on=["received"], to=["ops"], digest=timedelta(seconds=60))
    with Mirror(watched.database, write_gap=0.0) as mirror:
        planner = planning.Planner(mirror, [rule], [])
        year = datetime.now(UTC) + timedelta(days=365)

        class Ahead(datetime):
            @classmethod
            def now(cls, _: Any = None) -> datetime:
                return year

        with monkeypatch.context() as patched:
            patched.setattr(planning, "datetime", Ahead)
            watched.apply(mirror, {A: {1: "1"}})
            ahead = format_time(year)
            watched.run("UPDATE balance_change_rows SET observed_at = ?", ahead)
            assert planner.plan(planner.newest()) == 0
        monkeypatch.setattr("time.monotonic", lambda: float("inf"))
        assert planner.plan(planner.newest()) == 1


def test_a_digest_s_command_lists_transfers_whose_other_side_was_read_earlier(
    watched: Any, command: Any
) -> None:
    tokens = dict.fromkeys(range(12), "1")
    watched.configure(watched.rule("moves", on=["received"], wallets=[wallet_id(B)]))
    watched.read({A: tokens, B: {}})
    watched.watch()
    watched.read({A: {}}, {B: tokens})
    (digest,) = watched.watch()
    words = digest["command"].removeprefix("nftsync ").split()
    listed = command(*words, "--json").json
    assert {one["token_id"] for one in listed} == {token_id(n) for n in range(12)}


def test_a_digest_shows_whole_events_if_the_clock_went_back(watched: Any) -> None:
    watched.configure(watched.rule("moves", on=["received"]))
    watched.read({A: {}})
    watched.watch()
    watched.read({A: dict.fromkeys(range(12), "1")})
    watched.run(
        "UPDATE balance_change_rows SET observed_at = ?1 WHERE change_id ="
        " (SELECT max(change_id) FROM balance_change_rows)",
        shifted(now(), -HOUR),
    )
    (digest,) = watched.watch()
    assert all(one.get("token_id") for one in digest["data"])


def test_all_stopped_destinations_are_in_the_status(watched: Any, command: Any) -> None:
    watched.read({A: {}})
    watched.run("INSERT INTO stopped_destinations VALUES ('a1', '2026', 'x'), ('b2', '2026', 'x')")
    command("status").says("nftsync watch send a1").says("nftsync watch send b2")
