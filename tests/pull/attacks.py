"""Scenarios of a provider that answers 200 to all requests: faults, and large legitimate changes.

Each starts with a complete mirror of 100 wallets with ten NFTs each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.provider import Provider, entry, token, wallet
from tests.pull.removal_site import Site

WALLETS, EACH = 100, 10
ALL = WALLETS * EACH
#: An amount for many halvings.
_MUCH = 10**9

Entries = list[dict[str, Any]]
List = Callable[[int], Entries]
Scenario = Callable[["Attacked"], object]


class Attacked(Site):
    """A site whose provider may be attacked."""

    def set(self, number: int, entries: Entries) -> None:
        self.provider.holds(wallet(number), *entries)

    def set_all(self, make: List, numbers: Iterable[int] = range(WALLETS)) -> None:
        for number in numbers:
            self.set(number, make(number))

    def attack(self, make: List, share: float = 1.0) -> None:
        """Change the lists of a share of the wallets, then sync."""
        self.set_all(make, random.Random(1).sample(range(WALLETS), round(share * WALLETS)))
        self.sync()

    def add(self, numbers: Iterable[int]) -> None:
        """Track more wallets."""
        self.run("wallets", "add", *map(wallet, numbers))

    def age(self) -> None:
        """Let the stored holdings count as old."""
        self.sync("--allow-removals")

    def lost(self, what: str) -> float:
        """Return the removed share of the first holdings, of their amounts or names."""
        statement = (
            "SELECT count(*) FROM holdings WHERE amount GLOB '*[1-9]*'"
            f" AND amount NOT GLOB '*[^0-9]*' AND token_id < '{token(ALL)}'"
        )
        if what == "names":
            statement = "SELECT count(*) FROM tokens WHERE name LIKE 'Name %'"
        elif what == "amounts":
            statement = f"SELECT sum(CAST(amount AS REAL)) / {_MUCH} FROM holdings"
        return max(0.0, 1 - (self.query(statement)[0][0] or 0) / ALL)

    @property
    def reviewed(self) -> int:
        """The number of removals held for review."""
        return int(self.query("SELECT count(*) FROM removal_rows WHERE held")[0][0])


def _of_token(number: int, amount: str = "4", name: str | None = "") -> dict[str, Any]:
    """Return an entry; by default, each token has its own name."""
    metadata = {} if name is None else {"name": name or f"Name {number}"}
    return entry(token(number), amount, contractAddress="0xc0", metadata=metadata)


def _own(number: int, places: int = EACH, **of: Any) -> Entries:
    return [_of_token(number * EACH + place, **of) for place in range(places)]


def _editions(number: int, amount: str = "5", airdropped: int = 0) -> Entries:
    """Return ten of twenty tokens that all wallets share, and the airdropped ones."""
    tokens = [(number + 2 * place) % 20 for place in range(EACH)]
    return [_of_token(each, amount) for each in [*tokens, *range(ALL, ALL + airdropped)]]


def _nothing(_: int) -> Entries:
    return []


def _much(number: int) -> Entries:
    return _own(number, amount=str(_MUCH))


def _all(make: List, share: float = 1.0) -> Scenario:
    return lambda site: site.attack(make, share)


def _in_turn(*makes: List) -> Scenario:
    """Change all lists several times, each time before a sync."""

    def attack(site: Attacked) -> None:
        for make in makes:
            site.attack(make)

    return attack


def _growing(site: Attacked) -> None:
    for run in range(1, 7):
        site.set_all(_nothing, range(15 * run))
        site.sync()


def _few_at_a_time(site: Attacked) -> None:
    site.set_all(_nothing)
    for start in range(0, WALLETS, 19):
        site.sync(*map(wallet, range(start, min(start + 19, WALLETS))))


def _flapping(make: List, share: float, times: int) -> Scenario:
    """Empty and restore other wallets each time; then empty all."""

    def attack(site: Attacked) -> None:
        some = round(share * WALLETS)
        for turn in range(times):
            site.set_all(_nothing, (n % WALLETS for n in range(turn * some, (turn + 1) * some)))
            site.sync()
            site.attack(make)
        site.attack(_nothing)

    return attack


def _halving(site: Attacked) -> None:
    amount = _MUCH
    for _ in range(12):
        amount = amount * 51 // 100
        site.set_all(lambda number, amount=str(amount): _own(number, amount=amount))  # type: ignore[misc]
        site.sync()


def _webhooks(at_once: int) -> Scenario:
    def attack(site: Attacked) -> None:
        for start in range(0, WALLETS, at_once):
            numbers = range(start, start + at_once)
            site.set_all(lambda number: _own(number, 1), numbers)
            site.post(numbers)

    return attack


def _onboarded(share: float) -> Scenario:
    """Read 300 added wallets, then empty some of the others."""

    def attack(site: Attacked) -> None:
        site.age()
        added = range(WALLETS, 4 * WALLETS)
        site.set_all(_own, added)
        site.add(added)
        site.sync()
        site.attack(_nothing, share)

    return attack


def _minted(site: Attacked) -> None:
    """Fill added, empty wallets with as many NFTs as the others have, then empty all."""
    site.age()
    added = range(WALLETS, 2 * WALLETS)
    site.set_all(_nothing, added)
    site.add(added)
    for make in (_nothing, _own):
        site.set_all(make, added)
        site.sync()
    site.set_all(_nothing, range(2 * WALLETS))
    site.sync()


def _grown(number: int) -> Entries:
    return _editions(number, "6")


def _airdrop(tokens: int) -> List:
    return lambda number: _editions(number, airdropped=tokens)


def _bad(number: int) -> Entries:
    return _editions(number, ("1e18", "0x10", "-5")[number % 3])


# Legitimate changes ------------------------------------------------------------------------------


def _sell_all(site: Attacked) -> None:
    site.set(0, [])
    site.sync()


def _sweep(site: Attacked) -> None:
    """Transfer all NFTs to one wallet that is added afterwards."""
    site.set(WALLETS, [each for number in range(WALLETS) for each in _own(number)])
    site.set_all(_nothing)
    site.add([WALLETS])
    site.sync()


def _rotate(site: Attacked) -> None:
    """Transfer all NFTs between tracked wallets of two groups, three times."""
    file = site.groups(cold=range(50), hot=range(50, WALLETS))
    for places in (50, 51, 7):
        site.set_all(lambda number, places=places: _own((number - places) % WALLETS))  # type: ignore[misc]
        site.sync("--wallets-file", file)


def _migrate(runs: int, make: List = _own) -> Scenario:
    """Transfer each wallet's NFTs to a wallet that is added afterwards, in some runs."""

    def attack(site: Attacked) -> None:
        some = WALLETS // runs
        for start in range(0, WALLETS, some):
            for number in range(start, start + some):
                site.set(WALLETS + number, make(number))
                site.set(number, [])
            site.add(range(WALLETS + start, WALLETS + start + some))
            site.sync()

    return attack


