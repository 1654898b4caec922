"""Decisions of the removal guard: compared holdings, and gains that explain a loss."""

from itertools import pairwise

import pytest

from nftsync.pull.guard import Decision, RemovalLimits, decide
from nftsync.records import Removals
from nftsync.store.day_report import Change, DayReport
from tests.kit.provider import token, wallet

TEN = range(10)


def at(hour):
    return f"2026-01-01T{hour:05.2f}"


def loses(number, tokens=TEN, *amounts, **more):
    """A waiting read of a wallet that loses tokens: all 4 of each, or these amounts."""
    lost = dict.fromkeys(map(token, tokens), amounts or ("4", None))
    fields = {"group": None, "gained": {}, "emptied": [], "renamed": {}, **more}
    return Removals(wallet_id=wallet(number), lost=lost, **fields)


def changes(number, *amounts, hour=12, **more):
    """Changes of the amounts of ten tokens of a wallet, one hour after its last read."""
    fields = {"group": None, "since": at(hour - 1), **more}
    return [
        Change(wallet(number), token=token(n), before=old, after=new, at=at(hour), **fields)
        for n in TEN
        for old, new in pairwise(amounts)
    ]


def day(*waiting, holdings=19, changed=(), **more):
    """A database's report; each loss counts, whatever explains it."""
    lost = [x for x in changed if x.before is not None]
    waiting_lost = [(read.wallet_id, x) for read in waiting for x in read.lost]
    return DayReport(
        at=at(24),
        waiting=list(waiting),
        rows=len(lost) + len(waiting_lost),
        wallets=len({x.wallet for x in lost} | {x for x, _ in waiting_lost}),
        lost={x.token for x in lost}.union(x for _, x in waiting_lost),
        changes=[*changed],
        holdings={(None, False): holdings} if isinstance(holdings, int) else holdings,
        **{"last_reads": {wallet(1): at(11)}, **more},
    )


GOT, NONE = ({token(n): ("4", amount) for n in TEN} for amount in ("8", "0x1"))
NAMES = {token(n): ("0xc0", f"Name {n}", "Not found") for n in range(20)}
SOON = {x: ("0xc0", "Soon", f"Name {x}") for x in NAMES}
EMPTIED = loses(1, [], emptied=[*NAMES][:6])
NEW = {"since": None, "is_first_read": True}

HELD = {
    "more than half": day(loses(1)),
    "the day adds up": day(loses(1, [1]), changed=changes(2, "4", None)),
    "a fall in steps": day(loses(1, TEN, "6", "4"), changed=changes(1, "9", "6")),
    "no number": day(loses(1, TEN, "0x1", None)),
    "no gain": day(loses(1), changed=changes(2, "0x1", "0x1")),
    "a gain before the loss": day(loses(1), changed=changes(2, None, "4", hour=11)),
    "a gain of less than half": day(loses(1), changed=changes(2, None, "1"), holdings=9),
    "a gain explains one loss": day(loses(1), loses(3), changed=changes(2, None, "4")),
    "a gain of the same wallet": day(loses(1), changed=changes(1, "4", "8", "4")),
    "a transfer must stay": day(
        loses(2, TEN, "4", None), changed=[*changes(1, "4", None), *changes(2, None, "4")]
    ),
    "empty, filled and empty again": day(loses(1), changed=changes(1, "4", None, "4")),
    "new wallets hide no loss": day(loses(1), holdings={(None, False): 19, (None, True): 99}),
    "new wallets alone": day(loses(1), holdings={(None, True): 19}, new_wallets={wallet(1)}),
}
HELD_OF_A_GROUP = {
    "only a group": day(
        *(loses(1, group="a"), loses(2, [1], group="b")),
        holdings={("a", False): 10, ("b", False): 90},
    ),
    "a transfer to another group counts there": day(
        loses(1, range(20, 30), group="a"),
        changed=[*changes(3, "4", None, group="a"), *changes(2, None, "4", group="b")],
        holdings={("a", False): 29, ("b", False): 99},
    ),
}
HELD_METADATA = {
    "emptied metadata": day(EMPTIED, emptied={*[*NAMES][5:11]}, tokens=21),
    "one name": day(loses(1, [], renamed=NAMES), tokens=30),
}
ALLOWED = {
    "half": day(loses(1), holdings=20),
    "few rows of few wallets": day(loses(1, range(9)), holdings=9),
    "gained in the day": day(loses(1), changed=changes(1, None, "4"), holdings=0),
    "an amount that becomes no number": day(
        *(loses(1, TEN, "4", "0x1", gained=NONE), loses(4)),
        changed=[*changes(2, None, "4"), *changes(3, None, "4")],
        holdings=0,
    ),
    "a transfer": day(loses(1), changed=changes(2, None, "4")),
    "a transfer in a run": day(loses(1), loses(2, [], gained=GOT)),
    "a transfer to a new wallet": day(loses(1), changed=changes(2, None, "4", **NEW)),
    "a transfer to a new wallet of another group": day(
        loses(1, group="hot"),
        changed=changes(2, None, "4", group="cold", **NEW),
        holdings={("hot", False): 10, ("cold", True): 10},
        new_wallets={wallet(2)},
    ),
    "few new wallets": day(
        loses(1), holdings={(None, False): 99, (None, True): 10}, new_wallets={wallet(1)}
    ),
    "half of the metadata": day(EMPTIED, emptied={*[*NAMES][5:11]}, tokens=22),
    "no waiting metadata": day(emptied={*NAMES}, tokens=20),
    "a reveal": day(loses(1, [], renamed=SOON), tokens=30),
    "another common name": day(
        loses(1, [], renamed=dict.fromkeys(NAMES, ("0xc0", "Old", "New"))), tokens=30
    ),
}
CASES = [
    pytest.param(report, decision, id=name)
    for decision, reports in (
        (Decision(all_balances=True), HELD),
        (Decision(groups=frozenset("a")), HELD_OF_A_GROUP),
        (Decision(metadata=True), HELD_METADATA),
        (Decision(), ALLOWED),
    )
    for name, report in reports.items()
]


def test_few_removals_of_few_wallets_are_never_held():
    limits = RemovalLimits(share=0.5, rows=100)
    assert [limits.exceeded(rows, 199) for rows in (99, 100)] == [False, True]
    assert [limits.exceeded(20, 39, wallets) for wallets in (19, 20)] == [False, True]


@pytest.mark.parametrize(("report", "decision"), CASES)
def test_a_decision_follows_from_the_reports(report, decision):
    limits = RemovalLimits(share=0.5, rows=10)
    assert decide(limits, [report]) == decision
    assert any(map(decision.holds, report.waiting)) == (decision != Decision())
    assert decide(RemovalLimits(share=1.0, rows=1), [report]) == Decision()
    parts = [DayReport(**{name: getattr(report, name)}) for name in DayReport.__struct_fields__]
    assert decide(limits, parts) == decision  # reports of several databases add up
