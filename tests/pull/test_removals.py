"""A provider that answers 200 and lies cannot wipe the database: its removals are held for review.

100 wallets hold five NFTs each. Each attack is run through the commands, as an operator would.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from nftsync.store.inbox import store
from nftsync.store.mirror import Mirror
from nftsync.times import now
from tests.kit.provider import entry, token, wallet
from tests.kit.worlds import mirrored, replayed
from tests.pull.removal_site import ALL, EACH, NAMED, WALLETS, Site
from tests.replay.world import delivery


def _nothing(site: Site, number: int) -> None:
    site.lists(number)


def _a_fifth(site: Site, number: int) -> None:
    site.lists(number, 0)


def _zeros(site: Site, number: int) -> None:
    site.lists(number, *range(EACH), amount="0")


def _dust(site: Site, number: int) -> None:
    site.provider.holds(wallet(number), entry(token(9_000), "1"))


def _no_numbers(site: Site, number: int) -> None:
    site.lists(number, *range(EACH), amount="NaN")


def _ones(site: Site, number: int) -> None:
    site.lists(number, *range(EACH), amount="1")


ATTACKS = [_nothing, _a_fifth, _zeros, _dust, _no_numbers, _ones]


@pytest.mark.parametrize(
    ("attacks", "attacked"), [(ATTACKS, 65), ([_dust], WALLETS)], ids=["each", "dust for all"]
)
def test_a_run_in_which_most_vanishes_takes_nothing_away_and_the_truth_clears_it(
    site: Site, attacks: list[Callable[[Site, int], None]], attacked: int
) -> None:
    before = mirrored(site.database)
    for number in range(attacked):
        attacks[number % len(attacks)](site, number)
    for _ in range(2):
        assert site.sync() == 1
        assert mirrored(site.database).items() >= before.items()
    affected = {row["wallet_id"] for row in site.held_back()}
    assert affected == set(map(wallet, range(attacked)))
    site.fill()
    assert (site.sync(), site.held_back(), mirrored(site.database)) == (0, [], before)
    assert site.query("SELECT DISTINCT status, error FROM wallets") == [("ok", None)]


def test_a_part_that_grows_from_run_to_run_is_stopped_at_half(site: Site) -> None:
    codes = []
    for run in range(1, 6):
        site.empty(range(15 * run))
        codes.append(site.sync())
    assert codes == [0, 0, 0, 1, 1]
    assert site.held == ALL - 45 * EACH
    assert len(site.held_back()) == 30 * EACH


def test_few_wallets_at_a_time_are_stopped_at_half_all_the_same(site: Site) -> None:
    site.empty()
    for start in range(0, WALLETS, 19):
        site.sync(*map(wallet, range(start, min(WALLETS, start + 19))))
    assert site.held >= ALL // 2


def test_webhooks_alone_take_no_more_than_half(site: Site) -> None:
    codes = []
    for start in range(0, WALLETS, 25):
        numbers = range(start, start + 25)
        site.empty(numbers)
        deliveries = [delivery(number, "Wallet", wallet(number)) for number in numbers]
        with Mirror(site.database) as mirror, mirror.transaction() as transaction:
            store(transaction.connection, deliveries, now())
        codes.append(site.run("replay")[0])
    assert codes == [0, 0, 1, 1]
    assert site.held == ALL // 2
    assert site.query("SELECT DISTINCT state, attempts FROM webhooks") == [("done", 1)]


def test_emptied_metadata_is_held_back_and_the_truth_clears_it(site: Site) -> None:
    site.fill(metadata={})
    for _ in range(2):
        assert site.sync() == 1
        assert (site.names, site.held) == (ALL, ALL)
    assert {row["what"] for row in site.held_back()} == {"metadata emptied"}
    site.fill()
    assert (site.sync(), site.names, site.held_back()) == (0, ALL, [])


def test_one_token_that_all_wallets_hold_is_one_whose_metadata_was_emptied(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.1")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10")
    shared = token(9_000)
    for metadata in ({"name": "A name"}, {}):
        for number in range(WALLETS):
            own = (entry(token(EACH * number + n), "4", **NAMED) for n in range(EACH))
            site.provider.holds(wallet(number), *own, entry(shared, "1", metadata=metadata))
        assert site.sync() == 0
    assert site.query(f"SELECT name FROM tokens WHERE token_id = '{shared}'") == [(None,)]


def test_a_token_that_is_as_it_was_leaves_what_is_held_back_of_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tokens read by their ids: each clears what is held back of itself alone."""
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "2")

    def says(number: int, **metadata: str) -> None:
        record = json.dumps({"id": token(number), "metadata": metadata}).encode()
        site.provider.bodies[f"/v1/tokens/{token(number)}"] = record

    for number in range(2 * EACH):
        says(number, description="of the token")
    assert site.sync("--tokens", wallet(0), wallet(1)) == 0
    for number in range(EACH):
        says(number)
    assert site.sync("--tokens", wallet(0)) == 1
    emptied = {token(number) for number in range(EACH)}
    assert {row["token_id"] for row in site.held_back()} == emptied
    says(0, description="of the token")
    assert site.sync("--tokens", wallet(1)) == 0
    assert {row["token_id"] for row in site.held_back()} == emptied
    assert site.sync("--tokens", wallet(0)) == 1
    assert {row["token_id"] for row in site.held_back()} == emptied - {token(0)}


