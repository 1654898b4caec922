"""The commands `hide`, `unhide` and `hidden`, the hidden file, and `--hidden` of other commands."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, token_id

CLAIM, AIRDROP, OWN = (f"0x{digit * 40}" for digit in "abc")
#: A collection's name, and a name that would act on a terminal.
HARBOURS, HOSTILE = "Salt Harbours", "Claim\x1b[2J\u202eat\nevil.xyz"


@pytest.fixture
def spammed(build: Builder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six wallets, all their own NFTs from the first read, and two kinds of spam."""
    monkeypatch.setenv("NFTSYNC_DATABASE", str(build.path))
    texts = {
        1: (CLAIM, HOSTILE),
        2: (AIRDROP, "Golden Ticket"),
        3: (OWN, "Own"),
        4: (OWN, "Claim"),
        5: (OWN, "Sold"),
        6: (None, "Visit www.evil.example"),
    }
    for number, (contract, name) in texts.items():
        build.token(number, contract_address=contract, name=name)
    for contract, name in ((CLAIM, None), (AIRDROP, None), (OWN, HARBOURS)):
        build.insert("contracts", contract=contract, contract_address=contract, given_name=name)
    for wallet in range(1, 7):
        build.wallet(wallet, label=f"Wallet {wallet}", synced_at=at(9), status="ok")
        build.balance(wallet, 3, "1", 1)
        build.change(wallet, 3, None, "1", 1, baseline=1)
    for token in (1, 4, 5, 6):
        build.balance(1, token, "1", 2)
        build.change(1, token, None, "1", 2, baseline=1)
    for wallet in range(1, 6):
        build.balance(wallet, 2, "1", 1_000 * wallet)
        build.change(wallet, 2, None, "1", 1_000 * wallet)
    return build.close()


def rows_of(command: Any) -> dict[str, dict[str, Any]]:
    """Return the entries by contract or token."""
    return {row["contract"] or row["token_id"]: row for row in command("hidden", "--json").json}


def entries(command: Any) -> list[tuple[Any, ...]]:
    keys = ("contract", "token_id", "reason", "source")
    return [tuple(row[key] for key in keys) for row in command("hidden", "--json").json]


def test_contracts_and_tokens_are_hidden_by_address_name_and_id_with_a_reason(spammed, command):
    command("hidden").says("Nothing is hidden", "nftsync hide --suggest")
    assert command("hidden", "--json") == (0, "[]\n", "")
    shouted = f"0x{AIRDROP[2:].upper()}"
    done = command("hide", shouted, f" {token_id(1).upper()} ", "--reason", " airdropped spam ")
    done.says(AIRDROP, "airdropped spam", "nftsync unhide")
    command("hide", HARBOURS.lower(), HARBOURS, "--json").says(OWN)
    assert {*entries(command)} == {
        (AIRDROP, None, "airdropped spam", "given"),
        (None, token_id(1), "airdropped spam", "given"),
        (OWN, None, None, "given"),
    }
    rows = rows_of(command)
    counts = {key: (row["name"], row["tokens"], row["holdings"]) for key, row in rows.items()}
    assert counts == {AIRDROP: (None, 1, 5), token_id(1): (HOSTILE, 1, 1), OWN: (HARBOURS, 3, 8)}
    assert command("hidden").says(AIRDROP, token_id(1), HARBOURS, "airdropped spam").err == ""
    # Hidden again: the reason stays, or is replaced; the time stays.
    command("hide", AIRDROP).says("airdropped spam")
    command("hide", AIRDROP, "--reason", "worse").says("worse")
    assert rows_of(command) == rows | {AIRDROP: rows[AIRDROP] | {"reason": "worse"}}


def test_unknown_names_are_errors_that_say_what_to_do_and_change_nothing(spammed, command):
    command("hide", AIRDROP)
    before = command("hidden", "--json")
    unknown = f"0x{'a' * 39}b"
    for words, *texts in (
        (("hide", unknown), unknown, f"similar: '{CLAIM}'", "`nftsync collections`"),
        (("hide", "Salt Harbour"), "similar: 'Salt Harbours'", "`nftsync collections`"),
        (("hide", token_id(77)), f"token '{token_id(77)}'", "`nftsync find NAME`"),
        (("hide", OWN, "no\x1b[2Jsuch"), "no\\x1b[2Jsuch", "`nftsync collections`"),
        (("hide", ""), "collection or contract ''", "`nftsync collections`"),
        (("unhide", OWN), f"'{OWN}' is not hidden", "`nftsync hidden`"),
        (("unhide", unknown), unknown, f"similar: '{CLAIM}'"),
    ):
        done = command(*words).tells(*texts)
        assert (done.err.count("\n"), "\x1b" in done.err) == (1, False), done.err
    for words in (("hide",), ("hide", OWN, "--suggest"), ("unhide",)):
        command(*words).tells("name contracts or tokens")
    command("hide", "--suggest", "--reason", "spam").tells("--reason", "--suggest")
    assert command("hidden", "--json") == before
    command("hidden", "-d", spammed.with_name("none.db")).tells("no database", code=1)


