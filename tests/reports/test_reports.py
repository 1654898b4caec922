"""Status, evidence and change feed, through their commands."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nftsync import __version__, frames
from nftsync.reports.change_feed import ChangeFeed
from nftsync.store.mirror import Mirror
from tests.kit.database import begun, utc
from tests.kit.inbox import Inbox
from tests.kit.mirrored_site import Site, run
from tests.kit.provider import Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome

# Status -------------------------------------------------------------------------------------------


def test_counts_and_the_newest_run_of_each_kind(site, command):
    new = command("status", "--json", "-d", begun(site.database.with_name("new.db"))).json
    assert {new[x] for x in ("last_sync", "last_replay", "oldest_wallet_age_s")} == {None}
    assert (new["wallets"], new["tokens"]) == ({}, 0)
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], "5000")
    site.sync()
    insert = "INSERT INTO sync_runs (kind, status, started_at) VALUES ('replay', 'ok', ?)"
    run(site.database, insert, utc())
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
    for number in site.ids:
        run(site.database, update, stored(-1), number)
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
    command("wallets", "add", wallet(9))
    command("status", "--max-age", "7d").says(f"wallet {wallet(9)} was never read", code=1)
    command("wallets", "untrack", *site.ids, wallet(9))
    done = command("status", "--max-age", "1s")
    assert (done.code, done.err) == (0, "")
    assert "none tracked" in done.out
    assert command("status", "--max-age", "6 hours").code == 2


# Evidence -----------------------------------------------------------------------------------------


Evidence = dict[str, Any]


@pytest.fixture
def evidence(command: Callable[..., Outcome]) -> Callable[..., Evidence]:
    """Return a function that reads the evidence for a wallet at a time."""

    def read(wallet: str, at: str) -> Evidence:
        found: Evidence = command("evidence", wallet, "--at", at, "--json").says().json
        return found

    return read


def proof(found: Evidence) -> tuple[str, str | None, str | None]:
    return found["certainty"], found["confirmed_before"], found["confirmed_after"]


def amounts(found: Evidence) -> dict[str, str]:
    return {row["token_id"]: row["amount"] for row in found["holdings"]}


def states_of(site: Site, wallet: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(site.database)) as connection:
        return connection.execute(
            "SELECT first_read_at, last_read_at FROM wallet_states WHERE wallet_id = ?"
            " ORDER BY state_id",
            (wallet,),
        ).fetchall()


def test_a_time_between_two_reads_of_one_state_is_bracketed_and_a_later_one_open(site, evidence):
    between = utc()
    site.sync()
    ((first, last),) = states_of(site, site.ids[0])
    found = evidence(site.ids[0], between)
    assert proof(found) == ("bracketed", first, last)
    assert first <= between <= last
    assert first in found["statement"]
    assert last in found["statement"]
    assert [state["reads"] for state in found["reads"]] == [2]
    assert set(amounts(found)) == set(site.held(site.ids[0]))
    at_last = evidence(site.ids[0], last)
    assert (at_last["certainty"], at_last["confirmed_after"]) == ("bracketed", last)
    just_after = datetime.fromisoformat(last) + timedelta(microseconds=1)
    for later in (just_after.isoformat(), utc()):
        found = evidence(site.ids[0], later)
        assert proof(found) == ("open", last, None)
        assert "nothing proves the holdings after it" in found["statement"]


def test_a_time_between_two_states_is_a_gap_that_shows_the_earlier_one(site, evidence):
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    between = utc()
    site.world.remove(wallet, token)
    site.sync()
    found = evidence(wallet, between)
    earlier, later = states_of(site, wallet)
    assert proof(found) == ("gap", earlier[1], later[0])
    assert "may be before or after the change" in found["statement"]
    assert token in amounts(found)
    assert token not in amounts(evidence(wallet, utc()))
    assert [state["run_id"] for state in found["reads"]] == [1, 2]
    assert {state["run_status"] for state in found["reads"]} == {"ok"}
    # A read's time is its start; its result is known a little later.
    assert "was under way" in evidence(wallet, earlier[0])["statement"]
    found = evidence(wallet, later[0])
    assert found["certainty"] == "gap"
    assert "under way" in found["statement"]


def test_before_the_first_read_all_is_unknown_and_incomplete_reads_confirm_nothing(
    lying: Provider, command, evidence, monkeypatch
):
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    lying.holds(wallet(1), entry(token(1)))
    command("wallets", "add", wallet(2)).says()
    command("sync", wallet(1)).says()
    first = evidence(wallet(1), utc())["confirmed_before"]
    for number, at, read in ((1, "2000-01-01", first), (2, utc(), None)):
        found = evidence(wallet(number), at)
        assert proof(found) == ("unknown", None, read)
        when = f"The first was at {read}." if read else "There is still none."
        assert found["statement"] == f"At that time, this wallet had no read yet. {when}"
        assert found["holdings"] == []
    body = balances(entry(token(1), "0012.50"), next="a page that nftsync does not know")
    lying.on(f"/v1/wallets/{wallet(1)}/nft-balances", reply(body))
    command("sync", wallet(1))
    found = evidence(wallet(1), utc())
    assert found["certainty"] == "open"
    assert "1 change to these holdings came from incomplete reads" in found["statement"]
    assert amounts(found) == {token(1): "0012.50"}


@pytest.mark.parametrize("at", [(), ("--at", "today")])
def test_the_command_shows_the_present_as_text_or_one_json_object(site, command, at):
    command("wallets", "label", site.ids[0], "Treasury")
    words = ("evidence", site.ids[0].upper(), *at)
    before = utc()
    found = command(*words, "--json").says().json
    assert (found["wallet_id"], found["label"]) == (site.ids[0], "Treasury")
    assert before <= found["at"] <= utc()
    assert len(found["holdings"]) == 5
    assert found["reads"][0]["run_status"] == "ok"
    text = command(*words).out
    assert "No complete read has been stored since" in text
    moment = found["confirmed_before"]
    assert (moment[-1], moment in found["statement"], moment in text) == ("Z", True, True)
    assert f", at {moment[:19].replace('T', ' ')} UTC, found these holdings" in text
    assert all(token in text for token in site.held(site.ids[0]))


# Change feed --------------------------------------------------------------------------------------


@contextmanager
def following(*filters: str) -> Iterator[subprocess.Popen[str]]:
    """Follow the changes in a process that ends with the block."""
    command = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0", *filters]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:
        yield process
        process.kill()


def log_of(site: Site) -> list[dict[str, object]]:
    with closing(sqlite3.connect(site.database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM balance_changes ORDER BY change_id").fetchall()
    return [dict(row) for row in rows]


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_since_is_inclusive_and_exact_to_the_microsecond_over_gaps_and_equal_times(tmp_path):
    """Many changes share a time, and ids have gaps."""
    path = tmp_path / "made.db"
    times = [f"2026-01-01T00:00:0{n}.000000Z" for n in (1, 1, 1, 3, 3, 7, 9)]
    ids = [2, 3, 10, 11, 50, 51, 1000]
    with Mirror(path) as mirror, mirror.transaction() as transaction:
        transaction.connection.executemany(
            "INSERT INTO balance_change_rows VALUES (?, 1, 1, NULL, '1', ?, 1, 1, NULL)",
            zip(ids, times, strict=True),
        )
    with ChangeFeed.open(path) as feed:
        for second in range(11):
            for fraction in ("000000", "000001"):
                moment = f"2026-01-01T00:00:{second:02}.{fraction}Z"
                expected = [i for i, at in zip(ids, times, strict=True) if at >= moment]
                before, last = feed.filter_by(since=moment)
                assert [i for i in ids if before < i <= last] == expected
                expected = [i for i, at in zip(ids, times, strict=True) if at <= moment]
                before, last = feed.filter_by(until=moment)
                assert [i for i in ids if before < i <= last] == expected


def test_a_commit_during_the_output_of_a_page_is_followed(site):
    """It comes after the read of the page, and no commit follows it."""
    looks = iter([True, True, False])
    seen: list[int] = []
    with (
        ChangeFeed.open(site.database) as feed,
        closing(sqlite3.connect(site.database, isolation_level=None)) as writer,
    ):
        for page in feed.follow(0, lambda: next(looks)):
            seen += [change["change_id"] for change in page]
            if len(seen) == 20:
                writer.execute(
                    "INSERT INTO balance_change_rows SELECT 21, wallet_no, token_no, '1', '2',"
                    " observed_at, 0, NULL, NULL FROM balance_change_rows WHERE change_id = 20"
                )
                # No open transaction keeps the write-ahead log.
                busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                assert busy == 0
    assert seen == list(range(1, 22))


def test_follow_prints_a_line_of_json_per_matching_change_also_of_new_ones(site):
    wallet = site.ids[3]
    with following("--wallet", wallet) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(5)]
        for other in site.ids:
            site.world.set_amount(other, site.held(other)[0], str(2**256 - 1))
        site.sync()
        lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    log = log_of(site)
    columns = list(log[0])
    assert [name for name in lines[-1] if name in columns] == columns
    assert {"wallet_label", "name"} <= set(lines[-1])
    assert lines[-1]["new_amount"] == str(2**256 - 1)
    found = [{name: change[name] for name in columns} for change in lines]
    assert found == [change for change in log if change["wallet_id"] == wallet]


def test_follow_ends_without_an_error_when_its_output_is_closed(site):
    """It ends before the next change, which may be days later."""
    with following() as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_feed_has_the_filters_of_frames_changes(site, command):
    contract = frames.tokens(site.database)["contract"][0]
    command("wallets", "label", site.ids[0], "Treasury")
    command("collections", "label", contract, "Salt Harbours").says()
    update = "UPDATE wallets SET wallet_group = 'house' WHERE wallet_id IN (?, ?)"
    run(site.database, update, *site.ids[:2])
    first, last = log_of(site)[2]["observed_at"], log_of(site)[-1]["observed_at"]
    for options, filters in [
        (["--wallet", "Treasury"], {"wallet": "Treasury"}),
        (["--group", "house"], {"group": "house"}),
        (["--contract", "salt harbours"], {"contract": contract}),
        (["--until", first], {"until": first}),
        (["--since", last, "--until", last], {"since": last, "until": last}),
        (["--until", "yesterday"], {"until": "yesterday"}),
        (["--until", "today"], {}),
        (
            ["--group", "house", "--contract", contract, "--after", 3],
            {"group": "house", "contract": contract, "after": 3},
        ),
    ]:
        ids = frames.changes(site.database, **filters)["change_id"].tolist()
        feed = command("changes", *options, "--json")
        assert [change["change_id"] for change in feed.json] == ids
        table = command("changes", *options, "--limit", 2)
        lines = table.out.splitlines()[2:]
        assert [int(line.split()[-1]) for line in lines] == ids[-2:]
        assert ("No changes." in table.err) == (not ids)