def _migrate_by_webhooks(*, old_first: bool) -> Scenario:
    """Do the same, with a webhook for each of the two wallets."""

    def attack(site: Attacked) -> None:
        for start in range(0, WALLETS, 10):
            old, new = range(start, start + 10), range(WALLETS + start, WALLETS + start + 10)
            for number in old:
                site.set(WALLETS + number, _own(number))
                site.set(number, [])
            for numbers in (old, new) if old_first else (new, old):
                site.post(numbers)

    return attack


class Attack(NamedTuple):
    """A scenario after the first sync.

    Attributes:
        run: changes the provider's lists, and syncs.
        most: the largest share that may be removed; None: no fault, so no removal may be held.
        what: the share of `holdings`, `names` or `amounts`.
        before: the first list of each wallet.
    """

    run: Scenario
    most: float | None = 0.0
    what: str = "holdings"
    before: List = _own


ATTACKS: dict[str, Attack] = {
    "empty lists for all": Attack(_all(_nothing)),
    "empty lists for all, 19 wallets a run": Attack(_few_at_a_time, 0.5),
    "empty lists for 60 %": Attack(_all(_nothing, 0.6)),
    "empty lists for 15 % more in each of six runs": Attack(_growing, 0.5),
    "lists lose 90 % of their entries": Attack(_all(lambda number: _own(number, 1))),
    "lists are replaced by one other token": Attack(_all(lambda n: [_of_token(ALL + n)])),
    'each amount becomes "0"': Attack(_all(lambda number: _own(number, amount="0"))),
    "metadata emptied for all (names)": Attack(
        _all(lambda number: _own(number, name=None)), what="names"
    ),
    'all tokens are named "Not found" (names)': Attack(
        _all(lambda number: _own(number, name="Not found")), what="names"
    ),
    "webhooks alone, lists cut to a tenth, all at once": Attack(_webhooks(WALLETS), 0.5),
    "webhooks alone, lists cut to a tenth, ten at a time": Attack(_webhooks(10), 0.5),
    "editions of several holders, then empty lists": Attack(_all(_nothing), before=_editions),
    "editions of several holders, empty lists for 60 %": Attack(
        _all(_nothing, 0.6), before=_editions
    ),
    "40 % empty and back, three times, then all empty": Attack(_flapping(_own, 0.4, 3)),
    "the same with editions": Attack(_flapping(_editions, 0.4, 3), before=_editions),
    "45 % empty and back, twice, then all empty": Attack(
        _flapping(_editions, 0.45, 2), before=_editions
    ),
    "airdrop of 3 editions to all, then empty lists": Attack(
        _in_turn(_airdrop(3), _nothing), before=_editions
    ),
    "airdrop of 10 editions to all, then empty lists": Attack(
        _in_turn(_airdrop(10), _nothing), before=_editions
    ),
    "all amounts grow from 5 to 6, then empty lists": Attack(
        _in_turn(_grown, _nothing), before=_editions
    ),
    'all amounts grow, then become "1e18", "0x10", "-5"': Attack(
        _in_turn(_grown, _bad), before=_editions
    ),
    "300 new wallets, equally large, then empty lists for the 100": Attack(_onboarded(1.0)),
    "300 new wallets, equally large, empty lists for 60 %": Attack(_onboarded(0.6)),
    "100 new wallets, first empty, get ten NFTs each, then all empty": Attack(_minted),
    "all amounts fall to 51 %, in each of 12 runs (amounts)": Attack(
        _halving, 0.5, "amounts", _much
    ),
    "one wallet sells everything": Attack(_sell_all, None),
    "an airdrop of 10 editions is burned by all": Attack(
        _in_turn(_airdrop(10), _editions), None, before=_editions
    ),
    "all NFTs move between wallets of two groups, three times": Attack(_rotate, None),
    "a sweep of everything into a new wallet": Attack(_sweep, None),
    "a migration to new wallets in one run": Attack(_migrate(1), None),
    "a migration to new wallets in four runs": Attack(_migrate(4), None),
    "a migration of editions in four runs": Attack(_migrate(4, _editions), None, before=_editions),
    "a migration announced by webhooks, old wallets first": Attack(
        _migrate_by_webhooks(old_first=True), None
    ),
    "a migration announced by webhooks, new wallets first": Attack(
        _migrate_by_webhooks(old_first=False), None
    ),
}


def attacked(provider: Provider, database: Path, attack: Attack) -> Attacked:
    """Run a scenario on a new mirror; NFTSYNC_BASE_URL names the provider."""
    site = Attacked(provider, database)
    site.set_all(attack.before)
    database.with_name("all.txt").write_text("\n".join(map(wallet, range(WALLETS))))
    assert site.sync("--wallets-file", str(database.with_name("all.txt"))) == 0
    attack.run(site)
    return site
