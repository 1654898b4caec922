"""The commands that read: their columns, their exactness, their exit codes."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nftsync.times import format_time
from tests.kit.mirrored_site import Site, run
from tests.kit.worlds import Outcome

Command = Callable[..., Outcome]
STRANGER = "00000000-0000-4000-8000-000000000001"

HOLDINGS = [
    *("wallet_id", "wallet_label", "wallet_group", "token_id", "contract_address"),
    *(
        "contract",
        "collection",
        "blockchain_token_id",
        "amount",
        "name",
        "description",
        "image",
        "animation_url",
    ),
    *("external_url", "background_color", "edition_id", "total_edition", "creator_name"),
    *("creator_image_url", "creator_external_page_url", "held_since", "balance_updated_at"),
    *("token_updated_at", "wallet_synced_at", "wallet_status"),
]
CHANGES = [
    *("change_id", "wallet_id", "token_id", "old_amount", "new_amount", "observed_at"),
    *("baseline", "run_id", "webhook_id"),
]


def view(site: Site, name: str, columns: list[str]) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(site.database)) as connection:
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


# holdings ---------------------------------------------------------------------------------------


def test_holdings_as_json_are_the_rows_of_the_view(site: Site, command: Command) -> None:
    amounts = [str(2**256 - 1), "0012", "1.5", "0"]
    for token, amount in zip(site.held(site.ids[0]), amounts, strict=False):
        site.world.set_amount(site.ids[0], token, amount)
    site.sync()
    command("wallets", "label", site.ids[1], "Treasury", "-d", site.database)
    done = command("holdings", "-d", site.database, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == view(site, "holdings", HOLDINGS)
    assert all(list(row) == HOLDINGS for row in done.json)
    assert set(amounts) <= {row["amount"] for row in done.json}


def test_holdings_as_of_a_time_say_how_certain_they_are(site: Site, command: Command) -> None:
    wallet, token = site.ids[0], site.held(site.ids[0])[0]
    before = format_time(datetime.now(UTC))
    site.world.set_amount(wallet, token, "123456")
    site.sync()
    done = command("holdings", "-d", site.database, "--as-of", before, "--json")
    assert all(
        list(row) == [*HOLDINGS, "confirmed_before", "confirmed_after", "certainty"]
        for row in done.json
    )
    assert "123456" not in {row["amount"] for row in done.json}
    certainty = {row["wallet_id"]: row["certainty"] for row in done.json}
    assert certainty == {each: "gap" if each == wallet else "bracketed" for each in site.ids}
    assert all(row["confirmed_before"] < before < row["confirmed_after"] for row in done.json)


def test_holdings_of_a_wallet_or_of_a_contract_in_any_case(site: Site, command: Command) -> None:
    rows = command("holdings", "-d", site.database, "--json").json
    contract = rows[0]["contract_address"]
    one = command("holdings", "-d", site.database, "--wallet", site.ids[2].upper(), "--json").json
    assert one == [row for row in rows if row["wallet_id"] == site.ids[2]]
    same = command(
        "holdings", "-d", site.database, "--contract", f"0x{contract[2:].upper()}", "--json"
    ).json
    assert same == [row for row in rows if row["contract_address"].lower() == contract.lower()]
    assert command("holdings", "-d", site.database, "--wallet", STRANGER, "--json").out == "[]\n"


def test_that_nothing_was_held_and_that_nobody_knows_are_told_apart(
    site: Site, command: Command
) -> None:
    command("wallets", "label", site.ids[0], "Treasury", "-d", site.database)
    first = command("changes", "-d", site.database, "--json").json[0]["observed_at"]
    empty = site.world.add_wallet()
    site.sync(empty)
    for words, said in (
        (("--as-of", "2000-01-01"), f"the first read that was stored is of {first}"),
        (("--as-of", "2000-01-01", "--wallet", "Treasury"), "of wallet Treasury of 2000-01-01T"),
        (("--wallet", STRANGER), f"Nothing is known of wallet {STRANGER}"),
        (("--contract", f"0x{0:040}"), f"No token that is known is of contract '0x{0:040}'"),
        (("--wallet", empty), "Nothing is held."),
    ):
        nothing = command("holdings", "-d", site.database, *words)
        assert (nothing.code, nothing.out) == (0, "")
        assert said in nothing.err
        assert len(nothing.err.splitlines()) == 1


def test_the_table_shows_some_and_says_how_to_see_all(site: Site, command: Command) -> None:
    command("wallets", "label", site.ids[0], "Treasury", "-d", site.database)
    amount = str(2**256 - 1)
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], amount)
    site.sync()
    few = command("holdings", "-d", site.database, "--limit", 3)
    assert few.err == "3 of 20 holdings; all with --limit 0, or with --json.\n"
    assert few.out.count("Treasury") == 3
    assert amount in few.out
    everything = command("holdings", "-d", site.database, "--limit", 0)
    assert everything.err == ""
    assert all(wallet in everything.out for wallet in site.ids[1:])
    assert command("holdings", "-d", site.database, "--limit", 3, "--json").json[19:]


def test_hostile_metadata_acts_on_no_terminal(site: Site, command: Command) -> None:
    token = site.held(site.ids[0])[0]
    site.world.edit_metadata(token, {"name": "\x1b[2J[red]evil[/red]\u202e"})
    site.sync()
    out = command("holdings", "-d", site.database).out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[red]evil[/red]" in out


def test_bad_input_is_a_usage_error(site: Site, command: Command) -> None:
    for words in (
        *(("holdings", "--wallet", "x"), ("holdings", "--as-of", "lately")),
        *(("holdings", "--limit", -1), ("changes", "--since", "lately")),
        ("changes", "--after", 2**63),
    ):
        assert command(*words, "-d", site.database).code == 2


@pytest.mark.parametrize(
    "words",
    [
        *(
            ("find", "x"),
            ("holdings",),
            ("changes",),
            ("changes", "--follow"),
            ("status",),
            ("export", "out"),
        ),
        ("evidence", STRANGER, "--at", "2026-01-01"),
        *(("snapshot", "copy.db"), ("backup", "copies"), ("wallets", "untrack", STRANGER)),
        ("wallets", "label", STRANGER, "Ann"),
        *(("inbox",), ("inbox", "show", STRANGER), ("inbox", "requeue", STRANGER)),
        *(("inbox", "requeue", "--state", "dead"), ("inbox", "prune", "--older-than", "1d")),
        ("routes", "suggest"),
    ],
    ids=" ".join,
)
def test_a_missing_database_is_named_and_nothing_is_made(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = command(*words, "-d", "nothing.db")
    assert (done.code, done.out) == (1, "")
    assert "nothing.db" in done.err
    assert not list(tmp_path.iterdir())


def test_an_empty_file_is_no_database_to_read(command: Command, tmp_path: Path) -> None:
    (tmp_path / "blank.db").touch()
    for words in (("holdings",), ("changes", "--follow")):
        done = command(*words, "-d", "blank.db")
        assert (done.code, done.out) == (1, "")
        assert "blank.db is empty" in done.err


# changes ----------------------------------------------------------------------------------------


def test_changes_as_json_are_the_rows_of_the_view_from_a_time_on(
    one_day: None, site: Site, command: Command
) -> None:
    site.world.remove(site.ids[0], site.held(site.ids[0])[0])
    site.sync()
    command("wallets", "label", site.ids[0], "Treasury", "-d", site.database)
    rows = command("changes", "-d", site.database, "--json").json
    assert [{name: row[name] for name in CHANGES} for row in rows] == view(
        site, "balance_changes", CHANGES
    )
    names = {row["token_id"]: row["name"] for row in view(site, "tokens", ["token_id", "name"])}
    assert all(row["name"] == names[row["token_id"]] for row in rows)
    called = {row["wallet_id"]: row["wallet_label"] for row in rows}
    assert called == {wallet: "Treasury" if wallet == site.ids[0] else None for wallet in site.ids}
    assert rows[-1]["new_amount"] is None
    assert [row["baseline"] for row in rows] == [1] * 20 + [0]
    moment = rows[-1]["observed_at"]
    since = command("changes", "-d", site.database, "--since", moment, "--json").json
    assert [row["change_id"] for row in since] == [21]
    for some, count in (("today", 21), ("1h", 21), ("0s", 0)):
        rows = command("changes", "-d", site.database, "--since", some, "--json").json
        assert len(rows) == count
    both = ("--since", "2000-01-01", "--after", 19)
    assert len(command("changes", "-d", site.database, *both, "--json").json) == 2


def test_the_table_of_changes_shows_the_newest(site: Site, command: Command) -> None:
    done = command("changes", "-d", site.database, "--limit", 2)
    ids = [line.split()[-1] for line in done.out.splitlines()[2:]]
    assert ids == ["19", "20"]
    assert done.err == "The newest 2 of 20 changes; all with --limit 0, or with --json.\n"
    assert command("changes", "-d", site.database, "--limit", 0).err == ""
    assert command("changes", "-d", site.database, "--after", 20).err == "No changes.\n"


# JSON on a terminal ------------------------------------------------------------------------------

#: A C1 control, a direction mark, a line separator, DEL, a character without width; and an emoji
#: of several characters, which is shown.
ACTING = "a\x9b31m\u202eb\u2028\x7f\ufeff\u200bc"
SHOWN = "ü👩\u200d🚀"


@pytest.mark.parametrize(
    "words",
    [
        ["holdings"],
        ["wallets"],
        ["changes"],
        ["find", "x"],
        ["evidence", "x", "--at", "today"],
        ["changes", "--follow", "--after", "0"],
    ],
)
def test_json_holds_no_character_that_acts_on_a_terminal(
    site: Site, words: list[str], command: Command
) -> None:
    label = f"x {ACTING} {SHOWN}"
    run(site.database, "UPDATE wallets SET label = ? WHERE wallet_id = ?", label, site.ids[0])
    run(site.database, "UPDATE tokens SET name = ?", label)
    if "--follow" in words:
        typed = [sys.executable, "-m", "nftsync", *words, "-d", str(site.database)]
        with subprocess.Popen(
            typed, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        ) as process:
            assert process.stdout is not None
            out = process.stdout.readline()
            process.terminate()
    else:
        words = [site.ids[0] if word == "x" and words[0] == "evidence" else word for word in words]
        done = command(*words, "--json", "-d", site.database)
        assert done.code == 0
        out = done.out
    assert not set(ACTING) & set(out) - set("abcm31")
    assert "\\u009b31m\\u202eb\\u2028\\u007f\\ufeff\\u200bc" in out
    assert SHOWN in out
    assert json.dumps(label) in json.dumps(json.loads(out))