def test_commands_leave_hidden_nfts_out_and_say_how_many(spammed, command):
    period = ("statement", "--from", at(1), "--to", at(99_999), "--by", "collection")
    left_out = {"holdings": "6 hidden holdings", "transfers": "5 hidden transfers"}
    left_out |= {"collections": "2 hidden tokens"}
    whole = {name: command(name, "--json").json for name in left_out}
    statement = command(*period, "--json")
    command("hide", AIRDROP, token_id(1))
    hidden_tokens = {token_id(1), token_id(2)}
    for name, counted in left_out.items():
        note = f"{counted} left out. Include: --hidden"
        done = command(name, "--json").says()
        assert done.err == f"{note}\n"
        command(name).says(note)
        if name != "collections":
            assert done.json == [x for x in whole[name] if x["token_id"] not in hidden_tokens]
        else:
            assert {row["contract"] for row in done.json if row["tokens"]} == {OWN}
        assert "left out" not in command(name, "--hidden").says().said
        again = command(name, "--hidden", "--json")
        assert (again.json, again.err) == (whole[name], "")
    command("holdings", "--contract", AIRDROP).says("No holdings.", "5 hidden holdings left out")
    command("transfers").says("No transfers.", "5 hidden transfers left out")
    assert command(*period, "--hidden", "--json") == statement
    rows = command(*period, "--json").json
    assert rows[-1] == statement.json[-1]
    assert (rows[-2]["contract"], rows[-2]["closing"]) == ("hidden", 6)
    # The table always has the hidden row; it counts as no row that the limit leaves out.
    one = command(*period, "--limit", len(rows) - 2).says("hidden", "total")
    assert "Show all" not in one.err
    command(*period, "--limit", 1).says("hidden", f"1 of {len(rows) - 2} rows")
    # The history has all of it.
    assert len(command("changes", "--json").json) == 15
    command("verify", "--sample", 0).says("All ")


def test_unhidden_nfts_show_again(spammed, command):
    whole = command("holdings", "--json")
    command("hide", OWN, CLAIM, token_id(3))
    # Hidden by its contract alone: it has no entry.
    command("unhide", token_id(4)).tells("is hidden through its contract", "`nftsync hidden`")
    # One contract, named twice; and an unknown one, with which nothing is removed.
    command("unhide", CLAIM, "nothing").tells("'nothing'")
    command("unhide", CLAIM, CLAIM.upper().replace("X", "x")).says(f"Shown again: {CLAIM}")
    assert {row[:2] for row in entries(command)} == {(OWN, None), (None, token_id(3))}
    # Both entries hide a token: it shows without either.
    done = command("unhide", token_id(3)).says("its contract still hides it")
    assert "Shown again" not in done.said
    command("unhide", HARBOURS).says(f"Shown again: {HARBOURS}\n")
    assert command("holdings", "--json") == whole
    assert entries(command) == []


UNUSABLE = (
    (f"token_id\n{CLAIM}\n", "line 2", "is not a token id"),
    ("contract_address,reason\n0xabc,a link\n,no address\n", "line 3", "neither"),
    ("contract_address\n0xabc,a link\n", "line 2", "no heading"),
    ('contract_address\n"0xabc\n', "not CSV"),
    ("reason\nspam\n", "contract_address or token_id is missing"),
    ("contract_address,why\n0xabc,x\n", "'why'", "allowed are"),
    (f"{CLAIM}\n", "must be headings: contract_address,token_id,reason"),
    ("", "must be headings"),
)


def test_a_sync_reads_the_hidden_file(site, command):
    file, config = Path("spam.csv"), Path("nftsync.toml")
    config.write_text('hidden_file = "spam.csv"\n')
    holdings = frames.holdings(site.database)
    held = Counter(holdings["contract"])
    first, second, *_ = sorted(held)
    token = holdings.drop_duplicates("token_id", keep=False)
    token = token[~token["contract"].isin([first, second])]["token_id"].iloc[0]

    def sync(text: str) -> set[tuple[Any, ...]]:
        file.write_text(text)
        site.sync(config=config)
        return {*entries(command)}

    rows = {(first, None, "a link", "file"), (None, token, None, "file")}
    assert sync(f"Address;Token ID;Reason\n{first.upper()};;a link\n\n;{token.upper()};\n") == rows
    command("holdings").says(f"{held[first] + 1} hidden holdings left out")
    # Its entries stay until the file is edited, whoever else hides them.
    command("hide", first, second, "--reason", "mine").says("mine")
    for named in (first, token):
        done = command("unhide", second, named).tells(
            "spam.csv", "remove its line", "`nftsync sync`"
        )
        assert done.err.count("\n") == 1
    before = {*entries(command)}
    assert len(before) == 4
    # A bad row, file or heading is an error that loses nothing.
    words = ("sync", *site.ids, "--base-url", site.server.url)
    for text, *problems in UNUSABLE:
        with pytest.raises(InputError, match=r"hidden file|spam.csv, line"):
            sync(text)
        done = command(*words).tells("spam.csv", *problems)
        assert done.err.count("\n") == 1, done.err
    file.unlink()
    command(*words).tells("cannot read the hidden file")
    assert {*entries(command)} == before
    # Removed lines and changed reasons; manual entries stay.
    mine = {(address, None, "mine", "given") for address in (first, second)}
    worse = (first, None, "worse", "file")
    assert sync(f"contract,reason\n{first},worse\n") == {*mine, worse}
    assert sync("contract_address\n") == mine
    # A sync without the setting leaves the file's entries; then they can be unhidden.
    sync(f"token_id\n{token}\n")
    config.unlink()
    site.sync()
    assert (None, token, None, "file") in entries(command)
    command("unhide", token, first, second).says("Shown again")
    assert entries(command) == []


