"""Removals of a faulty provider that answers 200: held for review, listed and approved."""

import json
import os
import signal
import sys
from datetime import timedelta

import pytest

from nftsync.times import now, shifted
from tests.kit.provider import entry, path_of, token, wallet
from tests.kit.terminals import open_terminal
from tests.kit.worlds import mirrored, replayed
from tests.pull.attacks import ATTACKS, attacked
from tests.pull.removal_site import ALL, EACH, NAMED, WALLETS


@pytest.mark.parametrize("name", ATTACKS)
def test_a_faulty_provider_removes_half_at_most_and_large_transfers_need_no_review(
    lying, tmp_path, monkeypatch, name
):
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    attack = ATTACKS[name]
    site = attacked(lying, tmp_path / "mirror.db", attack)
    if attack.most is None:
        assert site.reviewed == 0
        assert site.query("SELECT DISTINCT status FROM wallets") == [("ok",)]
    else:
        assert site.lost(attack.what) <= attack.most
    assert replayed(site.database) == mirrored(site.database)


CHANGES = [
    lambda site, number: site.lists(number),
    lambda site, number: site.lists(number, 0),
    lambda site, number: site.lists(number, *range(EACH), amount="0"),
    lambda site, number: site.provider.holds(wallet(number), entry(token(9_000), "1")),
    lambda site, number: site.lists(number, *range(EACH), amount="NaN"),
    lambda site, number: site.lists(number, *range(EACH), amount="1"),
    lambda site, number: site.lists(number, *range(EACH), metadata={}),
]


def test_the_rest_of_a_run_is_applied_and_relisted_nfts_are_no_longer_held(site):
    before = mirrored(site.database)
    for number in range(65):
        CHANGES[number % 6](site, number)
    site.lists(80, *range(EACH), amount="9")
    more = {(wallet(n), token(9_000)): "1" for n in range(3, 65, 6)}
    more |= {(wallet(80), token(EACH * 80 + place)): "9" for place in range(EACH)}
    for _ in range(2):
        assert (site.code(), mirrored(site.database)) == (1, before | more)
    statuses = site.query("SELECT status, count(*) FROM wallets GROUP BY 1")
    assert statuses == [("incomplete", 65), ("ok", 35)]
    assert {row["wallet_id"] for row in site.review()} == set(map(wallet, range(65)))
    site.fill()
    assert (site.code(), site.review(), mirrored(site.database)) == (0, [], before)
    assert site.query("SELECT DISTINCT status, error FROM wallets") == [("ok", None)]


def test_approved_removals_are_applied_as_read(site):
    for number in range(98):
        CHANGES[number % len(CHANGES)](site, number)
    before = site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1")
    assert site.code() == 1
    site.command("removals", "accept", wallet(0)).says()
    assert wallet(0) not in {row["wallet_id"] for row in site.review()}
    assert wallet(0) not in {wallet_id for wallet_id, _ in mirrored(site.database)}
    site.command("removals", "accept").says("Approved and applied")
    assert site.review() == []
    accepted = mirrored(site.database)
    assert replayed(site.database) == accepted
    assert site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1") > before
    assert site.query("SELECT DISTINCT status FROM wallets") == [("ok",)]
    # A sync that allows all removals finds the same.
    assert (site.code("--allow-removals"), mirrored(site.database)) == (0, accepted)


def test_removals_that_an_incomplete_read_applies_are_no_longer_held(site):
    less = [[entry(token(EACH * n + place), "1", **NAMED) for place in range(EACH)] for n in (0, 1)]
    for number in range(60):
        site.lists(number, *range(EACH), amount="1")
    assert (site.code(), len(site.review())) == (1, 60 * EACH)
    site.provider.holds(wallet(0), *less[0], nextPage="a")
    site.provider.holds(wallet(1), *less[1][:2], nextPage="a")
    assert site.code("--allow-removals", wallet(0), wallet(1)) == 1
    left = [row["token_id"] for row in site.review() if row["wallet_id"] in {wallet(0), wallet(1)}]
    assert sorted(left) == [token(EACH + place) for place in range(2, EACH)]


def test_only_removals_of_the_affected_group_are_held(site):
    assert site.code("--wallets-file", site.groups(cold=range(30), hot=range(30, WALLETS))) == 0
    site.empty([*range(25), 50])
    assert (site.code(), site.holdings) == (1, ALL - EACH)
    assert len(site.review()) == 25 * EACH


