"""`check`: a line each for settings, database, API and secret, with what to do."""

import os
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.kit.database import utc
from tests.kit.provider import balances, reply
from tests.kit.serve_process import query
from tests.kit.worlds import Outcome

STRANGER = "00000000-0000-4000-8000-000000000001"
SECRET = "correct horse battery staple"
NOWHERE = ("--base-url", "http://127.0.0.1:9")


def lines_of(done: Outcome) -> dict[str, str]:
    """Return the verdict of each check."""
    found = re.findall(r"^(ok|warning|FAILED|skipped) +([^:]+): (.*)$", done.out, re.MULTILINE)
    return {what: f"{verdict}: {message}" for verdict, what, message in found}


def test_all_is_well_and_nothing_is_stored(site, command, tmp_path, monkeypatch):
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", SECRET)
    done = command("check", "-d", site.database, "--base-url", site.server.url)
    assert (done.code, done.err) == (0, "")
    shown = [" ".join(line.split()) for line in done.out.splitlines()]
    assert f"database flag --database {site.database}" in shown
    assert "webhook_secret environment NFTSYNC_WEBHOOK_SECRET set" in shown
    verdicts = lines_of(done)
    ends = {what: verdict.partition(":")[0] for what, verdict in verdicts.items()}
    assert ends == dict.fromkeys(("settings", "database", "API", "webhook secret"), "ok")
    assert f"wallet {site.ids[0]} was read: 5 balances" in verdicts["API"]
    new = tmp_path / "new.db"
    done = command("check", site.ids[3].upper(), "-d", new, "--base-url", site.server.url)
    assert f"ok: wallet {site.ids[3]} was read" in lines_of(done)["API"]
    assert not new.exists()


def test_settings_that_are_not_set_are_counted_or_shown_on_request(command, monkeypatch):
    monkeypatch.setenv("NFTSYNC_TIMEOUT", "7")
    few, everything = command("check").out, command("check", "--all").out
    for shown in (few, everything):
        assert re.search(r"^timeout +environment NFTSYNC_TIMEOUT +7$", shown, re.MULTILINE)
        assert re.search(r"^database +default +/", shown, re.MULTILINE)
    more = sum(" default " in line for line in everything.splitlines()) - 1
    assert f"\n{more} other settings not set. Show all: nftsync check --all\n" in few
    assert "retries" not in few
    assert re.search(r"^retries +default +5$", everything, re.MULTILINE)


def test_missing_settings_are_named_with_advice(command, tmp_path):
    for words, code, expected in (
        ((), 1, {"API": "FAILED: no base_url; set it with --base-url"}),
        ((), 1, {"webhook secret": "skipped: not set"}),
        (NOWHERE, 0, {"API": "skipped: no wallet to read; name one: nftsync check WALLET"}),
        ((STRANGER, *NOWHERE, "--retries", 1), 1, {"API": "FAILED: "}),
    ):
        done = command("check", *words)
        verdicts = lines_of(done)
        assert done.code == code
        assert all(verdicts[what].startswith(text) for what, text in expected.items()), verdicts
    assert "check base_url, and that this machine can reach it" in verdicts["API"]
    assert "a sync creates it" in verdicts["database"]
    assert list(tmp_path.iterdir()) == []


def test_plain_http_is_a_warning_unless_it_stays_on_this_machine(command):
    near = ("https://api.example.com", "http://127.0.0.1:8788", "http://[::1]:8788")
    far = ("http://api.example.com", "http://10.0.0.7")
    for url in (*near, "http://localhost:8788", *far):
        done = command("check", "--base-url", url)
        assert ("\nwarning " in done.out) == (url in far), done.out


@pytest.mark.parametrize(
    ("secret", "verdict"),
    [("", "FAILED"), ("  ", "FAILED"), ("tr0ub4dor&3", "warning"), (SECRET, "ok")],
)
def test_a_secret_must_be_able_to_sign(command, monkeypatch, secret, verdict):
    monkeypatch.setenv("NFTSYNC_WEBHOOK_SECRET", secret)
    done = command("check")
    assert lines_of(done)["webhook secret"].startswith(f"{verdict}: ")
    assert not secret.strip() or secret not in done.said


