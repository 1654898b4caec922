"""The demo's year of history: NFTs are minted and traded, and read weekly.

The mirror applies the responses that reads would have had.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import msgspec

from nftsync.provider.wire import decode_wallet, without_duplicates
from nftsync.records import Effort, WalletRead
from nftsync.sandbox.world import World
from nftsync.store import runs
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import WalletLine, register
from nftsync.times import format_time, shifted

_SEED = 7
#: Weekly reads; the demo starts a week after the last, and finds the changes since.
_WEEKS = 52
#: Hour of the day (UTC) at which each week's read begins.
_HOUR = 6
#: Duration of a wallet's read.
_READ_TIME = timedelta(milliseconds=12)

#: Weeks of the first reads of two initial wallets; the start of their holdings is unknown.
_JOINED_IN = (15, 38)
#: Weeks in which an empty wallet is added and first read.
_OPENED_IN = (4, 11, 19, 26, 34, 43)
_LABELS = ("Treasury", "Marketing", "Artist royalties", "Cold storage", "Team", "Auctions")
#: The house's wallet that receives mints; all wallets of the house sell.
_STUDIO = _LABELS.index("Artist royalties")
_SERIES_EVERY, _SERIES_SIZE = 4, 16
_MINTED = len(range(1, _WEEKS + 1, _SERIES_EVERY)) * _SERIES_SIZE
#: Larger amounts are transferred in part.
_FEW = 3


def wallet_lines(wallets: list[str]) -> list[WalletLine]:
    """Return the wallets with labels and groups, in order of their first read."""
    house = [WalletLine(*pair, "house") for pair in zip(wallets, _LABELS, strict=False)]
    customers = enumerate(wallets[len(house) :], start=len(house))
    return house + [WalletLine(id_, f"Customer {n:03}", "customers") for n, id_ in customers]


def changed_metadata(world: World, token_id: str, **fields: object) -> dict[str, object]:
    record = msgspec.json.decode(world.token_body(token_id) or b"{}")
    return {**record.get("metadata", {}), **fields}


def picture_url(url: str, rng: random.Random) -> str:
    return f"{url}/sandbox/images/{UUID(int=rng.getrandbits(128), version=4)}.svg"


def play_year(world: World, url: str, database: Path, *, until: datetime) -> Market:
    """Simulate a year at the provider's world, and store its weekly reads in an empty database.

    The same happens each time, but times count back from `until`.
    """
    first = until.astimezone(UTC).replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    first -= timedelta(weeks=_WEEKS)
    with Mirror(database, write_gap=0) as mirror:
        market = Market(world, url)
        for week in range(_WEEKS):
            _read_all(mirror, world, market.wallets, format_time(first + timedelta(weeks=week)))
            market.advance(week + 1)
        mirror.index_tokens()
    return market


def _read_all(mirror: Mirror, world: World, wallets: list[str], at: str) -> None:
    reads = []
    for place, wallet in enumerate(wallets):
        body = world.balances_body(wallet) or b""
        reads.append(
            WalletRead(
                sequence=mirror.numbers.take(),
                started_at=shifted(at, place * _READ_TIME),
                outcome="ok",
                effort=Effort(requests=1),
                wallet_id=wallet,
                entries=without_duplicates(decode_wallet(body).entries),
                digest=sha256(body).hexdigest(),
            )
        )
    duration = len(wallets) * _READ_TIME
    ended = shifted(at, duration)
    with mirror.transaction(ended) as transaction:
        connection = transaction.connection
        register(connection, wallet_lines(wallets), at)
        run = runs.start_run(connection, "sync", reads[0].sequence, at, reads_all=True)
        run.counts = run.counts.with_applied(transaction.apply(reads, run_id=run.run_id))
        run.counts.seconds = duration.total_seconds()
        runs.finish_run(connection, run, "ok", None, at=ended)


def _tide(page: int) -> str:
    return "Storm" if page % 29 == 0 else "Spring" if page % 4 == 0 else "Neap"


class Market:
    """Mints and trades at the provider; `wallets` are in order of their first read."""

    reads = _WEEKS

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url
        self._random = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
        wallets = world.wallets()
        self.wallets = wallets[: -len(_JOINED_IN)]
        self._joining = iter(wallets[-len(_JOINED_IN) :])
        self.minted = 0
        self.moved = 0

    def advance(self, week: int) -> None:
        """Simulate a week; trade grows over the year."""
        if week % _SERIES_EVERY == 1:
            self._mint_series()
        for _ in range(5 + week // 10):
            self._sell()
        for _ in range(3 + week // 13):
            self._trade()
        if week % 3:
            self._sell_outside()
        if week % 8 == 0:
            self._edit(week)
        if week in _OPENED_IN:
            self.wallets.append(self._world.add_wallet())
        if week in _JOINED_IN:
            self.wallets.append(next(self._joining))

    def _mint_series(self) -> None:
        studio = self.wallets[_STUDIO]
        for _ in range(_SERIES_SIZE):
            self.minted += 1
            metadata = {
                "name": f"Tidal Almanac #{self.minted}",
                "description": "A page for each tide that was worth keeping.",
                "image": picture_url(self._url, self._random),
                "editionId": self.minted,
                "totalEdition": _MINTED,
                "creatorName": "Studio Lowtide",
                "attributes": [{"trait_type": "Tide", "value": _tide(self.minted)}],
            }
            self._world.mint(studio, 1, metadata)

    def _sell(self) -> None:
        """Sell from the house to a customer; the first customers buy most."""
        house, customers = self.wallets[: len(_LABELS)], self.wallets[len(_LABELS) :]
        studio = [self.wallets[_STUDIO]] * len(house)
        weights = [1 / rank for rank in range(3, len(customers) + 3)]
        (buyer,) = self._random.choices(customers, weights)
        self._move(self._seller(house + studio), buyer)

    def _trade(self) -> None:
        customers = self.wallets[len(_LABELS) :]
        buyer = self._random.choice(customers + customers[-5:] * 2)
        self._move(self._seller([wallet for wallet in customers if wallet != buyer]), buyer)

    def _seller(self, wallets: list[str]) -> str:
        return self._random.choice([x for x in wallets if len(self._world.amounts(x)) > _FEW])

    def _move(self, seller: str, buyer: str) -> None:
        token, amount = self._random.choice(list(self._world.amounts(seller).items()))
        moved = amount if amount <= _FEW else self._random.randint(1, amount // _FEW)
        self._world.transfer(seller, buyer, token, moved)
        self.moved += 1

    def _sell_outside(self) -> None:
        seller = self._seller(self.wallets[len(_LABELS) :])
        token = self._random.choice(list(self._world.amounts(seller)))
        self._world.remove(seller, token)

    def _edit(self, week: int) -> None:
        token = self._random.choice(list(self._world.amounts(self.wallets[0])))
        metadata = changed_metadata(
            self._world, token, description=f"A new description from week {week} of the year."
        )
        self._world.edit_metadata(token, metadata)