def test_what_the_rest_of_a_run_finds_is_applied(site: Site) -> None:
    site.empty(range(60))
    site.provider.holds(wallet(0), entry(token(7_000)))
    site.provider.holds(wallet(80), *(entry(token(EACH * 80 + n), "9") for n in range(EACH)))
    assert site.sync() == 1
    held = mirrored(site.database)
    assert held[wallet(0), token(7_000)] == "1"
    assert held[wallet(80), token(EACH * 80)] == "9"
    assert site.query("SELECT status, count(*) FROM wallets GROUP BY 1") == [
        ("incomplete", 60),
        ("ok", 40),
    ]


def test_removals_that_an_incomplete_read_applies_are_no_longer_held(site: Site) -> None:
    less = [[entry(token(EACH * n + place), "1", **NAMED) for place in range(EACH)] for n in (0, 1)]
    for number in range(60):
        _ones(site, number)
    assert (site.sync(), len(site.held_back())) == (1, 60 * EACH)
    site.provider.holds(wallet(0), *less[0], nextPage="a")
    site.provider.holds(wallet(1), *less[1][:2], nextPage="a")
    assert site.sync("--allow-removals", wallet(0), wallet(1)) == 1
    still = {row["token_id"] for row in site.held_back() if row["wallet_id"] == wallet(1)}
    assert still == {token(EACH + place) for place in range(2, EACH)}
    assert wallet(0) not in {row["wallet_id"] for row in site.held_back()}


def test_only_the_group_in_which_most_vanishes_is_held_back(site: Site) -> None:
    assert site.sync("--wallets-file", site.groups(cold=range(30), hot=range(30, WALLETS))) == 0
    site.empty([*range(25), 50])
    assert site.sync() == 1
    assert site.held == ALL - EACH
    assert len(site.held_back()) == 25 * EACH


def test_what_moves_between_wallets_has_not_vanished(site: Site) -> None:
    """All of it, three times in a day, out of one group into another among it."""
    file = site.groups(cold=range(50), hot=range(50, WALLETS))
    for moved in (50, 51, 7):
        for number in range(WALLETS):
            held = (EACH * number + place for place in range(EACH))
            entries = (entry(token(n), "4", **NAMED) for n in held)
            site.provider.holds(wallet((number + moved) % WALLETS), *entries)
        assert (site.sync("--wallets-file", file), site.held) == (0, ALL)
    site.empty()
    assert (site.sync(), site.held) == (1, ALL)


@pytest.mark.parametrize("wallets", [1, 19])
def test_wallets_that_sell_their_last_are_not_held_up(site: Site, wallets: int) -> None:
    site.empty(range(wallets))
    assert (site.sync(), site.held) == (0, ALL - wallets * EACH)


