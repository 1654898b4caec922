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
from tests.kit.mirrored_site import Site
from tests.kit.serve_process import query

STRANGER = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def treasury(site, command) -> str:
    """The first wallet, with a label."""
    command("wallets", "label", site.ids[0], "Treasury").says()
    return site.ids[0]


def view(site: Site, name: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(site.database)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]


def test_holdings_as_json_are_the_rows_of_the_view_or_some_of_them(site, command, treasury):
    amounts = [str(2**256 - 1), "0012", "1.5", "0"]
    for token, amount in zip(site.held(treasury), amounts, strict=False):
        site.world.set_amount(treasury, token, amount)
    site.sync()
    done = command("holdings", "--json")
    rows = done.json
    assert (done.code, done.err, rows) == (0, "", view(site, "holdings"))
    assert set(amounts) <= {row["amount"] for row in rows}
    assert amounts[0] in command("holdings").out
    contract = rows[0]["contract_address"]
    for words, name, value in (
        (("--wallet", site.ids[2].upper()), "wallet_id", site.ids[2]),
        (("--contract", f"0x{contract[2:].upper()}"), "contract_address", contract.lower()),
        (("--wallet", STRANGER), "wallet_id", STRANGER),
    ):
        some = command("holdings", *words, "--json").json
        assert some == [row for row in rows if row[name].lower() == value]


def test_no_holdings_and_unknown_holdings_are_distinguished(site, command, treasury):
    first = command("changes", "--json").json[0]["observed_at"][:19].replace("T", " ")
    empty = site.world.add_wallet()
    site.sync(empty)
    for words, says in (
        ("--as-of 2000-01-01", f"is from {first} UTC. Holdings before it are unknown; choose a"),
        ("--as-of 2000-01-01 --wallet Treasury", "wallet Treasury at the end of 2000-01-01 UTC"),
        (f"--wallet {STRANGER}", f"or read another with `nftsync sync {STRANGER}`"),
        (f"--contract 0x{0:040}", "list the known contracts with `nftsync collections`"),
        (f"--wallet {empty}", "No holdings."),
    ):
        assert command("holdings", *words.split()).tells(says, code=0).err.count("\n") == 1


def test_a_table_shows_some_rows_and_how_to_see_all(site, command, treasury):
    few = command("holdings", "--limit", 3)
    assert few.err == "3 of 20 holdings. Show all: --limit 0, or --json.\n"
    assert few.out.count("Treasury") == 3
    assert command("holdings", "--limit", 0).says(*site.ids[1:]).err == ""
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
        done = command(*words).says(rows[tokens[0]]["blockchain_token_id"])
        assert " on-chain id" in next(x for x in done.out.splitlines() if "amount" in x)
    assert not {"\x1b", "\u202e"} & set(command("holdings").says("[red]evil[/red]").out)


