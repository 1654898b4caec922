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
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nftsync.pull.guard import Decision, RemovalLimits, decide
from nftsync.records import Removals
from nftsync.store.day_report import Change, DayReport
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


@pytest.mark.parametrize(("wallets", "code"), [(60, 1), (45, 0)])
def test_new_wallets_hide_no_loss_of_the_others(site: Site, wallets: int, code: int) -> None:
    site.grow_older(timedelta(hours=48))
    site.fill(4 * WALLETS)
    file = site.groups(all=range(4 * WALLETS))
    assert (site.sync("--wallets-file", file), site.held) == (0, 4 * ALL)
    site.empty(range(wallets))
    assert (site.sync(), site.held) == (code, 4 * ALL - (0 if code else wallets * EACH))


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


# Decisions on plain data -----------------------------------------------------------------------

_DAY_AGO, _NOW = 0, 24
_LIMITS = RemovalLimits(share=0.5, rows=10)
TEN = range(10)


def at(hour: float) -> str:
    return f"2026-01-01T{hour:05.2f}"


def loses(number: int, tokens: Iterable[int] = TEN, *amounts: str | None, **more: Any) -> Removals:
    """A waiting read of a wallet that loses tokens: all 4 of each, or these amounts."""
    lost = dict.fromkeys(map(token, tokens), amounts or ("4", None))
    fields = {"group": None, "gained": {}, "emptied": [], "renamed": {}}
    return Removals(wallet_id=wallet(number), **{**fields, "lost": lost, **more})


def changes(number: int, *amounts: str | None, hour: float = 12, **more: Any) -> list[Change]:
    """Changes of the amounts of ten tokens of a wallet, one hour after its last read."""
    fields: dict[str, Any] = {"group": None, "since": at(hour - 1), **more}
    return [
        Change(wallet(number), token=token(n), before=old, after=new, at=at(hour), **fields)
        for n in TEN
        for old, new in pairwise(amounts)
    ]


def day(
    *waiting: Removals,
    holdings: int | dict[tuple[str | None, bool], int] = 19,
    changed: list[Change] | None = None,
    **more: Any,
) -> DayReport:
    """A database's report; each loss counts, whatever explains it."""
    lost = [x for x in changed or () if x.before is not None]
    waiting_lost = [(read.wallet_id, x) for read in waiting for x in read.lost]
    return DayReport(
        at=at(_NOW),
        waiting=list(waiting),
        rows=len(lost) + len(waiting_lost),
        wallets=len({x.wallet for x in lost} | {x for x, _ in waiting_lost}),
        lost={x.token for x in lost}.union(x for _, x in waiting_lost),
        changes=changed or [],
        holdings={(None, False): holdings} if isinstance(holdings, int) else holdings,
        **{"last_reads": {wallet(1): at(11)}, **more},
    )


HOLD, ALLOW = Decision(all_balances=True), Decision()
GOT = {token(n): ("4", "8") for n in TEN}
NAMES = {token(n): ("0xc0", f"Name {n}", "Not found") for n in range(20)}


