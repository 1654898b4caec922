"""The state of a database, for a person and for a monitor."""

from datetime import UTC, datetime, timedelta
from typing import Any

from nftsync import __version__
from tests.kit.database import begun, now
from tests.kit.inbox import Inbox
from tests.kit.mirrored_site import run

STRANGER = "00000000-0000-4000-8000-000000000001"


def test_counts_and_the_newest_run_of_each_kind(site, command):
    new = command("status", "--json", "-d", begun(site.database.with_name("new.db"))).json
    assert {new[x] for x in ("last_sync", "last_replay", "oldest_wallet_age_s")} == {None}
    assert (new["wallets"], new["tokens"]) == ({}, 0)
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], "5000")
    site.sync()
    insert = "INSERT INTO sync_runs (kind, status, started_at) VALUES ('replay', 'ok', ?)"
    run(site.database, insert, now())
    done = command("status", "--json")
    assert done.code == 0
    found = done.json
    sync, replay, age = found["last_sync"], found["last_replay"], found["oldest_wallet_age_s"]
    tokens = {token for wallet in site.ids for token in site.held(wallet)}
    assert list(found.items()) == [
        *(("version", __version__), ("database", str(site.database)), ("wallets", {"ok": 4})),
        *(("tokens", len(tokens)), ("balances", 20)),
        *(("unusable_amounts", 0), ("changes", 21), ("last_sync", sync)),
        *(("last_replay", replay), ("oldest_wallet_age_s", age)),
        *(("inbox", {}), ("oldest_pending_age_s", None)),
        ("removals_held", {"wallets": 0, "balances": 0, "emptied": 0, "since": None}),
        *(("outbox", {}), ("oldest_message_age_s", None), ("stopped_destinations", {})),
        *(("rule_problems", {}), ("warning", None), ("unreadable", []), ("always_changing", None)),
    ]
    assert (sync["run_id"], sync["wallets_unchanged"], 0 <= age < 60) == (2, 3, True)
    assert (replay["run_id"], replay["kind"]) == (3, "replay")
    assert not {"plan", "first_sequence", "with_tokens"} & set(sync)
    out = command("status").out
    assert "4 ok; least recently read:" in out
    assert "ago (run 2: 4 wallets ok)" in out
    assert "digits" not in out
    run(site.database, "UPDATE balance_rows SET amount = '1e3' WHERE wallet_no = 1")
    assert "sums leave out 5 with an amount that is not 1 to 100 digits" in command("status").out


def test_the_least_recently_read_tracked_wallet_and_the_oldest_pending_webhook_have_ages(
    site, command
):
    def stored(days: float) -> str:
        return f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%S.%fZ}"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = command("status", "--json").json
        return found

    update = "UPDATE wallets SET synced_at = ? WHERE wallet_id = ?"
    run(site.database, update, stored(1), site.ids[2])
    assert 86_400 <= status()["oldest_wallet_age_s"] < 87_400
    for wallet in site.ids:
        run(site.database, update, stored(-1), wallet)
    assert status()["oldest_wallet_age_s"] == 0  # the clock was set back
    run(site.database, update, stored(2), site.ids[2])
    run(site.database, "UPDATE wallets SET tracked = 0 WHERE wallet_id = ?", site.ids[2])
    assert (status()["oldest_wallet_age_s"], status()["wallets"]) == (0, {"ok": 4})
    insert = "INSERT INTO webhooks (webhook_id, received_at, state) VALUES (?, ?, ?)"
    for days, state in ((3, "done"), (1, "pending"), (2, "pending")):
        run(site.database, insert, str(days), stored(days), state)
    found = status()
    assert found["inbox"] == {"done": 1, "pending": 2}
    assert 2 * 86_400 <= found["oldest_pending_age_s"] < 2 * 86_400 + 1_000


def test_quarantined_webhooks_are_reported(site, command):
    Inbox(site.database).receive(b"[]")
    done = command("status")
    assert "1 quarantined; reasons: nftsync inbox --state quarantined" in done.out
    assert command("status", "--json").json["inbox"] == {"quarantined": 1}


def test_max_age_names_the_stalest_wallet_never_read_before_all_and_none_untracked(site, command):
    fresh = command("status", "--max-age", "1h")
    assert (fresh.code, fresh.err) == (0, "")
    run(
        site.database,
        "UPDATE wallets SET synced_at = '2020-01-01T00:00:00.000000Z', label = 'Vault\x1b[2J'"
        " WHERE wallet_id = ?",
        site.ids[1],
    )
    done = command("status", "--max-age", "7d", "--json")
    assert (done.code, done.json["oldest_wallet_age_s"] > 7 * 86_400) == (1, True)
    assert site.ids[1] in done.err
    assert " d ago" in done.err
    assert "\x1b" not in done.err
    command("wallets", "add", STRANGER)
    command("status", "--max-age", "7d").says(f"wallet {STRANGER} was never read", code=1)
    command("wallets", "untrack", *site.ids, STRANGER)
    done = command("status", "--max-age", "1s")
    assert (done.code, done.err) == (0, "")
    assert "none tracked" in done.out
    assert command("status", "--max-age", "6 hours").code == 2