def test_a_sync_and_check_note_entries_of_the_file_that_name_nothing_yet(site, command):
    file = Path("spam.csv").resolve()
    Path("nftsync.toml").write_text('hidden_file = "spam.csv"\n')
    known = frames.holdings(site.database).iloc[0]
    lines = [f"{known['contract'].upper().replace('X', 'x')},", f",{known['token_id']}"]
    sync = ("sync", *site.ids, "--base-url", site.server.url)
    check = ("check", site.ids[0], "--base-url", site.server.url)
    note = "entries that name nothing in the database yet: 2 of 4; they hide it when it appears"
    for unknown in ([CLAIM, f",{token_id(77)}"], []):
        file.write_text("\n".join(["contract_address,token_id", *lines, *unknown]))
        for words in (sync, check, (*sync, "--json")):
            done = command(*words).says()
            assert done.said.count(note) == bool(unknown), words
            assert f"{file}: {note}" in done.err or words == check or not unknown
        assert note not in done.out
    assert len(entries(command)) == 2


def test_candidates_are_listed_with_reasons_and_nothing_is_hidden(spammed, command):
    before = command("hidden", "--json")
    rows = command("hide", "--suggest", "--json").json
    found = {row["contract"] or row["token_id"]: row for row in rows}
    assert next(iter(found)) == AIRDROP  # the most held one
    assert {*found} == {CLAIM, AIRDROP, token_id(6)}
    assert found[AIRDROP]["reason"] == "arrived in 5 wallets within 24 hours, sender unknown"
    assert found[CLAIM]["reason"].startswith("link and claim in the name: Claim")
    assert found[token_id(6)]["reason"] == "link and claim in the name: Visit www.evil.example"
    counts = [(row["tokens"], row["holdings"], row["wallets"]) for row in found.values()]
    assert sorted(counts) == [(1, 1, 1), (1, 1, 1), (1, 5, 5)]
    done = command("hide", "--suggest").says(AIRDROP, CLAIM, "arrived in 5 wallets", "link and")
    assert "`nftsync hide`" in done.err
    assert command("hidden", "--json") == before
    command("hide", *found)
    assert command("hide", "--suggest") == (0, "", "No candidates.\n")
    assert command("hide", "--suggest", "--json").json == []


def test_tokens_from_own_wallets_are_no_candidates(site, command):
    owner, *others = [*site.ids, site.world.add_wallet(), site.world.add_wallet()]
    site.world.begin_collection()
    gifts = [site.world.mint(owner, 1, {"name": f"Gift {number}"}) for number in range(5)]
    site.sync(owner, *others)
    for gift, other in zip(gifts, others, strict=True):
        site.world.transfer(owner, other, gift, 1)
    site.sync(owner, *others)
    received = Counter(row["from_wallet_id"] for row in command("transfers", "--json").json)
    assert received == {None: 5, owner: 5}  # the mints and the transfers
    assert command("hide", "--suggest", "--json").json == []


def test_slow_or_few_arrivals_are_no_candidates(build, command):
    for number, contract in enumerate((CLAIM, AIRDROP), 1):
        build.token(number, contract_address=contract, name="Own")
    for wallet in range(1, 6):
        build.wallet(wallet)
        build.balance(wallet, 1, "1", wallet * 86_400)
        build.change(wallet, 1, None, "1", wallet * 86_400)
    for wallet in range(1, 5):
        build.balance(wallet, 2, "1", wallet)
        build.change(wallet, 2, None, "1", wallet)
    assert command("hide", "--suggest", "-d", build.close()) == (0, "", "No candidates.\n")


def test_names_and_reasons_cannot_act_on_a_terminal(spammed, command):
    reason = "see\x1b]0;x\x07\u202e\nmore"
    hide = ("hide", token_id(1), "--reason", reason)
    for words in (
        *(("hide", "--suggest"), hide, ("hidden",), ("hidden", "--wide"), ("hidden", "--json")),
        *(("hide", "--suggest", "--json"), ("unhide", token_id(1))),
        ("unhide", f"{CLAIM}\x1b[2J\n"),
    ):
        done = command(*words)
        assert not {*done.said} & {"\x1b", "\x07", "\u202e"}, words
        assert "Traceback" not in done.said
    command(*hide).says("Claim\\x1b[2J\\x202eat\\x0aevil.xyz", "see\\x1b]0;x\\x07\\x202e\\x0amore")
    assert command("hidden", "--json").json[0]["reason"] == reason