CASES = {
    "more than half": (day(loses(1)), HOLD),
    "half": (day(loses(1), holdings=20), ALLOW),
    "few rows of few wallets": (day(loses(1, range(9)), holdings=9), ALLOW),
    "only a group": (
        day(
            loses(1, group="a"),
            loses(2, [1], group="b"),
            holdings={("a", False): 10, ("b", False): 90},
        ),
        Decision(groups=frozenset("a")),
    ),
    "the day adds up": (day(loses(1, [1]), changed=changes(2, "4", None)), HOLD),
    "a fall in steps": (day(loses(1, TEN, "6", "4"), changed=changes(1, "9", "6")), HOLD),
    "gained in the day": (day(loses(1), changed=changes(1, None, "4"), holdings=0), ALLOW),
    "no number": (day(loses(1, TEN, "0x1", None)), HOLD),
    "an amount that becomes no number": (
        day(
            loses(1, TEN, "4", "0x1", gained={token(n): ("4", "0x1") for n in TEN}),
            loses(4),
            changed=[*changes(2, None, "4"), *changes(3, None, "4")],
            holdings=0,
        ),
        ALLOW,
    ),
    "a transfer": (day(loses(1), changed=changes(2, None, "4")), ALLOW),
    "a transfer in a run": (day(loses(1), loses(2, [], gained=GOT)), ALLOW),
    "no gain": (day(loses(1), changed=changes(2, "0x1", "0x1")), HOLD),
    "a gain before the loss": (day(loses(1), changed=changes(2, None, "4", hour=11)), HOLD),
    "a gain of less than half": (day(loses(1), changed=changes(2, None, "1"), holdings=9), HOLD),
    "a gain explains one loss": (
        day(loses(1), loses(3), changed=changes(2, None, "4"), holdings=19),
        HOLD,
    ),
    "a gain of the same wallet": (
        day(loses(1), changed=changes(1, "4", "8", "4"), holdings=19),
        HOLD,
    ),
    "a transfer must stay": (
        day(loses(2, TEN, "4", None), changed=[*changes(1, "4", None), *changes(2, None, "4")]),
        HOLD,
    ),
    "a transfer to a new wallet": (
        day(loses(1), changed=changes(2, None, "4", since=None, is_first_read=True)),
        ALLOW,
    ),
    "a transfer to a new wallet of another group": (
        day(
            loses(1, group="hot"),
            changed=changes(2, None, "4", group="cold", since=None, is_first_read=True),
            holdings={("hot", False): 10, ("cold", True): 10},
            new_wallets={wallet(2)},
        ),
        ALLOW,
    ),
    "empty, filled and empty again": (
        day(loses(1), changed=changes(1, "4", None, "4"), holdings=19),
        HOLD,
    ),
    "new wallets hide no loss": (
        day(loses(1), holdings={(None, False): 19, (None, True): 99}),
        HOLD,
    ),
    "new wallets alone": (
        day(loses(1), holdings={(None, True): 19}, new_wallets={wallet(1)}),
        HOLD,
    ),
    "few new wallets": (
        day(loses(1), holdings={(None, False): 99, (None, True): 10}, new_wallets={wallet(1)}),
        ALLOW,
    ),
    "emptied metadata": (
        day(loses(1, [], emptied=[*NAMES][:6]), emptied={*[*NAMES][5:11]}, tokens=21),
        Decision(metadata=True),
    ),
    "half of the metadata": (
        day(loses(1, [], emptied=[*NAMES][:6]), emptied={*[*NAMES][5:11]}, tokens=22),
        ALLOW,
    ),
    "no waiting metadata": (day(emptied={*NAMES}, tokens=20), ALLOW),
    "one name": (day(loses(1, [], renamed=NAMES), tokens=30), Decision(metadata=True)),
    "a reveal": (
        day(loses(1, [], renamed={x: ("0xc0", "Soon", f"Name {x}") for x in NAMES}), tokens=30),
        ALLOW,
    ),
    "another common name": (
        day(loses(1, [], renamed=dict.fromkeys(NAMES, ("0xc0", "Old", "New"))), tokens=30),
        ALLOW,
    ),
}


def test_few_removals_of_few_wallets_are_never_too_many() -> None:
    limits = RemovalLimits(share=0.5, rows=100)
    assert [limits.exceeded(rows, 199) for rows in (99, 100)] == [False, True]
    assert [limits.exceeded(20, 39, wallets) for wallets in (19, 20)] == [False, True]


@pytest.mark.parametrize(("report", "decision"), CASES.values(), ids=CASES)
def test_a_decision_follows_from_the_reports(report: DayReport, decision: Decision) -> None:
    assert decide(_LIMITS, [report]) == decision
    assert any(map(decision.holds, report.waiting)) == (decision != ALLOW)
    assert decide(RemovalLimits(share=1.0, rows=1), [report]) == ALLOW
    parts = [DayReport(**{name: getattr(report, name)}) for name in DayReport.__struct_fields__]
    assert decide(_LIMITS, parts) == decision  # reports of several databases add up


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