def test_changes_as_json_are_the_rows_of_the_view_from_a_time_on(one_day, site, command, treasury):
    site.world.remove(treasury, site.held(treasury)[0])
    site.sync()
    rows = command("changes", "--json").json
    stored = view(site, "balance_changes")
    assert [{name: row[name] for name in stored[0]} for row in rows] == stored
    names = {row["token_id"]: row["name"] for row in view(site, "tokens")}
    for row in rows:
        label = "Treasury" if row["wallet_id"] == treasury else None
        assert (row["name"], row["wallet_label"]) == (names[row["token_id"]], label)
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
    query(site.database, "UPDATE wallets SET label = ? WHERE wallet_id = ?", label, site.ids[0])
    query(site.database, "UPDATE tokens SET name = ?", label)
    typed = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0"]
    with subprocess.Popen(typed, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        printed = [process.stdout.readline()]
        process.terminate()
    for words in ("holdings", "wallets", "changes", "find x", f"evidence {site.ids[0]} --at today"):
        printed.append(command(*words.split(), "--json").says().out)
    for out in printed:
        assert not set(ACTING) & set(out) - set("abcm31")
        assert "\\u009b31m\\u202eb\\u2028\\u007f\\ufeff\\u200bc" in out
        assert SHOWN in out
        assert json.dumps(label) in json.dumps(json.loads(out))


def test_find_prints_wallets_and_tokens_by_name(site, command, treasury):
    (found,) = command("find", "treas", "--json").json
    assert list(found) == ["kind", "name", "id", "collection", "holders", "tokens"]
    assert [*found.values()] == ["wallet", "Treasury", treasury, None, None, 5]
    token = site.held(treasury)[0]
    site.world.edit_metadata(token, {"name": "Quite\x1b[2J Alone"})
    site.sync()
    assert "\x1b" not in command("find", "quite", "alone").says(token).said
    nothing = command("find", "Tresury").tells(code=0)
    assert nothing.err == "No match for 'Tresury'; similar names: 'Treasury'\n"
    assert command("find", "Tresury", "--json").json == []
    assert command("find", " ").code == 2


def test_commands_find_a_wallet_by_its_label(site, command, treasury):
    for wallet, label in zip(site.ids[1:], ("Desk", "desk"), strict=False):
        command("wallets", "label", wallet, label)
    url = site.server.url
    for words in (("holdings", "--json", "--wallet"), ("evidence", "--json", "--at", utc())):
        done = command(*words, "treasury").says(treasury)
        assert done == command(*words, treasury)
    command("check", "Treasury", "--base-url", url).says(f"wallet {treasury} was read")
    done = command("sync", "Treasury", site.ids[1], "--json", "--base-url", url)
    assert done.json["wallets"]["total"] == 2
    assert site.sync("Desk").wallets.total == 1
    command("wallets", "label", "Treasury", "Vault").says()
    command("wallets", "untrack", "Vault", "desk").says()
    rows = {row["wallet_id"]: row for row in command("wallets", "--json").json}
    assert rows[treasury]["label"] == "Vault"
    assert [rows[each]["tracked"] for each in site.ids] == [0, 1, 0, 1]
    new = site.database.with_name("new.db")
    cases = [("Treasury", "neither a wallet id"), (5, "an id, a label or a list")]
    cases += [(empty, "no wallets to read. Name wallets") for empty in ([], (), iter([]), {})]
    for named, problem in cases:
        with pytest.raises(InputError, match=problem):
            nftsync.sync(named, base_url=url, database=new, progress=False)
    assert not new.exists()


ENTRIES = ("opening", "initial", "received", "sent", "closing")


def test_transfers_name_both_wallets_and_a_statement_adds_up(site, command, treasury):
    receiver, token, start = site.ids[1], site.held(treasury)[0], utc()
    site.world.transfer(treasury, receiver, token, 1)
    site.sync()
    (transfer,) = command("transfers", "--since", start, "--json").json
    shown = ("kind", "amount", "from_wallet_id", "from_label", "to_wallet_id")
    expected = ["transfer", "1", treasury, "Treasury", receiver]
    assert [transfer[name] for name in shown] == expected
    assert transfer["observed_after"] < transfer["observed_at"]
    command("transfers", "--wallet", "Treasury").says("Treasury", receiver)
    assert "No transfers." in command("transfers", "--until", start).err
    for by in ("group", "wallet", "collection"):
        *rows, total = command("statement", "--from", start, "--by", by, "--json").json
        for unit, kind in (("", int), ("_amount", str)):
            names = [f"{name}{unit}" for name in ENTRIES]
            assert all(isinstance(row[name], kind) for row in rows for name in names)
            opening, *_, received, sent, closing = (int(total[name]) for name in names)
            assert opening + received - sent == closing == sum(int(row[names[-1]]) for row in rows)
        assert (total["received_amount"], total["sent_amount"]) == ("1", "1")
    by_wallet = ("statement", "--from", start, "--by", "wallet")
    assert f"1 of {len(site.ids)} rows." in command(*by_wallet, "--limit", "1").says("total").err
    prices = site.database.with_name("prices.csv")
    prices.write_text(f"token_id,date,price,currency\n{token},{start[:10]},1.10,EUR\n")
    priced = command(*by_wallet, "--prices", prices).says("opening EUR  closing EUR  no price")
    assert f"holdings have no price at {start[:10]}" in priced.err
    rows = command(*by_wallet, "--prices", prices, "--json").json
    assert {row["closing_value_EUR"] for row in rows} <= {"0.00", "1.10", "2.20", "3.30"}
    prices.write_text(prices.read_text().replace("1.10", "one"))
    problem = f"{prices}, line 2, column price: 'one' is not a price"
    command(*by_wallet, "--prices", prices).tells(problem)
    command("statement").tells("--from")
    command("statement", "--from", "2999-01-01").tells("future")
