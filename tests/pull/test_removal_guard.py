"""What the removal guard compares with, and which gains explain a loss."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nftsync.times import now, shifted
from tests.kit.provider import entry, token, wallet
from tests.kit.terminals import open_terminal
from tests.kit.worlds import made_once, mirrored
from tests.pull.removal_site import ALL, EACH, NAMED, WALLETS, Site

EDITIONS = 20
HOLDINGS = WALLETS * EDITIONS // 2


def editions(
    site: Site, wallets: Iterable[int] = range(WALLETS), amount: str = "5", more: int = 0
) -> None:
    """Let each wallet list ten of twenty tokens that all share, and further ones."""
    for number in wallets:
        tokens = [8_000 + (number + 2 * place) % EDITIONS for place in range(EDITIONS // 2)]
        tokens += range(9_000, 9_000 + more)
        site.provider.holds(wallet(number), *(entry(token(n), amount, **NAMED) for n in tokens))


@pytest.fixture
def alike(site: Site, shared: Path) -> Site:
    """A site whose wallets hold the same tokens; that they came is long ago."""
    editions(site)

    def make() -> None:
        assert site.sync("--allow-removals") == 0
        site.grow_older(timedelta(hours=48))
        assert site.held == HOLDINGS

    begin_with(site, shared / "editions", make)
    return site


def begin_with(site: Site, made: Path, make: Callable[[], object]) -> None:
    """Begin with a copy of the database that the first test of a run has made."""

    def keep(folder: Path) -> None:
        make()
        shutil.copy(site.database, folder)

    made_once(made.parent, made.name, keep)
    shutil.copy(made / site.database.name, site.database)


def test_losers_that_gained_before_do_not_excuse_each_other(alike: Site) -> None:
    editions(alike, amount="6")
    assert alike.sync() == 0
    alike.empty()
    assert (alike.sync(), alike.held) == (1, HOLDINGS)
    editions(alike, amount="0x10")
    assert (alike.sync(), alike.held) == (1, HOLDINGS)


def test_an_airdrop_excuses_no_loss_and_can_be_burned(alike: Site) -> None:
    airdropped = 10
    editions(alike, more=airdropped)
    assert alike.sync() == 0
    alike.empty()
    assert (alike.sync(), alike.held) == (1, HOLDINGS + airdropped * WALLETS)
    editions(alike, more=airdropped)
    assert (alike.sync(), alike.held_back()) == (0, [])
    editions(alike)
    assert (alike.sync(), alike.held) == (0, HOLDINGS)


def test_wallets_that_were_empty_for_a_while_are_compared_with_the_day_before(
    alike: Site,
) -> None:
    some = 45
    for turn in range(3):
        alike.empty(n % WALLETS for n in range(turn * some, (turn + 1) * some))
        assert alike.sync() == 0
        editions(alike)
        assert (alike.sync(), alike.held) == (0, HOLDINGS)
    alike.empty()
    assert (alike.sync(), alike.held) == (1, HOLDINGS)


def test_amounts_that_fall_in_steps_are_held_once_they_are_below_half(site: Site) -> None:
    amount, codes = 10_000, []
    for _ in range(5):
        site.fill(amount=str(amount))
        codes.append(site.sync("--allow-removals" if amount == 10_000 else "--json"))
        amount = amount * 51 // 100
    assert codes == [0, 0, 1, 1, 1]
    assert set(mirrored(site.database).values()) == {"5100"}
    assert {row["what"] for row in site.held_back()} == {"amount fell"}


def test_what_came_yesterday_counts_and_what_went_then_does_not(site: Site) -> None:
    site.empty(range(45))
    assert (site.sync(), site.held) == (0, ALL - 45 * EACH)
    site.grow_older(timedelta(hours=25))
    site.empty(range(45, 65))
    assert (site.sync(), site.held) == (0, ALL - 65 * EACH)
    site.empty(range(65, 80))
    assert (site.sync(), site.held) == (1, ALL - 65 * EACH)


def test_one_name_for_all_tokens_of_a_contract_is_held_as_emptied_metadata(site: Site) -> None:
    def names(name: str) -> None:
        for number in range(WALLETS):
            tokens = (EACH * number + place for place in range(EACH))
            site.provider.holds(
                wallet(number),
                *(
                    entry(token(n), "4", contractAddress="0xC0", metadata={"name": name.format(n)})
                    for n in tokens
                ),
            )

    names("Piece {}")  # a reveal: all had the same name
    assert site.sync() == 0
    names("Not found")
    for _ in range(2):
        assert site.sync() == 1
        assert site.query("SELECT count(*) FROM tokens WHERE name LIKE 'Piece %'") == [(ALL,)]
    assert {row["what"] for row in site.held_back()} == {"name replaced"}
    names("Piece {}")
    assert (site.sync(), site.held_back()) == (0, [])
    names("Not found")
    assert site.sync() == 1
    assert site.run("removals", "accept")[0] == 0
    assert site.query("SELECT DISTINCT name FROM tokens") == [("Not found",)]
    names("Found")  # they share one name from now on
    assert site.sync() == 0


def test_a_sweep_into_a_new_wallet_is_a_transfer(site: Site) -> None:
    swept = [entry(token(n), "4", **NAMED) for n in range(ALL)]
    site.empty()
    assert (site.sync(), site.held) == (1, ALL)  # nobody has got them so far
    site.provider.holds(wallet(700), *swept)
    assert site.run("wallets", "add", wallet(700))[0] == 0
    assert (site.sync(), site.held_back()) == (0, [])
    assert mirrored(site.database) == {(wallet(700), token(n)): "4" for n in range(ALL)}
    site.provider.holds(wallet(700))
    assert (site.sync(), site.held) == (1, ALL)


def test_a_sweep_into_a_new_wallet_of_another_group_is_a_transfer(site: Site) -> None:
    """The group that is empty then has only the new wallet's first read to explain it."""
    assert site.sync("--wallets-file", site.groups(hot=range(WALLETS))) == 0
    site.grow_older(timedelta(hours=48))
    site.provider.holds(wallet(700), *(entry(token(n), "4", **NAMED) for n in range(ALL)))
    site.empty()
    file = site.groups(hot=range(WALLETS), cold=[700])
    assert (site.sync("--wallets-file", file), site.held_back()) == (0, [])
    assert mirrored(site.database) == {(wallet(700), token(n)): "4" for n in range(ALL)}


