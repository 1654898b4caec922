"""Removals of a faulty provider that answers 200: held for review, listed and approved."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.provider import Peer, Provider, entry, path_of, token, wallet
from tests.kit.terminals import open_terminal
from tests.kit.worlds import mirrored, replayed
from tests.pull.attacks import ATTACKS, attacked
from tests.pull.removal_site import ALL, EACH, NAMED, WALLETS, Site


@pytest.mark.parametrize("name", ATTACKS)
def test_a_faulty_provider_removes_half_at_most_and_large_transfers_need_no_review(
    lying: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    attack = ATTACKS[name]
    site = attacked(lying, tmp_path / "mirror.db", attack)
    if attack.most is None:
        assert site.reviewed == 0
        assert site.query("SELECT DISTINCT status FROM wallets") == [("ok",)]
    else:
        assert site.lost(attack.what) <= attack.most
    assert replayed(site.database) == mirrored(site.database)


CHANGES: list[Callable[[Site, int], None]] = [
    lambda site, number: site.lists(number),
    lambda site, number: site.lists(number, 0),
    lambda site, number: site.lists(number, *range(EACH), amount="0"),
    lambda site, number: site.provider.holds(wallet(number), entry(token(9_000), "1")),
    lambda site, number: site.lists(number, *range(EACH), amount="NaN"),
    lambda site, number: site.lists(number, *range(EACH), amount="1"),
    lambda site, number: site.lists(number, *range(EACH), metadata={}),
]


@pytest.mark.parametrize(
    ("changes", "changed"), [(CHANGES[:6], 65), (CHANGES[3:4], WALLETS)], ids=["each", "dust"]
)
def test_held_removals_are_dropped_when_the_provider_lists_the_nfts_again(
    site: Site, changes: list[Callable[[Site, int], None]], changed: int
) -> None:
    before = mirrored(site.database)
    for number in range(changed):
        changes[number % len(changes)](site, number)
    for _ in range(2):
        assert site.sync() == 1
        assert mirrored(site.database).items() >= before.items()
    affected = {row["wallet_id"] for row in site.review()}
    assert affected == set(map(wallet, range(changed)))
    site.fill()
    assert (site.sync(), site.review(), mirrored(site.database)) == (0, [], before)
    assert site.query("SELECT DISTINCT status, error FROM wallets") == [("ok", None)]


def test_approved_removals_are_applied_as_read(site: Site) -> None:
    for number in range(98):
        CHANGES[number % len(CHANGES)](site, number)
    before = site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1")
    assert site.sync() == 1
    listed = site.run("removals").says("no longer listed", "nftsync removals accept")
    assert "98 wallets" not in listed.out
    site.run("removals", "accept", wallet(0)).says()
    assert wallet(0) not in {row["wallet_id"] for row in site.review()}
    assert wallet(0) not in {wallet_id for wallet_id, _ in mirrored(site.database)}
    site.run("removals", "accept").says("Approved and applied")
    assert site.review() == []
    accepted = mirrored(site.database)
    assert replayed(site.database) == accepted
    assert site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1") > before
    assert site.query("SELECT DISTINCT status FROM wallets") == [("ok",)]
    # A sync that allows all removals finds the same.
    assert site.sync("--allow-removals") == 0
    assert mirrored(site.database) == accepted


def test_the_rest_of_a_run_with_held_removals_is_applied(site: Site) -> None:
    site.empty(range(60))
    site.provider.holds(wallet(0), entry(token(7_000)))
    site.lists(80, *range(EACH), amount="9")
    assert site.sync() == 1
    held = mirrored(site.database)
    assert (held[wallet(0), token(7_000)], held[wallet(80), token(EACH * 80)]) == ("1", "9")
    statuses = site.query("SELECT status, count(*) FROM wallets GROUP BY 1")
    assert statuses == [("incomplete", 60), ("ok", 40)]


def test_removals_that_an_incomplete_read_applies_are_no_longer_held(site: Site) -> None:
    less = [[entry(token(EACH * n + place), "1", **NAMED) for place in range(EACH)] for n in (0, 1)]
    for number in range(60):
        site.lists(number, *range(EACH), amount="1")
    assert (site.sync(), len(site.review())) == (1, 60 * EACH)
    site.provider.holds(wallet(0), *less[0], nextPage="a")
    site.provider.holds(wallet(1), *less[1][:2], nextPage="a")
    assert site.sync("--allow-removals", wallet(0), wallet(1)) == 1
    still = {row["token_id"] for row in site.review() if row["wallet_id"] == wallet(1)}
    assert still == {token(EACH + place) for place in range(2, EACH)}
    assert wallet(0) not in {row["wallet_id"] for row in site.review()}


def test_only_removals_of_the_affected_group_are_held(site: Site) -> None:
    assert site.sync("--wallets-file", site.groups(cold=range(30), hot=range(30, WALLETS))) == 0
    site.empty([*range(25), 50])
    assert (site.sync(), site.held) == (1, ALL - EACH)
    assert len(site.review()) == 25 * EACH


def test_an_interrupted_run_applies_no_removal(site: Site) -> None:
    def interrupt(peer: Peer) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        peer.wait(0.5)
        return False

    site.empty()
    site.provider.on(path_of(WALLETS - 1), interrupt)
    assert site.sync() == 130
    assert (site.held, site.review()) == (ALL, [])
    site.provider.on(path_of(WALLETS - 1))
    assert site.sync("--resume") == 1
    assert (site.held, len(site.review())) == (ALL, ALL)


def test_the_limits_are_settings(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.empty(range(70))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.7")
    assert (site.sync(), site.held) == (0, ALL - 350)
    site.empty(range(70, 75))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10000")
    assert (site.sync(), site.held) == (1, ALL - 350)  # of 20 wallets and more, any is too much


# Metadata ---------------------------------------------------------------------------------------


def test_emptied_metadata_is_held_and_applies_once_to_a_shared_token(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.fill(metadata={})
    for _ in range(2):
        assert site.sync() == 1
        assert (site.names, site.held) == (ALL, ALL)
    assert {row["what"] for row in site.review()} == {"metadata emptied"}
    site.fill()
    assert (site.sync(), site.names, site.review()) == (0, ALL, [])
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.1")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10")
    for metadata in ({"name": "A name"}, {}):
        for number in range(WALLETS):
            own = (entry(token(EACH * number + n), "4", **NAMED) for n in range(EACH))
            shared = entry(token(9_000), "1", metadata=metadata)
            site.provider.holds(wallet(number), *own, shared)
        assert site.sync() == 0
    assert site.query("SELECT name FROM tokens WHERE token_id = ?", token(9_000)) == [(None,)]


def test_one_name_for_all_tokens_of_a_contract_is_held(site: Site) -> None:
    def names(name: str) -> None:
        for number in range(WALLETS):
            fields = {"contractAddress": "0xC0", "amount": "4"}
            entries = [
                {**entry(token(n), metadata={"name": name.format(n)}, **fields), "amount": "4"}
                for n in range(EACH * number, EACH * (number + 1))
            ]
            site.provider.holds(wallet(number), *entries)

    names("Piece {}")  # a reveal: all had the same name
    assert site.sync() == 0
    names("Not found")
    for _ in range(2):
        assert site.sync() == 1
        assert site.query("SELECT count(*) FROM tokens WHERE name LIKE 'Piece %'") == [(ALL,)]
    assert {row["what"] for row in site.review()} == {"name replaced"}
    names("Piece {}")
    assert (site.sync(), site.review()) == (0, [])
    names("Not found")
    assert site.sync() == 1
    site.run("removals", "accept").says()
    assert site.query("SELECT DISTINCT name FROM tokens") == [("Not found",)]
    names("Found")  # from now on, they share a name
    assert site.sync() == 0


def test_a_token_read_by_its_id_clears_only_its_own_held_removal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")

    def show(number: int, **metadata: str) -> None:
        record = json.dumps({"id": token(number), "metadata": metadata}).encode()
        site.provider.bodies[f"/v1/tokens/{token(number)}"] = record

    for number in range(2 * EACH):
        show(number, description="of the token")
    assert site.sync("--tokens", wallet(0), wallet(1)) == 0
    for number in range(EACH):
        show(number)
    emptied = {token(number) for number in range(EACH)}
    for code, name, left in ((1, wallet(0), emptied), (0, wallet(1), emptied)):
        assert site.sync("--tokens", name) == code
        assert {row["token_id"] for row in site.review()} == left
        show(0, description="of the token")
    assert site.sync("--tokens", wallet(0)) == 1
    assert {row["token_id"] for row in site.review()} == emptied - {token(0)}


# Messages and approval --------------------------------------------------------------------------


def test_the_list_of_removals_starts_with_a_summary(site: Site) -> None:
    site.run("wallets", "label", wallet(7), "Vault\x1b[31m")
    site.empty(range(60))
    assert site.sync() == 1
    first = site.review()[0]["observed_at"]
    assert site.sync() == 1
    assert {row["observed_at"] for row in site.review()} == {first}
    listed = site.run("removals", "--limit", "1")
    summary, wallets, collections, *_ = listed.out.splitlines()
    since = first[:19].replace("T", " ")
    assert summary == (
        "300 removals held for review (60 % of holdings): 300 balances of 60 wallets."
        f" Seen by 60 reads since {since} UTC."
    )
    assert wallets.startswith("By wallet: ")
    assert wallets.endswith(", and 57 others.")
    assert "\x1b" not in listed.out
    assert collections == "By collection: none (300)."
    assert "Approve the removals: nftsync removals accept" in listed.err
    assert len(site.run("removals", "--json", "--limit", "1").json) == 300


@pytest.fixture
def held(site: Site) -> Site:
    """A site with removals of all wallets held for review."""
    site.empty()
    held = "100 wallets: removals held for review"
    site.run("sync").says("0 wallets read, 100 incomplete; ", held, "nftsync removals", code=1)
    return site


def test_status_and_check_name_held_removals(held: Site) -> None:
    assert "0 wallets ok, 100 incomplete or failed)" in held.run("status").out
    for command in ("status", "check"):
        assert "500 balances of 100 wallets" in held.run(command).out
    shown = held.run("status", "--json").json["removals_held"]
    assert (shown["wallets"], shown["balances"], shown["emptied"]) == (100, 500, 0)


def test_an_approval_and_its_dry_run_print_the_applied_removals(held: Site) -> None:
    def accept(*arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = held.run("removals", "accept", "--json", *arguments).says().json
        assert len(found["removals"]) == found["balances"]
        return found

    before = mirrored(held.database)
    dry = held.run("removals", "accept", "--dry-run", wallet(3))
    dry.says("Dry run: would remove 5 balances of 1 wallet")
    assert dry.out.count("no longer listed") == EACH
    found = accept("--dry-run")
    assert (found["dry_run"], found["wallets"], found["balances"]) == (True, WALLETS, ALL)
    assert (mirrored(held.database), len(held.review())) == (before, ALL)
    found = accept(wallet(3))
    assert (found["dry_run"], found["wallets"], found["balances"]) == (False, 1, EACH)
    assert {row["wallet_id"] for row in found["removals"]} == {wallet(3)}
    assert held.held == ALL - EACH
    assert accept("--yes")["balances"] == 495
    nothing = {"wallets": 0, "balances": 0, "emptied": 0, "removals": []}
    assert accept() == {"dry_run": False, **nothing}
    assert held.held == 0


@pytest.mark.parametrize(
    ("answer", "more", "code", "left"), [("n", [], 1, ALL), ("y", [], 0, 0), ("", ["--yes"], 0, 0)]
)
def test_an_approval_on_a_terminal_is_confirmed_after_the_summary(
    held: Site,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    more: list[str],
    code: int,
    left: int,
) -> None:
    summary = held.run("removals", "--limit", "1").out.splitlines()[:3]
    terminal, of_process = open_terminal()
    os.write(terminal, f"{answer}\n".encode())
    with os.fdopen(of_process) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        done = held.run("removals", "accept", *more)
    os.close(terminal)
    assert (done.code, held.held) == (code, left), done.err
    assert ("Remove 500 balances of 100 wallets from the database?" in done.err) == (not more)
    assert (done.err.splitlines()[:3] == summary) == (not more)
