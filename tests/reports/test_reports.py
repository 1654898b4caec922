"""Status, evidence and change feed, through their commands."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from nftsync import __version__, frames
from nftsync.reports.change_feed import ChangeFeed
from nftsync.store.database import named_rows
from tests.kit.database import at, begun, token_id, utc, wallet_id
from tests.kit.inbox import Inbox
from tests.kit.provider import wallet
from tests.kit.serve_process import query
from tests.kit.worlds import PATIENCE


def test_counts_and_the_newest_run_of_each_kind(site, command):
    new = command("status", "--json", "-d", begun(site.database.with_name("new.db"))).json
    assert {new[x] for x in ("last_sync", "last_replay", "oldest_wallet_age_s")} == {None}
    assert (new["wallets"], new["tokens"]) == ({}, 0)
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], "5000")
    site.sync()
    insert = "INSERT INTO sync_runs (kind, status, started_at) VALUES ('replay', 'ok', ?)"
    query(site.database, insert, utc())
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
        ("new_fields", found["new_fields"]),
    ]
    assert [one["field"] for one in found["new_fields"]] == ["metadata.attributes"]
    assert (sync["run_id"], sync["wallets_unchanged"], 0 <= age < 60) == (2, 3, True)
    assert (replay["run_id"], replay["kind"]) == (3, "replay")
    assert not {"plan", "first_sequence", "with_tokens"} & set(sync)
    out = command("status").out
    assert "4 ok; least recently read:" in out
    assert "ago (run 2: 4 wallets ok)" in out
    assert "digits" not in out
    query(site.database, "UPDATE balance_rows SET amount = '1e3' WHERE wallet_no = 1")
    Inbox(site.database).receive(b"[]")
    command("status").says(
        "sums leave out 5 with an amount that is not 1 to 100 digits",
        "1 quarantined; reasons: nftsync inbox --state quarantined",
    )


def test_ages_of_the_oldest_tracked_wallet_and_of_the_oldest_pending_webhook(build, command):
    def status():
        return command("status", "--json", "-d", build.path).says().json

    day = 86_400
    for number, age, tracked in ((1, 0, 1), (2, day, 1), (3, 2 * day, 0)):
        build.wallet(number, synced_at=utc(-age), status="ok", tracked=tracked)
    for age, state in ((3, "done"), (1, "pending"), (2, "pending"), (9, "quarantined")):
        build.insert("webhooks", webhook_id=str(age), received_at=utc(-age * day), state=state)
    found = status()
    assert found["wallets"] == {"ok": 3}
    assert found["inbox"] == {"done": 1, "pending": 2, "quarantined": 1}
    assert day <= found["oldest_wallet_age_s"] < day + 1_000
    assert 2 * day <= found["oldest_pending_age_s"] < 2 * day + 1_000
    build.connection.execute("UPDATE wallets SET synced_at = ?", (utc(day),))
    assert status()["oldest_wallet_age_s"] == 0  # the clock was set back


def test_max_age_names_the_stalest_wallet_never_read_before_all_and_none_untracked(site, command):
    assert command("status", "--max-age", "1h").says().err == ""
    update = "UPDATE wallets SET synced_at = '2020-01-01T00:00:00.000000Z', label = 'Vault\x1b[2J'"
    query(site.database, f"{update} WHERE wallet_id = ?", site.ids[1])
    done = command("status", "--max-age", "7d", "--json")
    assert (done.code, done.json["oldest_wallet_age_s"] > 7 * 86_400) == (1, True)
    assert site.ids[1] in done.err
    assert " d ago" in done.err
    assert "\x1b" not in done.err
    command("wallets", "add", wallet(9))
    command("status", "--max-age", "7d").says(f"wallet {wallet(9)} was never read", code=1)
    command("wallets", "untrack", *site.ids, wallet(9))
    assert command("status", "--max-age", "1s").says("none tracked").err == ""
    assert command("status", "--max-age", "6 hours").code == 2


#: Read at 2 and 10, stored at 3; read at 20 and 30, stored at 21; an incomplete read at 40.
EVIDENCE = [
    (1, 1, "unknown", None, 2, f"this wallet had no read yet. The first was at {at(2)}.", {}),
    (1, 2, "unknown", None, 2, f"The first, at {at(2)}, was under way.", {}),
    (2, 50, "unknown", None, None, "this wallet had no read yet. There is still none.", {}),
    (1, 3, "bracketed", 2, 10, f"read at {at(2)} and again at {at(10)}. Both reads", {1: "1"}),
    (1, 10, "bracketed", 2, 10, "all reads between them, found these holdings", {1: "1"}),
    (1, 15, "gap", 10, 20, "the change may have come before or after this time", {1: "1"}),
    (1, 20, "gap", 10, 20, "That read was under way at this time and not yet stored", {1: "1"}),
    (1, 21, "bracketed", 20, 30, "again at", {}),
    (1, 30, "bracketed", 20, 30, "again at", {}),
    (1, 30.000001, "open", 30, None, "nothing proves the holdings after it", {}),
    (1, 41, "open", 30, None, "1 change to these holdings came from incom", {2: "0012.50"}),
]


def test_evidence_is_the_reads_around_a_time(build, command):
    for number in (1, 2):
        build.wallet(number)
        build.token(number)
    run = {"kind": "sync", "status": "ok", "started_at": at(0), "finished_at": at(60)}
    build.insert("sync_runs", run_id=7, **run)
    build.state(1, 2, 10, 3, reads=2, run_id=7)
    build.change(1, 1, None, "1", 3, baseline=1)
    build.state(1, 20, 30, 21)
    build.change(1, 1, "1", None, 21)
    build.change(1, 2, None, "0012.50", 40)
    for number, then, certainty, before, after, text, held in EVIDENCE:
        words = ("evidence", wallet_id(number), "--at", at(then), "-d", build.path)
        found = command(*words, "--json").says().json
        proof = [found[name] for name in ("certainty", "confirmed_before", "confirmed_after")]
        assert proof == [certainty, *(time and at(time) for time in (before, after))], then
        assert text in found["statement"]
        amounts = {row["token_id"]: row["amount"] for row in found["holdings"]}
        assert amounts == {token_id(token): amount for token, amount in held.items()}
        states = [(row["reads"], row["run_id"], row["run_status"]) for row in found["reads"]]
        both = [(2, 7, "ok"), (1, None, None)]
        shown = both[:1] if then < 3 else both if then <= 20 else both[1:]
        assert states == (shown if number == 1 else []), then


@pytest.mark.parametrize("time", [(), ("--at", "today")])
def test_the_command_shows_the_present_as_text_or_one_json_object(site, command, time):
    command("wallets", "label", site.ids[0], "Treasury")
    words = ("evidence", site.ids[0].upper(), *time)
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


@contextmanager
def following(*filters: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0", *filters]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:
        yield process
        process.kill()


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
    with closing(sqlite3.connect(site.database)) as connection:
        select = "SELECT * FROM balance_changes WHERE wallet_id = ? ORDER BY change_id"
        log = named_rows(connection.execute(select, (wallet,)))
    assert [{name: change[name] for name in log[0]} for change in lines] == log
    assert [name for name in lines[-1] if name in log[0]] == list(log[0])
    assert {"wallet_label", "name"} <= set(lines[-1])
    assert lines[-1]["new_amount"] == str(2**256 - 1)


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
    query(site.database, update, *site.ids[:2])
    log = command("changes", "--json").json
    first, last = log[2]["observed_at"], log[-1]["observed_at"]
    both = {"group": "house", "contract": contract, "after": 3}
    for options, filters in [
        (["--wallet", "Treasury"], {"wallet": "Treasury"}),
        (["--group", "house"], {"group": "house"}),
        (["--contract", "salt harbours"], {"contract": contract}),
        (["--until", first], {"until": first}),
        (["--since", last, "--until", last], {"since": last, "until": last}),
        (["--until", "yesterday"], {"until": "yesterday"}),
        (["--until", "today"], {}),
        (["--group", "house", "--contract", contract, "--after", 3], both),
    ]:
        ids = frames.changes(site.database, **filters)["change_id"].tolist()
        feed = command("changes", *options, "--json")
        assert [change["change_id"] for change in feed.json] == ids
        table = command("changes", *options, "--limit", 2)
        lines = table.out.splitlines()[2:]
        assert [int(line.split()[-1]) for line in lines] == ids[-2:]
        assert ("No changes." in table.err) == (not ids)