@pytest.fixture
def onboarded(site: Site, shared: Path) -> Callable[..., Site]:
    """A site with old wallets, and three times as many that have been read since.

    The first thirty wallets and the new ones can be a group.
    """

    def onboard(*, groups: bool = False) -> Site:
        site.fill(4 * WALLETS)

        def make() -> None:
            site.grow_older(timedelta(hours=48))
            new = range(WALLETS, 4 * WALLETS)
            if groups:
                file = site.groups(hot=[*range(30), *new], cold=range(30, WALLETS))
            else:
                file = site.groups(all=[*range(WALLETS), *new])
            assert (site.sync("--wallets-file", file), site.held) == (0, 4 * ALL)

        begin_with(site, shared / f"onboarded-{groups}", make)
        return site

    return onboard


@pytest.mark.parametrize(
    ("groups", "empty", "code", "left"),
    [
        (False, range(60), 1, 4 * ALL),
        (False, range(45), 0, 4 * ALL - 45 * EACH),
        (True, range(30), 1, 4 * ALL),  # the old ones of a group; seventy of another are there
        (False, range(150, 4 * WALLETS), 1, 4 * ALL),  # new ones, which are guarded, too
    ],
)
def test_new_wallets_hide_no_loss_of_the_others(
    onboarded: Callable[..., Site], groups: bool, empty: range, code: int, left: int
) -> None:
    site = onboarded(groups=groups)
    site.empty(empty)
    assert (site.sync(), site.held) == (code, left)


