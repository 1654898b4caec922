"""Decisions of the removal guard: compared holdings, and gains that explain a loss."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from nftsync.pull.guard import Decision, RemovalLimits, decide
from nftsync.records import Removals
from nftsync.store.day_report import Change, DayReport
from nftsync.times import now, shifted
from tests.kit.provider import token, wallet
from tests.pull.removal_site import ALL, EACH, Site


def test_holdings_of_yesterday_count_and_removals_of_yesterday_do_not(site: Site) -> None:
    site.empty(range(45))
    assert (site.sync(), site.held) == (0, ALL - 45 * EACH)
    site.grow_older(timedelta(hours=25))
    site.empty(range(45, 65))
    assert (site.sync(), site.held) == (0, ALL - 65 * EACH)
    site.empty(range(65, 80))
    assert (site.sync(), site.held) == (1, ALL - 65 * EACH)


def test_a_clock_that_was_ahead_counts_removals_for_a_day_at_most(site: Site) -> None:
    ahead, a_day_ago = shifted(now(), timedelta(days=400)), shifted(now(), -timedelta(hours=25))
    for table in ("balance_change_rows", "wallet_state_rows"):
        site.query(f"UPDATE {table} SET observed_at = ?", ahead)
    site.empty(range(45))
    assert (site.sync(), site.held) == (0, ALL - 45 * EACH)
    site.empty(range(60))
    assert (site.sync(), site.held) == (1, ALL - 45 * EACH)
    site.query("UPDATE sync_runs SET started_at = ?1, finished_at = ?1", a_day_ago)
    site.query("DELETE FROM removal_rows")
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
    fields: dict[str, Any] = {"group": None, "gained": {}, "emptied": [], "renamed": {}}
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
    "a transfer to another group counts there": (
        day(
            loses(1, range(20, 30), group="a"),
            changed=[*changes(3, "4", None, group="a"), *changes(2, None, "4", group="b")],
            holdings={("a", False): 29, ("b", False): 99},
        ),
        Decision(groups=frozenset("a")),
    ),
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


def test_few_removals_of_few_wallets_are_never_held() -> None:
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
