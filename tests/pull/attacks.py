"""Scenarios of a provider that answers 200 to all requests: faults, and large legitimate changes.

Each starts with a complete mirror of 100 wallets with ten NFTs each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.provider import Provider, entry, token, wallet
from tests.pull.removal_site import Site

WALLETS, EACH = 100, 10
ALL = WALLETS * EACH
OLD = range(WALLETS)
#: An amount for many halvings.
_MUCH = 10**9

#: The entries of a wallet's list, by its number.
Make = Callable[[int], list[dict[str, Any]]]
#: The lists that change before a sync, which reads their wallets alone. Without any, a sync of all
#: wallets approves the removals, and lets the stored holdings count as old.
Step = dict[int, list[dict[str, Any]]]


class Attacked(Site):
    """A site whose provider is attacked."""

    def lost(self, what: str) -> float:
        """Return the removed share of the first holdings, or of their amounts."""
        statement = (
            "SELECT count(*) FROM holdings WHERE amount GLOB '*[1-9]*'"
            f" AND amount NOT GLOB '*[^0-9]*' AND token_id < '{token(ALL)}'"
        )
        if what == "amounts":
            statement = f"SELECT sum(CAST(amount AS REAL)) / {_MUCH} FROM holdings"
        return max(0.0, 1 - (self.query(statement)[0][0] or 0) / ALL)

    @property
    def reviewed(self) -> int:
        """The number of removals held for review."""
        return int(self.query("SELECT count(*) FROM removal_rows WHERE held")[0][0])


def _own(number: int, places: int = EACH, amount: str = "4") -> Any:
    return [entry(token(EACH * number + place), amount) for place in range(places)]


def _editions(number: int, amount: str = "5", airdropped: int = 0) -> Any:
    """Return ten of twenty tokens that all wallets share, and the airdropped ones."""
    tokens = [(number + 2 * place) % 20 for place in range(EACH)]
    return [entry(token(n), amount) for n in [*tokens, *range(ALL, ALL + airdropped)]]


def _nothing(_: int) -> Any:
    return []


def _lists(make: Make, numbers: Iterable[int] = OLD) -> Step:
    return {number: make(number) for number in numbers}


def _in_turn(*makes: Make) -> Callable[[], Iterable[Step]]:
    return lambda: (_lists(make) for make in makes)


def _flapping() -> Iterable[Step]:
    """Empty and restore other wallets each time; then empty all."""
    for turn in range(3):
        yield _lists(_nothing, (n % WALLETS for n in range(turn * 40, (turn + 1) * 40)))
        yield _lists(_editions)
    yield _lists(_nothing)


def _added(numbers: range, *added: Make, emptied: Iterable[int]) -> Iterable[Step]:
    """Read more wallets, then empty some of all."""
    yield {}
    for make in added:
        yield _lists(make, numbers)
    yield _lists(_nothing, emptied)


def _migrate(size: int, make: Make, *, at_once: bool = True) -> Iterable[Step]:
    """Transfer each wallet's NFTs to a new one, those of some wallets at a time."""
    for start in OLD[::size]:
        some = OLD[start : start + size]
        old, new = _lists(_nothing, some), {WALLETS + number: make(number) for number in some}
        yield from [old | new] if at_once else [old, new]


class Attack(NamedTuple):
    """A scenario after the first sync.

    Attributes:
        steps: the changes of the provider's lists.
        most: the largest share that may be removed; None: no fault, so no removal may be held.
        what: the share of `holdings` or `amounts`.
        before: the first list of each wallet.
        webhooks: replays read the wallets.
        groups: the halves of the wallets are two groups.
    """

    steps: Callable[[], Iterable[Step]]
    most: float | None = 0.0
    what: str = "holdings"
    before: Make = _own
    webhooks: bool = False
    groups: bool = False


ATTACKS: dict[str, Attack] = {
    "lists cut to a tenth, ten at a time, by webhooks": Attack(
        lambda: (_lists(partial(_own, places=1), OLD[start : start + 10]) for start in OLD[::10]),
        0.5,
        webhooks=True,
    ),
    "editions: 40 % empty and back, three times, then all empty": Attack(
        _flapping, before=_editions
    ),
    "airdrop of 10 editions to all, then empty lists": Attack(
        _in_turn(partial(_editions, airdropped=10), _nothing), before=_editions
    ),
    'all amounts grow, then become "1e18", "0x10", "-5"': Attack(
        _in_turn(
            partial(_editions, amount="6"),
            lambda number: _editions(number, ("1e18", "0x10", "-5")[number % 3]),
        ),
        before=_editions,
    ),
    "300 new wallets, equally large, empty lists for 60 %": Attack(
        lambda: _added(range(100, 400), _own, emptied=range(60))
    ),
    "100 new wallets, first empty, get ten NFTs each, then all empty": Attack(
        lambda: _added(range(100, 200), _nothing, _own, emptied=range(200))
    ),
    "all amounts fall to 51 % in each of three runs (amounts)": Attack(
        _in_turn(*(partial(_own, amount=str(_MUCH * 51**n // 100**n)) for n in range(1, 4))),
        0.5,
        "amounts",
        partial(_own, amount=str(_MUCH)),
    ),
    "all NFTs move between wallets of two groups, three times": Attack(
        _in_turn(*(lambda n, by=by: _own((n - by) % WALLETS) for by in (50, 51, 7))),
        None,
        groups=True,
    ),
    "a migration of editions in four runs": Attack(
        lambda: _migrate(25, _editions), None, before=_editions
    ),
    "a migration announced by webhooks, old wallets first": Attack(
        lambda: _migrate(10, _own, at_once=False), None, webhooks=True
    ),
}


def attacked(provider: Provider, database: Path, attack: Attack) -> Attacked:
    """Run a scenario on a new mirror; NFTSYNC_BASE_URL names the provider."""
    site = Attacked(provider, database)
    halves = {"cold": OLD[:50], "hot": OLD[50:]} if attack.groups else {"": OLD}
    for number, step in enumerate([_lists(attack.before), *attack.steps()]):
        for each, entries in step.items():
            provider.holds(wallet(each), *entries)
        if number == 0:
            assert site.code("--wallets-file", site.groups(**halves)) == 0
        elif attack.webhooks:
            site.post(step)
        else:
            site.code(*(map(wallet, step) if step else ["--allow-removals"]))
    return site
