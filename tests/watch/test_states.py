"""States: each beginning and each end is reported once, also after quiet hours."""

from datetime import UTC, datetime, timedelta
from typing import Any

from nftsync.alerts import Quiet
from nftsync.watch.texts import lines_of
from tests.kit.database import wallet_id
from tests.kit.inbox import Inbox
from tests.watch.conftest import Watched, ago, plan

A, B = 1, 2
HOUR = timedelta(hours=1)


def make_stale(watched: Watched) -> None:
    watched.run("UPDATE wallets SET synced_at = ? WHERE wallet_no = 1", ago(30))


def states_of(messages: list[dict[str, Any]], *names: str) -> list[tuple[str, ...]]:
    """Return each message's rule or data by name, its type, and its state."""
    return [
        (*({**one["data"], **one}[name] for name in names), one["type"], one["data"]["state"])
        for one in messages
    ]


SYNC = """
    INSERT INTO sync_runs (kind, status, started_at, finished_at, reads_all)
    VALUES ('sync', '{}', '2026', '2026', 1)
"""
REMOVAL = """
    INSERT INTO removal_rows (wallet_no, token_no, old_amount, emptied, held, observed_at, read_at)
    VALUES (1, 1, '1', 0, 1, '2026-01-01T00:00:00.000000Z', '2026')
"""
WEBHOOK = "UPDATE webhooks SET state = '{}'"
CLOCK = "UPDATE wallet_state_rows SET observed_at = '{}-01-01T00:00:00.000000Z'"
READ = "UPDATE wallets SET synced_at = '{}-01-01T00:00:00.000000Z' WHERE wallet_no = 1"
#: Statements that begin and end a state, for each kind but `disk_low`.
CAUSES = {
    "sync_failed": (SYNC.format("failed"), SYNC.format("partial")),
    "removals_held": (REMOVAL, "DELETE FROM removal_rows"),
    "webhook_dead": (WEBHOOK.format("dead"), WEBHOOK.format("done")),
    "webhook_quarantined": (WEBHOOK.format("quarantined"), WEBHOOK.format("done")),
    "replay_paused": (WEBHOOK.format("pending"), WEBHOOK.format("done")),
    "clock_ahead": (CLOCK.format(2999), CLOCK.format(2026)),
    "wallet_stale": (READ.format(2026), READ.format(2999)),
    "wallet_failed": (
        "UPDATE wallets SET status = 'failed', error = 'HTTP 500' WHERE wallet_no = 1",
        "UPDATE wallets SET tracked = 0 WHERE wallet_no = 1",
    ),
}


def test_each_state_begins_once_and_ends_once(watched, command):
    watched.configure(*(watched.rule(kind, on=[kind]) for kind in CAUSES))
    watched.read({A: {1: "1"}, B: {}})
    inbox = Inbox(watched.database)
    inbox.fill(1)
    inbox.settle(0, "done")
    assert watched.watch() == []
    for kind, (begin, end) in CAUSES.items():
        name = kind.replace("_", ".")
        watched.run(begin)
        shown = command("watch", "test", kind, "--json").json
        assert states_of(shown) == [(name, "began")]
        (began,) = watched.watch()
        assert states_of([began], "rule") == [(kind, name, "began")]
        assert began["data"]["since"] <= began["timestamp"]
        assert watched.watch() == []
        watched.run(end)
        (ended,) = watched.watch()
        assert states_of([ended], "rule") == [(kind, name, "ended")]
        assert ended["data"] == {**began["data"], "state": "ended"}
        assert watched.watch() == []
        assert command("watch", "test", kind).says("No events.").out == ""
    assert len(set(watched.states("message_id"))) == 2 * len(CAUSES)


def test_a_new_field_begins_once_and_neither_lasts_nor_ends(watched):
    watched.configure(watched.rule("fields", on=["new_field"], repeat="1h"))
    insert = "INSERT INTO new_fields VALUES (?, 'text', ?, 't', ?)"
    watched.run(insert, "metadata.old", None, ago(31 * 24))
    assert watched.watch() == []
    watched.run(insert, "metadata.rarity", None, ago(0))
    watched.run(insert, "metadata.editionId", "integer", ago(0))
    messages = watched.watch()
    assert sorted(states_of(messages, "field")) == [
        (f"metadata.{name}", "new.field", "began") for name in ("editionId", "rarity")
    ]
    assert {"\n".join(lines_of(one)) for one in messages} == {
        "New field: metadata.rarity (text)",
        "New field: metadata.editionId is text instead of integer",
    }
    watched.run("UPDATE watch_states SET reported_at = ?", ago(2))
    assert watched.watch() == []
    watched.run("UPDATE new_fields SET first_seen_at = ?", ago(31 * 24))
    assert watched.watch() == []


def test_a_disk_without_space_is_low(small_disk, watched, command):
    small = Watched(small_disk / "nftsync.db", command)
    watched.configure(watched.rule("disk", on=["disk_low"]))
    (message,) = small.watch("-d", small.database)
    assert states_of([message]) == [("disk.low", "began")]
    assert message["data"]["free_bytes"] < 3 * 2**20
    assert watched.watch() == []