def test_an_interrupted_run_applies_no_removal(site):
    def interrupt(peer):
        os.kill(os.getpid(), signal.SIGINT)
        peer.wait(0.5)
        return False

    site.empty()
    site.provider.on(path_of(WALLETS - 1), interrupt)
    assert (site.code(), site.holdings, site.review()) == (130, ALL, [])
    site.provider.on(path_of(WALLETS - 1))
    assert (site.code("--resume"), site.holdings, len(site.review())) == (1, ALL, ALL)


def test_the_limits_are_settings(site, monkeypatch):
    site.empty(range(70))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.7")
    assert (site.code(), site.holdings) == (0, ALL - 350)
    site.empty(range(70, 75))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10000")
    assert (site.code(), site.holdings) == (1, ALL - 350)  # of 20 wallets and more, any is too much


# 24 hours ---------------------------------------------------------------------------------------


def test_holdings_of_yesterday_count_and_removals_of_yesterday_do_not(site):
    site.empty(range(45))
    assert (site.code(), site.holdings) == (0, ALL - 45 * EACH)
    for table, column in (
        *((f"{feed}_rows", "observed_at") for feed in ("balance_change", "token_change")),
        *(("wallet_state_rows", f"{name}_at") for name in ("observed", "first_read", "last_read")),
        *(("sync_runs", f"{name}_at") for name in ("started", "finished")),
    ):
        earlier = f"strftime('%Y-%m-%dT%H:%M:%f000Z', {column}, '-25 hours')"
        site.query(f"UPDATE {table} SET {column} = {earlier}")
    site.empty(range(45, 65))
    assert (site.code(), site.holdings) == (0, ALL - 65 * EACH)
    site.empty(range(65, 80))
    assert (site.code(), site.holdings) == (1, ALL - 65 * EACH)


def test_a_clock_that_was_ahead_counts_removals_for_a_day_at_most(site):
    ahead, a_day_ago = shifted(now(), timedelta(days=400)), shifted(now(), -timedelta(hours=25))
    for table in ("balance_change_rows", "wallet_state_rows"):
        site.query(f"UPDATE {table} SET observed_at = ?", ahead)
    site.empty(range(45))
    assert (site.code(), site.holdings) == (0, ALL - 45 * EACH)
    site.empty(range(60))
    assert (site.code(), site.holdings) == (1, ALL - 45 * EACH)
    site.query("UPDATE sync_runs SET started_at = ?1, finished_at = ?1", a_day_ago)
    site.query("DELETE FROM removal_rows")
    assert (site.code(), site.holdings) == (0, ALL - 60 * EACH)


def test_emptied_metadata_is_held_and_applies_once_to_a_shared_token(site, monkeypatch):
    names = "SELECT count(name) FROM tokens"
    site.fill(metadata={})
    for _ in range(2):
        assert (site.code(), site.query(names), site.holdings) == (1, [(ALL,)], ALL)
    assert {row["what"] for row in site.review()} == {"metadata emptied"}
    site.fill()
    assert (site.code(), site.query(names), site.review()) == (0, [(ALL,)], [])
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.1")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10")
    for metadata in ({"name": "A name"}, {}):
        for number in range(WALLETS):
            own = (entry(token(EACH * number + n), "4", **NAMED) for n in range(EACH))
            shared = entry(token(9_000), "1", metadata=metadata)
            site.provider.holds(wallet(number), *own, shared)
        assert site.code() == 0
    assert site.query("SELECT name FROM tokens WHERE token_id = ?", token(9_000)) == [(None,)]


def test_one_name_for_all_tokens_of_a_contract_is_held(site):
    def name_all(name):
        for number in range(WALLETS):
            own = range(EACH * number, EACH * (number + 1))
            names = {n: {"name": name.format(n)} for n in own}
            entries = [entry(token(n), "4", contractAddress="C", metadata=names[n]) for n in own]
            site.provider.holds(wallet(number), *entries)
        return site.code()

    assert name_all("Piece {}") == 0  # a reveal: all had the same name
    for _ in range(2):
        assert name_all("Not found") == 1
        assert site.query("SELECT count(*) FROM tokens WHERE name LIKE 'Piece %'") == [(ALL,)]
    assert {row["what"] for row in site.review()} == {"name replaced"}
    assert (name_all("Piece {}"), site.review()) == (0, [])
    assert name_all("Not found") == 1
    site.command("removals", "accept").says()
    assert site.query("SELECT DISTINCT name FROM tokens") == [("Not found",)]
    assert name_all("Found") == 0  # from now on, they share a name