def test_accepted_removals_are_applied_as_they_were_read(site: Site) -> None:
    attacks = [*ATTACKS, lambda site, n: site.lists(n, *range(EACH), metadata={})]
    for number in range(98):
        attacks[number % len(attacks)](site, number)
    before = site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1")
    assert site.sync() == 1
    _, out, err = site.run("removals")
    assert "no longer listed" in out
    assert "98 wallets" not in out
    assert "nftsync removals accept" in err
    assert site.run("removals", "accept", wallet(0))[0] == 0
    assert wallet(0) not in {row["wallet_id"] for row in site.held_back()}
    assert wallet(0) not in {wallet_id for wallet_id, _ in mirrored(site.database)}
    code, _, err = site.run("removals", "accept")
    assert (code, site.held_back()) == (0, [])
    assert "Approved and applied" in err
    accepted = mirrored(site.database)
    assert replayed(site.database) == accepted
    assert site.query("SELECT wallet_id, synced_at FROM wallets ORDER BY 1") > before
    assert site.query("SELECT DISTINCT status FROM wallets") == [("ok",)]
    # It is what a sync that takes the provider's word finds.
    assert site.sync("--allow-removals") == 0
    assert mirrored(site.database) == accepted
    assert site.run("status", "--json")[1].count('"removed":0') == 0


def test_what_is_held_back_is_told_by_status_check_and_the_failures(site: Site) -> None:
    site.empty()
    code, out, err = site.run("sync")
    assert code == 1
    assert "0 wallets read, 100 incomplete; " in out
    assert "100 wallets: removals held for review" in err
    assert "nftsync removals" in err
    assert "0 wallets ok, 100 incomplete or failed)" in site.run("status")[1]
    for command in ("status", "check"):
        assert "500 balances of 100 wallets" in site.run(command)[1]
    told = json.loads(site.run("status", "--json")[1])["removals_held"]
    assert (told["wallets"], told["balances"], told["emptied"]) == (100, 500, 0)


def test_the_list_starts_with_a_summary_that_names_the_largest_parts_and_the_first_time(
    site: Site,
) -> None:
    site.run("wallets", "label", wallet(7), "Vault\x1b[31m")
    site.empty(range(60))
    assert site.sync() == 1
    first = site.held_back()[0]["observed_at"]
    assert site.sync() == 1
    assert {row["observed_at"] for row in site.held_back()} == {first}
    _, out, err = site.run("removals", "--limit", "1")
    summary, wallets, collections, *_ = out.splitlines()
    since = first[:19].replace("T", " ")
    assert summary == (
        "300 removals held for review (60 % of holdings): 300 balances of 60 wallets."
        f" Seen by 60 reads since {since} UTC."
    )
    assert wallets.startswith("By wallet: ")
    assert wallets.endswith(", and 57 others.")
    assert "\x1b" not in out
    assert collections == "By collection: none (300)."
    assert "Approve the removals: nftsync removals accept" in err
    assert len(json.loads(site.run("removals", "--json", "--limit", "1")[1])) == 300


def test_on_a_terminal_accept_shows_the_summary_and_asks_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.empty(range(60))
    assert site.sync() == 1
    summary = site.run("removals", "--limit", "1")[1].splitlines()[:3]
    for answer, code, left in (("n", 1, 300), ("y", 0, 0)):
        typed = io.StringIO(f"{answer}\n")
        monkeypatch.setattr(typed, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", typed)
        ended, _, err = site.run("removals", "accept")
        assert err.splitlines()[:3] == summary
        assert "Remove 300 balances of 60 wallets from the database?" in err
        assert (ended, len(site.held_back())) == (code, left)


def test_the_limits_are_settings(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.empty(range(70))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0.7")
    assert (site.sync(), site.held) == (0, ALL - 350)
    site.empty(range(70, 75))
    monkeypatch.setenv("NFTSYNC_REMOVAL_LIMIT", "0")
    monkeypatch.setenv("NFTSYNC_REMOVAL_ROWS", "10000")
    assert (site.sync(), site.held) == (1, ALL - 350)  # of 20 wallets and more, any is too much


def test_an_interrupted_run_takes_nothing_of_it_away(site: Site) -> None:
    """Nobody knows how much of it would have vanished in the end."""
    site.empty()
    site.provider.on(f"/v1/wallets/{wallet(WALLETS - 1)}/nft-balances", _interrupting)
    assert site.sync() == 130
    assert (site.held, site.held_back()) == (ALL, [])
    site.provider.on(f"/v1/wallets/{wallet(WALLETS - 1)}/nft-balances")
    assert site.sync("--resume") == 1
    assert (site.held, len(site.held_back())) == (ALL, ALL)


def _interrupting(peer: Any) -> bool:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGINT)
    peer.wait(0.5)
    return False