def test_states_of_wallets_are_of_the_rule_s_wallets_each_by_itself(watched):
    watched.read({A: {}, B: {}})
    watched.run("UPDATE wallets SET wallet_group = 'house', label = 'Vault' WHERE wallet_no = 1")
    on = ["wallet_stale", "wallet_failed"]
    watched.configure(
        watched.rule("house", on=on, groups=["house"]), watched.rule("all", on=on, max_age="1h")
    )
    watched.run("UPDATE wallets SET synced_at = ?", ago(2))
    stale, failed = "wallet.stale", "wallet.failed"
    assert states_of(watched.watch(), "rule", "wallet_id") == [
        ("all", wallet_id(wallet), stale, "began") for wallet in (A, B)
    ]
    watched.read({A: {}, B: {}}, outcome="failed", error="HTTP 500\nno")
    assert states_of(watched.watch(), "rule", "wallet_label") == [
        ("house", "Vault", failed, "began"),
        ("all", "Vault", failed, "began"),
        ("all", None, failed, "began"),
    ]
    watched.read({A: {}})
    assert states_of(watched.watch(), "rule", "wallet_id") == [
        ("house", wallet_id(A), failed, "ended"),
        ("all", wallet_id(A), stale, "ended"),
        ("all", wallet_id(A), failed, "ended"),
    ]


def test_a_state_that_lasts_is_repeated_on_request(watched):
    watched.read({A: {}})
    on = ["wallet_stale"]
    watched.configure(watched.rule("again", on=on, repeat="1h"), watched.rule("once", on=on))
    make_stale(watched)
    assert states_of(watched.watch()) == [("wallet.stale", "began")] * 2
    assert watched.watch() == []
    for _ in range(2):
        watched.run("UPDATE watch_states SET reported_at = ?", ago(1.1))
        assert states_of(watched.watch(), "rule") == [("again", "wallet.stale", "lasts")]
        assert watched.watch() == []
    watched.run("UPDATE watch_states SET reported_at = ?", ago(1.1))
    watched.read({A: {}})
    assert states_of(watched.watch()) == [("wallet.stale", "ended")] * 2
    assert len(set(watched.states("message_id"))) == 6


def quiet(begins: float, ends: float) -> str:
    """Return quiet hours, given in hours from now."""
    present = datetime.now(UTC)
    return "-".join((present + hours * HOUR).strftime("%H:%M") for hours in (begins, ends))


def test_quiet_hours_delay_but_lose_nothing_and_end_with_one_digest(watched):
    """Neither a change nor a state, even one that begins and ends meanwhile."""
    watched.read({A: {}})
    on = ["received", "wallet_stale"]
    watched.configure(watched.rule("night", on=on, quiet=quiet(-1, 1)))
    for cause in (lambda: None, lambda: make_stale(watched), lambda: watched.read({A: {1: "1"}})):
        cause()
        assert watched.watch() == []
    watched.run("UPDATE watch_states SET began_at = ?", ago(1))
    watched.run("UPDATE balance_change_rows SET observed_at = ?", ago(1))
    watched.configure(watched.rule("night", on=on, quiet=quiet(-2, -0.02)))
    (digest,) = watched.watch()
    assert (digest["type"], digest["total"]) == ("digest", 3)
    assert sorted((one["type"], one.get("state", "")) for one in digest["data"]) == [
        ("holding.received", ""),
        ("wallet.stale", "began"),
        ("wallet.stale", "ended"),
    ]
    assert watched.watch() == []


def test_a_planner_that_keeps_running_sees_states_while_it_waits(watched):
    """As in `serve`: in quiet hours, and until a digest is due."""
    present = datetime.now(UTC)
    hours = [(present + sign * HOUR).time().replace(microsecond=0) for sign in (-1, 1)]
    on = ["received", "wallet_stale"]
    rules = [{"name": "night", "quiet": Quiet(*hours, "UTC")}, {"name": "digest", "digest": HOUR}]
    watched.read({A: {}})
    with watched.planning(*({**rule, "on": on} for rule in rules)) as planner:
        for _ in range(2):
            for cause in (lambda: make_stale(watched), lambda: watched.read({A: {}})):
                cause()
                assert plan(planner) == 0
    # No longer quiet, and the hour is over.
    with watched.planning(*({"name": rule["name"], "on": on} for rule in rules)) as planner:
        assert [plan(planner), plan(planner)] == [8, 0]
    ended = [("wallet.stale", "began"), ("wallet.stale", "ended")] * 4
    assert states_of(watched.messages()) == ended


def test_a_digest_waits_for_its_time_from_the_first_change_on(watched):
    watched.read({A: {}})
    rule = {"on": ["received"], "digest": HOUR}
    with watched.planning(rule) as planner:
        watched.read({A: {1: "1"}})
        assert plan(planner) == 0
        watched.run("UPDATE balance_change_rows SET observed_at = ?", ago(1))
        watched.read({A: {1: "1", 2: "1"}})
    with watched.planning(rule) as planner:  # after a restart
        assert plan(planner) in {1, 2}
        assert plan(planner) == 0


def test_a_clock_that_was_ahead_silences_no_rule(watched, monkeypatch):
    watched.read({A: {}})
    with watched.planning({"on": ["received"], "digest": timedelta(seconds=60)}) as planner:
        year = datetime.now(UTC) + timedelta(days=365)

        class Ahead(datetime):
            @classmethod
            def now(cls, _: Any = None) -> datetime:
                return year

        with monkeypatch.context() as patched:
            patched.setattr("nftsync.watch.planner.datetime", Ahead)
            watched.read({A: {1: "1"}})
            ahead = year.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            watched.run("UPDATE balance_change_rows SET observed_at = ?", ahead)
            assert plan(planner) == 0
        monkeypatch.setattr("time.monotonic", lambda: float("inf"))
        assert plan(planner) == 1


def test_all_stopped_destinations_are_in_the_status(watched, command):
    watched.read({A: {}})
    watched.run("INSERT INTO stopped_destinations VALUES ('a1', '2026', 'x'), ('b2', '2026', 'x')")
    command("status").says("nftsync watch send a1", "nftsync watch send b2")