def test_a_token_read_by_its_id_clears_only_its_own_held_removal(site, monkeypatch):
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")

    def show(number, **metadata):
        record = json.dumps({"id": token(number), "metadata": metadata}).encode()
        site.provider.bodies[f"/v1/tokens/{token(number)}"] = record

    for number in range(2 * EACH):
        show(number, description="of the token")
    assert site.code("--tokens", wallet(0), wallet(1)) == 0
    for number in range(EACH):
        show(number)
    emptied = [token(number) for number in range(EACH)]
    for code, name, left in ((1, 0, emptied), (0, 1, emptied), (1, 0, emptied[1:])):
        assert site.code("--tokens", wallet(name)) == code
        assert sorted(row["token_id"] for row in site.review()) == left
        show(0, description="of the token")


def test_the_list_of_removals_starts_with_a_summary(site):
    site.command("wallets", "label", wallet(7), "Vault\x1b[31m")
    site.empty(range(60))
    assert site.code() == 1
    first = site.review()[0]["observed_at"]
    assert site.code() == 1
    assert {row["observed_at"] for row in site.review()} == {first}
    listed = site.command("removals", "--limit", "1")
    summary, wallets, collections, *_ = listed.out.splitlines()
    assert summary == (
        "300 removals held for review (60 % of holdings): 300 balances of 60 wallets."
        f" Seen by 60 reads since {first[:10]} {first[11:19]} UTC."
    )
    assert wallets.startswith("By wallet: ")
    assert wallets.endswith(", and 57 others.")
    assert collections == "By collection: none (300)."
    assert "\x1b" not in listed.out
    assert "no longer listed" in listed.out
    assert "Approve the removals: nftsync removals accept" in listed.err
    assert len(site.command("removals", "--json", "--limit", "1").json) == 300


@pytest.fixture
def held(site):
    """A site with removals of all wallets held for review."""
    site.empty()
    message = "100 wallets: removals held for review"
    done = site.command("sync")
    done.says("0 wallets read, 100 incomplete; ", message, "nftsync removals", code=1)
    return site


def test_status_and_check_name_held_removals(held):
    held.command("status").says("0 wallets ok, 100 incomplete or failed)")
    for command in ("status", "check"):
        assert "500 balances of 100 wallets" in held.command(command).out
    shown = held.command("status", "--json").json["removals_held"]
    assert (shown["wallets"], shown["balances"], shown["emptied"]) == (100, 500, 0)


def test_an_approval_and_its_dry_run_print_the_applied_removals(held):
    def accept(*arguments):
        done = held.command("removals", "accept", "--json", *arguments).says().json
        rows = done.pop("removals")
        assert len(rows) == done["balances"]
        return tuple(done.values()), len({row["wallet_id"] for row in rows})

    before = mirrored(held.database)
    dry = held.command("removals", "accept", "--dry-run", wallet(3))
    dry.says("Dry run: would remove 5 balances of 1 wallet")
    assert dry.out.count("no longer listed") == EACH
    assert accept("--dry-run") == ((True, WALLETS, ALL, 0), WALLETS)
    assert (mirrored(held.database), len(held.review())) == (before, ALL)
    assert accept(wallet(3)) == ((False, 1, EACH, 0), 1)
    assert {name for name, _ in before.keys() - mirrored(held.database)} == {wallet(3)}
    assert accept("--yes") == ((False, 99, 495, 0), 99)
    assert accept() == ((False, 0, 0, 0), 0)
    assert held.holdings == 0


@pytest.mark.parametrize(
    ("answer", "more", "code", "left"), [("n", [], 1, ALL), ("y", [], 0, 0), ("", ["--yes"], 0, 0)]
)
def test_an_approval_on_a_terminal_is_confirmed_after_the_summary(
    held, monkeypatch, answer, more, code, left
):
    summary = held.command("removals", "--limit", "1").out.splitlines()[:3]
    terminal, of_process = open_terminal()
    os.write(terminal, f"{answer}\n".encode())
    with os.fdopen(of_process) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        done = held.command("removals", "accept", *more)
    os.close(terminal)
    assert (done.code, held.holdings) == (code, left), done.err
    assert ("Remove 500 balances of 100 wallets from the database?" in done.err) == (not more)
    assert (done.err.splitlines()[:3] == summary) == (not more)
