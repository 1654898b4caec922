"""The demo's year of history: NFTs are minted and traded, and read weekly.

Nothing is asked over HTTP for it: the mirror applies the answers that reads would have had then.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import msgspec

from nftsync.demo.provider import held
from nftsync.provider.wire import decode_wallet, without_duplicates
from nftsync.records import Effort, WalletRead
from nftsync.sandbox.world import World
from nftsync.store import runs
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import WalletLine, register
from nftsync.times import format_time, shifted

_SEED = 7
#: Reads; a week after the last one the demo begins, and what happened since is for it to find.
_WEEKS = 52
#: Hour of the day (UTC) at which each week's read begins.
_HOUR = 6
#: How long a wallet's read takes.
_A_READ = timedelta(milliseconds=12)

#: The last wallets of the world at the start are read only from these weeks on: what they hold then
#: they have held before, nobody knows since when.
_JOINED_IN = (15, 38)
#: Weeks in which a wallet is opened, which is empty and read from then on.
_OPENED_IN = (4, 11, 19, 26, 34, 43)
_LABELS = ("Treasury", "Marketing", "Artist royalties", "Cold storage", "Team", "Auctions")
#: The wallet of the house into which NFTs are minted; all of the house sell.
_STUDIO = _LABELS.index("Artist royalties")
_DROP_EVERY, _DROP = 4, 16
_MINTED = len(range(1, _WEEKS + 1, _DROP_EVERY)) * _DROP
#: Copies of more than one NFT of a kind change hands in part.
_PART = 3


def named(wallets: list[str]) -> list[WalletLine]:
    """What the demo's wallets are called, by the order in which they became known."""
    house = [WalletLine(*each, "house") for each in zip(wallets, _LABELS, strict=False)]
    customers = enumerate(wallets[len(house) :], start=len(house))
    return house + [WalletLine(each, f"Customer {n:03}", "customers") for n, each in customers]


def with_metadata(world: World, token_id: str, **fields: object) -> dict[str, object]:
    """A token's metadata with some fields set anew."""
    record = msgspec.json.decode(world.token_body(token_id) or b"{}")
    return {**record.get("metadata", {}), **fields}


def picture(url: str, rng: random.Random) -> str:
    """The address of a picture that the provider draws."""
    return f"{url}/sandbox/images/{UUID(int=rng.getrandbits(128), version=4)}.svg"


def play_year(world: World, url: str, database: Path, *, until: datetime) -> Business:
    """Let a year go by at the provider, and keep in the mirror what weekly reads would have shown.

    The same happens each time; only the times are counted back from `until`.

    Args:
        world: the provider's, at the start of the year; at the end of it afterwards.
        url: its base URL, for pictures.
        database: the mirror, where nothing has been read yet.
        until: when the year ends; timezone-aware.

    Raises:
        StoreError: the database or the provider's state cannot be written.
    """
    first = until.astimezone(UTC).replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    first -= timedelta(weeks=_WEEKS)
    with Mirror(database, write_gap=0) as mirror, world.state.transaction():
        business = Business(world, url)
        for week in range(_WEEKS):
            _read_all(mirror, world, business.wallets, format_time(first + timedelta(weeks=week)))
            business.go_on(week + 1)
        mirror.index_tokens()
    return business


def _read_all(mirror: Mirror, world: World, wallets: list[str], at: str) -> None:
    """Apply a read of each wallet as a sync that began at a time would have made them."""
    reads = []
    for place, wallet in enumerate(wallets):
        body = world.balances_body(wallet) or b""
        reads.append(
            WalletRead(
                sequence=mirror.numbers.take(),
                started_at=shifted(at, place * _A_READ),
                outcome="ok",
                effort=Effort(requests=1),
                wallet_id=wallet,
                entries=without_duplicates(decode_wallet(body).entries),
                digest=sha256(body).hexdigest(),
            )
        )
    lasted = len(wallets) * _A_READ
    ended = shifted(at, lasted)
    with mirror.transaction(ended) as transaction:
        connection = transaction.connection
        register(connection, named(wallets), at)
        run = runs.start_run(connection, "sync", reads[0].sequence, at, reads_all=True)
        run.counts = run.counts.with_applied(transaction.apply(reads, run_id=run.run_id))
        run.counts.seconds = lasted.total_seconds()
        runs.finish_run(connection, run, "ok", None, at=ended)


