"""The commands that read: columns, exactness, exit codes, and wallets by their label."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

import nftsync
from nftsync.errors import InputError
from tests.kit.database import utc
from tests.kit.mirrored_site import Site, run

STRANGER = "00000000-0000-4000-8000-000000000001"


def view(site: Site, name: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(site.database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]


def test_holdings_as_json_are_the_rows_of_the_view_or_some_of_them(site, command):
    amounts = [str(2**256 - 1), "0012", "1.5", "0"]
    for token, amount in zip(site.held(site.ids[0]), amounts, strict=False):
        site.world.set_amount(site.ids[0], token, amount)
    site.sync()
    command("wallets", "label", site.ids[1], "Treasury")
    done = command("holdings", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == view(site, "holdings")
    assert set(amounts) <= {row["amount"] for row in done.json}
    assert amounts[0] in command("holdings").out
    rows = done.json
    contract = rows[0]["contract_address"]
    one = command("holdings", "--wallet", site.ids[2].upper(), "--json").json
    assert one == [row for row in rows if row["wallet_id"] == site.ids[2]]
    same = command("holdings", "--contract", f"0x{contract[2:].upper()}", "--json").json
    assert same == [row for row in rows if row["contract_address"].lower() == contract.lower()]
    assert command("holdings", "--wallet", STRANGER, "--json").out == "[]\n"


def test_holdings_as_of_a_time_say_how_certain_they_are(site, command):
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    before = utc()
    site.world.set_amount(wallet, token, "123456")
    site.sync()
    rows = command("holdings", "--as-of", before, "--json").json
    names = [*view(site, "holdings")[0], "confirmed_before", "confirmed_after", "certainty"]
    assert all(list(row) == names for row in rows)
    assert "123456" not in {row["amount"] for row in rows}
    certainty = {row["wallet_id"]: row["certainty"] for row in rows}
    assert certainty == {each: "gap" if each == wallet else "bracketed" for each in site.ids}
    assert all(row["confirmed_before"] < before < row["confirmed_after"] for row in rows)


def test_no_holdings_and_unknown_holdings_are_distinguished(site, command):
    command("wallets", "label", site.ids[0], "Treasury")
    first = command("changes", "--json").json[0]["observed_at"]
    empty = site.world.add_wallet()
    site.sync(empty)
    for words, said in (
        (
            ("--as-of", "2000-01-01"),
            f"is from {first[:19].replace('T', ' ')} UTC. Holdings before it are unknown; choose a",
        ),
        (
            ("--as-of", "2000-01-01", "--wallet", "Treasury"),
            "wallet Treasury at the end of 2000-01-01 UTC",
        ),
        (("--wallet", STRANGER), f"or read another with `nftsync sync {STRANGER}`"),
        (("--contract", f"0x{0:040}"), "list the known contracts with `nftsync collections`"),
        (("--wallet", empty), "No holdings."),
    ):
        nothing = command("holdings", *words).tells(said, code=0)
        assert len(nothing.err.splitlines()) == 1


def test_a_table_shows_some_rows_and_how_to_see_all(site, command):
    command("wallets", "label", site.ids[0], "Treasury")
    few = command("holdings", "--limit", 3)
    assert few.err == "3 of 20 holdings. Show all: --limit 0, or --json.\n"
    assert few.out.count("Treasury") == 3
    everything = command("holdings", "--limit", 0)
    assert everything.err == ""
    assert all(wallet in everything.out for wallet in site.ids[1:])
    assert command("holdings", "--limit", 3, "--json").json[19:]
    done = command("changes", "--limit", 2)
    assert [line.split()[-1] for line in done.out.splitlines()[2:]] == ["19", "20"]
    assert done.err == "The newest 2 of 20 changes. Show all: --limit 0, or --json.\n"
    assert command("changes", "--limit", 0).err == ""
    assert command("changes", "--after", 20).err == "No changes.\n"


def test_the_table_shows_editions_with_a_number_only_and_no_hostile_metadata(site, command):
    tokens = site.held(site.ids[0])[:3]
    for token, number in zip(tokens, ({"editionId": 3}, {"editionId": 0}, {}), strict=True):
        site.world.edit_metadata(token, {"name": "One of a series", "totalEdition": 25, **number})
    site.world.edit_metadata(site.held(site.ids[1])[0], {"name": "\x1b[2J[red]evil[/red]\u202e"})
    site.sync()
    rows = {row["token_id"]: row for row in command("holdings", "--json").json}
    assert [rows[token]["edition_id"] for token in tokens] == [3, 0, None]
    table = command("holdings", "--wallet", site.ids[0]).out
    assert (table.count("3 of 25"), table.count("of 25")) == (1, 1)
    for words in (["holdings"], ["evidence", site.ids[0], "--at", "today"]):
        heading = next(line for line in command(*words).out.splitlines() if "amount" in line)
        assert " on-chain id" in heading
        assert rows[tokens[0]]["blockchain_token_id"] in command(*words).out
    out = command("holdings").out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[red]evil[/red]" in out


READERS = f"""find x, holdings, changes, collections, verify --sample 0, changes --follow, status,
    export out, snapshot copy.db,
    evidence {STRANGER} --at 2026-01-01, backup copies, wallets untrack {STRANGER},
    wallets label {STRANGER} Ann, inbox, inbox show {STRANGER}, inbox requeue {STRANGER},
    inbox requeue --state dead, inbox prune --older-than 1d, routes suggest"""


def test_a_missing_database_is_named_and_nothing_is_made(command, tmp_path):
    for words in READERS.split(","):
        command(*words.split(), "-d", "nothing.db").tells("nothing.db", code=1)
        assert not list(tmp_path.iterdir()), words


def test_changes_as_json_are_the_rows_of_the_view_from_a_time_on(one_day, site, command):
    site.world.remove(site.ids[0], site.held(site.ids[0])[0])
    site.sync()
    command("wallets", "label", site.ids[0], "Treasury")
    rows = command("changes", "--json").json
    stored = view(site, "balance_changes")
    assert [{name: row[name] for name in stored[0]} for row in rows] == stored
    names = {row["token_id"]: row["name"] for row in view(site, "tokens")}
    assert all(row["name"] == names[row["token_id"]] for row in rows)
    called = {row["wallet_id"]: row["wallet_label"] for row in rows}
    assert called == {wallet: "Treasury" if wallet == site.ids[0] else None for wallet in site.ids}
    assert rows[-1]["new_amount"] is None
    assert [row["baseline"] for row in rows] == [1] * 20 + [0]
    for since, count in ((rows[-1]["observed_at"], 1), ("today", 21), ("1h", 21), ("0s", 0)):
        assert len(command("changes", "--since", since, "--json").json) == count


#: A C1 control, a direction mark, a line separator, DEL, a character without width; and an emoji
#: of several characters, which is shown.
ACTING = "a\x9b31m\u202eb\u2028\x7f\ufeff\u200bc"
SHOWN = "ü👩\u200d🚀"


def test_json_holds_no_character_that_acts_on_a_terminal(site, command):
    label = f"x {ACTING} {SHOWN}"
    run(site.database, "UPDATE wallets SET label = ? WHERE wallet_id = ?", label, site.ids[0])
    run(site.database, "UPDATE tokens SET name = ?", label)
    typed = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0"]
    with subprocess.Popen(typed, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        assert process.stdout is not None
        printed = [process.stdout.readline()]
        process.terminate()
    evidence = f"evidence {site.ids[0]} --at today"
    for words in ("holdings", "wallets", "changes", "find x", evidence):
        printed.append(command(*words.split(), "--json").says().out)
    for out in printed:
        assert not set(ACTING) & set(out) - set("abcm31")
        assert "\\u009b31m\\u202eb\\u2028\\u007f\\ufeff\\u200bc" in out
        assert SHOWN in out
        assert json.dumps(label) in json.dumps(json.loads(out))


def test_find_prints_wallets_and_tokens_by_name(site, command):
    command("wallets", "label", site.ids[0], "Treasury")
    (found,) = command("find", "treas", "--json").json
    assert list(found) == ["kind", "name", "id", "collection", "holders", "tokens"]
    assert [*found.values()] == ["wallet", "Treasury", site.ids[0], None, None, 5]
    token = site.held(site.ids[0])[0]
    site.world.edit_metadata(token, {"name": "Quite\x1b[2J Alone"})
    site.sync()
    table = command("find", "quite", "alone")
    assert token in table.out
    assert "\x1b" not in table.said
    nothing = command("find", "Tresury").tells(code=0)
    assert nothing.err == "No match for 'Tresury'; similar names: 'Treasury'\n"
    assert command("find", "Tresury", "--json").json == []
    assert command("find", " ").code == 2


def test_commands_find_a_wallet_by_its_label(site, command):
    for number, label in enumerate(["Treasury", "Desk", "desk"]):
        command("wallets", "label", site.ids[number], label)
    wallet, url = site.ids[0], site.server.url
    for words in (("holdings", "--json", "--wallet"), ("evidence", "--json", "--at", utc())):
        by_id, by_label = (command(*words, each) for each in (wallet, "treasury"))
        assert by_id == by_label
        assert wallet in by_label.out
    command("check", "Treasury", "--base-url", url).says(f"wallet {wallet} was read")
    done = command("sync", "Treasury", site.ids[1], "--json", "--base-url", url)
    assert done.json["wallets"]["total"] == 2
    assert site.sync("Desk").wallets.total == 1
    assert command("wallets", "label", "Treasury", "Vault").code == 0
    assert command("wallets", "untrack", "Vault", "desk").code == 0
    rows = {row["wallet_id"]: row for row in command("wallets", "--json").json}
    assert rows[wallet]["label"] == "Vault"
    assert [rows[each]["tracked"] for each in site.ids] == [0, 1, 0, 1]
    new = site.database.with_name("new.db")
    cases = [("Treasury", "neither a wallet id"), (5, "an id, a label or a list")]
    none = "no wallets to read. Name wallets"
    for named, problem in [*cases, *((empty, none) for empty in ([], (), iter([]), {}))]:
        with pytest.raises(InputError, match=problem):
            nftsync.sync(named, base_url=url, database=new, progress=False)
    assert not new.exists()


ENTRIES = ("opening", "initial", "received", "sent", "closing")


def test_transfers_name_both_wallets_and_a_statement_adds_up(site, command):
    sender, receiver = site.ids[:2]
    token = site.held(sender)[0]
    command("wallets", "label", sender, "Treasury")
    start = utc()
    site.world.transfer(sender, receiver, token, 1)
    site.sync()
    (transfer,) = command("transfers", "--since", start, "--json").json
    assert (transfer["kind"], transfer["amount"]) == ("transfer", "1")
    assert (transfer["from_wallet_id"], transfer["from_label"]) == (sender, "Treasury")
    assert transfer["to_wallet_id"] == receiver
    assert transfer["observed_after"] < transfer["observed_at"]
    table = command("transfers", "--wallet", "Treasury").out
    assert "Treasury" in table
    assert receiver in table
    assert "No transfers." in command("transfers", "--until", start).err
    for by in ("group", "wallet", "collection"):
        *rows, total = command("statement", "--from", start, "--by", by, "--json").json
        for unit, kind in (("", int), ("_amount", str)):
            names = [f"{name}{unit}" for name in ENTRIES]
            assert all(isinstance(row[name], kind) for row in rows for name in names)
            opening, *_, received, sent, closing = (int(total[name]) for name in names)
            assert opening + received - sent == closing == sum(int(row[names[-1]]) for row in rows)
        assert (total["received_amount"], total["sent_amount"]) == ("1", "1")
    done = command("statement", "--from", start, "--by", "wallet", "--limit", "1")
    assert "total" in done.out
    assert f"1 of {len(site.ids)} rows." in done.err
    prices = site.database.parent / "prices.csv"
    prices.write_text(f"token_id,date,price,currency\n{token},{start[:10]},1.10,EUR\n")
    priced = command("statement", "--from", start, "--prices", prices, "--by", "wallet")
    assert "opening EUR  closing EUR  no price" in priced.out
    assert f"holdings have no price at {start[:10]}" in priced.err
    rows = command("statement", "--from", start, "--prices", prices, "--json").json
    assert {row["closing_value_EUR"] for row in rows} <= {"0.00", "1.10", "2.20", "3.30"}
    prices.write_text(prices.read_text().replace("1.10", "one"))
    wrong = command("statement", "--from", start, "--prices", prices)
    assert (wrong.code, wrong.out) == (2, "")
    assert f"{prices}, line 2, column price: 'one' is not a price" in wrong.err
    assert "--from" in command("statement").err
    assert "future" in command("statement", "--from", "2999-01-01").err