def test_an_unusable_database_fails_and_an_empty_file_is_ok(site, tmp_path, command, monkeypatch):
    def verdict(database: Path) -> str:
        return lines_of(command("check", "-d", database))["database"]

    (tmp_path / "text.db").write_bytes(b"not at all a database " * 100)
    (tmp_path / "folder.db").mkdir()
    for name in ("text.db", "folder.db"):
        assert re.match(f"FAILED: .*{name}", verdict(tmp_path / name))
    with closing(sqlite3.connect(site.database)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE wallets SET tracked = 7 WHERE wallet_no = 1")
        connection.commit()
        constraint = "is damaged (CHECK constraint failed in wallets)"
        assert constraint in verdict(site.database)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    with site.database.open("r+b") as file:
        file.seek(4096 * 5)
        file.write(b"\xff" * 4096 * 20)
    assert re.match("FAILED: .*damaged", verdict(site.database))
    empty = tmp_path / "empty.db"
    empty.touch()
    assert verdict(empty).startswith("ok: ")
    assert empty.stat().st_size == 0
    # The nearest folder that is there decides; root may write everywhere, so pretend.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    assert f"{tmp_path} is not writable" in verdict(tmp_path / "data" / "new.db")


def test_a_clock_that_was_ahead_is_reported_with_its_effect(site, command):
    """A sync a year ahead puts each later change at that one moment."""
    effect = "--as-of does not show them for earlier times"
    url = ("--base-url", site.server.url)
    commands = (("status",), ("check", *url), ("sync", *url))
    assert effect not in "".join(command(*words).said for words in commands)
    ahead = utc(365 * 86_400)
    query(site.database, "UPDATE wallet_state_rows SET observed_at = ?", ahead)
    for words in commands:
        command(*words).says(effect, f"{ahead[:19].replace('T', ' ')} UTC")
    assert ahead[:19] in command("status", "--json").json["warning"]


def test_the_providers_clock_is_compared_with_this_one(command, provider, tmp_path):
    given = ("check", STRANGER, "--base-url", provider.url, "-d", tmp_path / "none.db")
    moment = datetime.now(UTC)
    for minutes, age, says in ((-3, "0", 0), (-60, "3600", 0), (-60, "0", "3,6"), (9, "", "5")):
        date = format_datetime(moment + timedelta(minutes=minutes), usegmt=True)
        provider.always(reply(balances(), date=date, age=age))
        clock = lines_of(command(*given)).get("clock")
        assert (clock is None) == (not says), clock
        if says:
            way = "ahead of" if minutes < 0 else "behind"
            assert re.match(rf"warning: this clock is {says}\d\d s {way} the provider's", clock)


WATCH = """
[destinations]
ops = { kind = "webhook", url = "https://alerts.example/?key=hush", secret_file = "signing" }
far = { kind = "webhook", url = "http://alerts.example/hush", secret_file = "signing" }
short = { kind = "webhook", url = "https://alerts.example/", secret_file = "hush" }
slack = { kind = "slack", url_file = "slack" }
pager = { kind = "command", command = ["notify", "hush"] }
mail = { kind = "email", server = "mail.example", from = "a@x.y", recipients = ["b@x.y"] }
[watch.moves]
on = ["sent", "removals_held"]
to = ["ops", "slack"]
[watch.house]
on = ["sent"]
to = ["pager"]
groups = ["hose"]
"""


def test_rules_and_destinations_are_checked_and_nothing_is_sent(site, command, tmp_path):
    (tmp_path / "signing").write_text(f"whsec_{'A' * 40}")
    (tmp_path / "hush").write_text("whsec_hush")
    (tmp_path / "slack").write_text("https://hooks.example/hush")
    (tmp_path / "nftsync.toml").write_text(WATCH)
    query(site.database, "UPDATE wallets SET wallet_group = 'house'")
    asked = ("check", "-d", site.database, "--base-url", site.server.url)
    done = command(*asked).says(code=1)
    verdicts = {
        what: verdict
        for what, verdict in lines_of(done).items()
        if what.startswith(("destination", "watch"))
    }
    far, short, house = (
        verdicts.pop(what) for what in ("destination far", "destination short", "watch house")
    )
    assert re.match(r"FAILED: .*allow_http = true", far)
    assert re.match(r"FAILED: .*must be whsec_ and the Base64", short)
    assert re.match(r"FAILED: .*house", house)
    assert verdicts == {
        "destination ops": "ok: webhook to alerts.example",
        "destination slack": "ok: slack",
        "destination pager": "ok: command notify",
        "destination mail": "ok: email to b@x.y through mail.example",
        "watch moves": "ok: sent, removals_held to ops, slack",
    }
    assert "hush" not in done.said.replace(f"{tmp_path}/hush", "")
    (tmp_path / "signing").unlink()
    missing = lines_of(command(*asked))
    assert missing["destinations"].startswith("FAILED: destinations.ops.secret_file: cannot read")
    assert not [what for what in missing if what.startswith("watch")]