class Business:
    """What happens at the provider, week by week.

    Attributes:
        reads: how often all known wallets are read.
        wallets: those that are known so far, in the order in which they became known.
        minted: new NFTs so far.
        moved: transfers so far.
    """

    reads = _WEEKS

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url
        self._random = random.Random(_SEED)  # noqa: S311 - a simulation, the same each time
        wallets = world.wallets()
        self._held = {wallet: held(world, wallet) for wallet in wallets}
        self.wallets = wallets[: -len(_JOINED_IN)]
        self._joining = iter(wallets[-len(_JOINED_IN) :])
        self.minted = 0
        self.moved = 0

    def go_on(self, week: int) -> None:
        """Let a week go by; business grows over the year."""
        if week % _DROP_EVERY == 1:
            self._drop()
        for _ in range(5 + week // 10):
            self._sell()
        for _ in range(3 + week // 13):
            self._trade()
        if week % 3:
            self._take_out()
        if week % 8 == 0:
            self._edit(week)
        if week in _OPENED_IN:
            opened = self._world.add_wallet()
            self._held[opened] = {}
            self.wallets.append(opened)
        if week in _JOINED_IN:
            self.wallets.append(next(self._joining))

    def _drop(self) -> None:
        """Mint some NFTs of a series into the studio's wallet."""
        studio = self.wallets[_STUDIO]
        for _ in range(_DROP):
            self.minted += 1
            metadata = {
                "name": f"Tidal Almanac #{self.minted}",
                "description": "A page for each tide that was worth keeping.",
                "image": picture(self._url, self._random),
                "editionId": self.minted,
                "totalEdition": _MINTED,
                "creatorName": "Studio Lowtide",
            }
            self._held[studio][self._world.mint(studio, 1, metadata)] = 1

    def _sell(self) -> None:
        """From the house to a customer; the first customers buy most."""
        house, customers = self.wallets[: len(_LABELS)], self.wallets[len(_LABELS) :]
        studio = [self.wallets[_STUDIO]] * len(house)
        weights = [1 / rank for rank in range(3, len(customers) + 3)]
        (buyer,) = self._random.choices(customers, weights)
        self._move(self._giver(house + studio), buyer)

    def _trade(self) -> None:
        """From customer to customer; those that are new are the keenest."""
        customers = self.wallets[len(_LABELS) :]
        buyer = self._random.choice(customers + customers[-5:] * 2)
        self._move(self._giver([each for each in customers if each != buyer]), buyer)

    def _giver(self, wallets: list[str]) -> str:
        """One of some wallets that will still hold something."""
        return self._random.choice([each for each in wallets if len(self._held[each]) > _PART])

    def _move(self, giver: str, taker: str) -> None:
        token, amount = self._random.choice(list(self._held[giver].items()))
        moved = amount if amount <= _PART else self._random.randint(1, amount // _PART)
        self._world.transfer(giver, taker, token, moved)
        self._held[taker][token] = self._held[taker].get(token, 0) + moved
        self._held[giver][token] = amount - moved
        if moved == amount:
            del self._held[giver][token]
        self.moved += 1

    def _take_out(self) -> None:
        """A customer sells an NFT to somebody who is none."""
        giver = self._giver(self.wallets[len(_LABELS) :])
        token = self._random.choice(list(self._held[giver]))
        self._world.remove(giver, token)
        del self._held[giver][token]

    def _edit(self, week: int) -> None:
        """A description is written anew."""
        token = self._random.choice(list(self._held[self.wallets[0]]))
        described = with_metadata(
            self._world, token, description=f"Described anew in week {week} of the year."
        )
        self._world.edit_metadata(token, described)
