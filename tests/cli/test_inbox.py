"""`inbox` and `inbox show`: what is stored is shown whole, and acts on nothing."""

import base64
import contextlib
import io
import json
import re
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync.cli.inbox import print_webhook, webhook_as_json
from nftsync.store.catalog import TABLES
from tests.kit.inbox import LONG_AGO, Inbox, body_of, webhook
from tests.kit.provider import token, wallet

COLUMNS = [name for name in TABLES["webhooks"].columns if name != "body"]
HOSTILE = "\x1b[2J[red]\u202eevil\x07\u2028"


def test_the_newest_come_first_of_a_state_or_of_all(inbox, command):
    empty = command("inbox")
    assert (empty.code, empty.out, empty.err) == (0, "", "No webhooks.\n")
    assert command("inbox", "--json").out == "[]\n"
    inbox.fill(1_203)  # more than are read at once
    done = command("inbox")
    shown = re.findall(r"0000000e-\S+", done.out)
    assert shown == [webhook(number) for number in range(1_202, 1_152, -1)]
    assert done.err == "The newest 50 of 1,203 webhooks. Show all: --limit 0, or --json.\n"
    assert command("inbox", "list").out == done.out
    everything = command("inbox", "--limit", 0)
    assert (everything.out.count("0000000e-"), everything.err) == (1_203, "")
    rows = command("inbox", "--json").json
    assert len(rows) == 1_203
    assert all(list(row) == COLUMNS for row in rows)
    assert rows[0] == {name: inbox.row(webhook(1_202))[name] for name in COLUMNS}
    assert len(command("inbox", "--json", "--limit", 7).json) == 7
    for number in (1, 3):
        inbox.settle(number, "dead")
    for words in (["inbox"], ["inbox", "list"]):
        dead = command(*words, "--state", "dead", "--json").json
        assert [row["webhook_id"] for row in dead] == [webhook(3), webhook(1)]
    command("inbox", "--state", "dead", "--limit", 1).says("The newest 1 of 2 webhooks.")
    nothing = command("inbox", "--state", "unrouted")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No webhooks are unrouted.\n")
    assert command("inbox", "--state", "gone").code == 2


def test_hostile_text_acts_on_no_terminal(inbox, command):
    inbox.fill(1)
    hostile = ("action", "resource_type", "created_at_utc", "changes", "last_error")
    inbox.settle(0, "dead", **dict.fromkeys(hostile, HOSTILE), body=HOSTILE.encode())
    for words in (("inbox",), ("inbox", "show", webhook(0))):
        done = command(*words).says("[red]")
        assert not set(done.out) & set("\x1b\u202e\x07\u2028")


def test_flags_stand_before_or_after_a_subcommand(inbox, command, tmp_path):
    inbox.fill(1)
    other = Inbox(tmp_path / "other.db")
    (tmp_path / "other.toml").write_text('database = "other.db"')
    assert command("inbox", "list", "--json").json[0]["webhook_id"] == webhook(0)
    flags: list[tuple[object, ...]] = [("-d", other.database), ("--config", "other.toml")]
    for before, after in [*product(flags, [(), *flags]), *product([()], flags)]:
        assert command("inbox", *before, "list", *after, "--json").json == []
    command("inbox", "--state", "dead", "requeue", webhook(0)).says("after the subcommand", code=2)


def test_show_shows_the_body_and_what_it_caused(inbox, command):
    inbox.fill(2)
    inbox.settle(0, "done", run_id=7, look_again_at=LONG_AGO)
    inbox.knows(wallets=[wallet(1)], tokens=[token(1)])
    inbox.run(
        "INSERT INTO balance_change_rows (change_id, wallet_no, token_no, observed_at, baseline,"
        " webhook_id) SELECT value, 1, 1, '', 0, ? FROM json_each(?)",
        *(webhook(0), json.dumps([*range(12)])),
    )
    inbox.run("INSERT INTO token_change_rows VALUES (1, 1, '{}', '{}', '', 7, ?)", webhook(0))
    done = command("inbox", "show", webhook(0).upper())
    assert (done.code, done.err) == (0, "")
    assert '"resourceType": "Wallet"' in done.out
    assert "and 2 more. Show all: --json" in done.out
    whole = command("inbox", "show", webhook(0), "--json").json
    row = inbox.row(webhook(0))
    assert {name: whole[name] for name in COLUMNS} == {name: row[name] for name in COLUMNS}
    assert whole["body"] == body_of(0).decode()
    assert whole["body_sha256"] == row["body_sha256"]
    assert whole["look_again_at"] == LONG_AGO
    assert whole["pruned"] is False
    assert [change["change_id"] for change in whole["balance_changes"]] == list(range(12))
    first = {"change_id": 0, "wallet_id": wallet(1), "token_id": token(1)}
    assert whole["balance_changes"][0] == first
    assert whole["token_changes"] == [{"change_id": 1, "token_id": token(1)}]
    assert command("inbox", "show", webhook(1), "--json").json["balance_changes"] == []
    command("inbox", "prune", "--older-than", "1d")
    assert "pruned" in command("inbox", "show", webhook(0)).out
    whole = command("inbox", "show", webhook(0), "--json").json
    assert (whole["body"], whole["pruned"]) == (None, True)
    assert whole["body_sha256"] == row["body_sha256"]
    assert "body_base64" not in whole


def test_an_id_that_is_unknown_or_none_is_a_usage_error(inbox, command):
    names = (webhook(9), "q-" + "0" * 64, "q-12", "x\x1b[2J", "")
    for action, name in product(("show", "requeue"), names):
        done = command("inbox", action, name).tells()
        assert done.err.count("\n") == 1
        assert "\x1b" not in done.err


@settings(max_examples=30)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.text(max_size=60))
@example(b"[" * 100_000, "")
def test_whatever_the_body_is_it_can_be_shown_and_got_back(body, text):
    """JSON holds all of it, and what is for people nothing that a terminal obeys."""
    for content in (body, json.dumps({text: text}, ensure_ascii=False).encode()):
        whole = webhook_as_json({"action": text}, content)
        if whole["body"] is None:
            assert base64.b64decode(whole["body_base64"]) == content
        else:
            assert whole["body"].encode() == content
        json.dumps(whole)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            print_webhook({"action": text}, content)
        assert not set(printed.getvalue()) & {*map(chr, range(10)), *map(chr, range(11, 32))}