def test_what_came_today_neither_hides_an_older_loss_nor_is_it_guarded_alone(site: Site) -> None:
    """A hundred wallets that were empty when they were first read get ten NFTs each."""
    site.grow_older(timedelta(hours=48))
    new = range(WALLETS, 2 * WALLETS)
    site.empty(new)
    assert site.run("wallets", "add", *map(wallet, new))[0] == 0
    assert site.sync() == 0
    for number in new:
        site.lists(number, *range(EACH))
    assert (site.sync(), site.held) == (0, 2 * ALL)
    site.empty(range(60))
    assert (site.sync(), site.held) == (1, 2 * ALL)
    site.empty(new)
    assert (site.sync(), site.held) == (1, 2 * ALL)
    site.fill()
    assert (site.sync(), site.held) == (0, ALL)


def test_first_reads_of_one_run_are_no_gains_of_each_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.database = site.database.with_name("new.db")
    editions(site)
    (site.database.parent / "all.txt").write_text("\n".join(map(wallet, range(WALLETS))))
    assert site.sync("--wallets-file", "all.txt") == 0
    site.empty(range(60))
    assert (site.sync(), site.held) == (1, HOLDINGS)


def test_a_gain_that_was_read_before_the_loss_could_happen_explains_nothing(alike: Site) -> None:
    """Sixty wallets got as much of each token as the others lose; only that was hours ago."""
    editions(alike, range(60), amount="15")
    assert alike.sync() == 0
    assert alike.sync() == 0  # which confirms what the others hold
    alike.empty(range(60, WALLETS))
    alike.empty(range(40))
    assert (alike.sync(), alike.held) == (1, HOLDINGS)


def test_a_clock_that_was_ahead_counts_removals_no_longer_than_a_day(site: Site) -> None:
    ahead = shifted(now(), timedelta(days=400))
    with closing(sqlite3.connect(site.database)) as connection, connection:
        for table in ("balance_change_rows", "wallet_state_rows"):
            connection.execute(f"UPDATE {table} SET observed_at = ?", (ahead,))
    site.empty(range(45))
    assert (site.sync(), site.held) == (0, ALL - 45 * EACH)
    site.empty(range(60))
    assert (site.sync(), site.held) == (1, ALL - 45 * EACH)
    editions(site, range(45, 60))
    with closing(sqlite3.connect(site.database)) as connection, connection:
        a_day_ago = shifted(now(), -timedelta(hours=25))
        connection.execute("UPDATE sync_runs SET started_at = ?1, finished_at = ?1", (a_day_ago,))
        connection.execute("DELETE FROM removal_rows")
    site.empty(range(60))
    assert (site.sync(), site.held) == (0, ALL - 60 * EACH)


# Approving -----------------------------------------------------------------------------------


@pytest.fixture
def held(site: Site) -> Site:
    """A site with removals of all wallets held for review."""
    site.empty()
    assert site.sync() == 1
    return site


def test_an_approval_and_its_dry_run_say_in_json_what_they_apply(held: Site) -> None:
    def accept(*arguments: str) -> dict[str, Any]:
        code, out, _ = held.run("removals", "accept", "--json", *arguments)
        assert code == 0
        found: dict[str, Any] = json.loads(out)
        assert len(found["removals"]) == found["balances"]
        return found

    before = mirrored(held.database)
    code, out, err = held.run("removals", "accept", "--dry-run", wallet(3))
    assert (code, out.count("no longer listed")) == (0, EACH)
    assert "Dry run: would remove 5 balances of 1 wallet" in err
    found = accept("--dry-run")
    assert (found["dry_run"], found["wallets"], found["balances"]) == (True, WALLETS, ALL)
    assert (mirrored(held.database), len(held.held_back())) == (before, ALL)
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
def test_on_a_terminal_an_approval_is_confirmed(
    held: Site,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    more: list[str],
    code: int,
    left: int,
) -> None:
    terminal, of_process = open_terminal()
    os.write(terminal, f"{answer}\n".encode())
    with os.fdopen(of_process) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        ended, _, err = held.run("removals", "accept", *more)
    os.close(terminal)
    assert (ended, held.held) == (code, left), err
    assert ("Remove 500 balances of 100 wallets" in err) == (not more)
