"""Worlds made up from a seed: the same figures give the same bytes, on every machine."""

from __future__ import annotations

import uuid
from itertools import count
from random import Random

import msgspec

from nftsync.errors import InputError
from nftsync.sandbox.catalog import COLLECTIONS, PLACES, QUALITIES, Collection
from nftsync.sandbox.world import World
from nftsync.sandbox.worldfile import Holding

__all__ = ["generate"]

_SHARED = tuple(each for each in COLLECTIONS if each.kind == "copies")
_OWNED = tuple(each for each in COLLECTIONS if each.kind != "copies")
# The first collections are the large ones, as in the field.
_WEIGHTS = tuple(1 / rank for rank in range(1, len(_OWNED) + 1))
_SHARE = 0.3
_HOLDERS = 8
_SITE = "https://example.com"


def generate(*, wallets: int = 50, nfts: int = 20, seed: int = 0, image_base: str = "") -> World:
    """Make up a world.

    Args:
        wallets: how many wallets there are.
        nfts: how many NFTs each of them lists.
        seed: what everything is drawn from.
        image_base: the base URL that serves the pictures.

    Raises:
        InputError: a figure is below 0.
    """
    if wallets < 0 or nfts < 0:
        raise InputError("the numbers of wallets and of NFTs must be 0 or more")
    return _Maker(Random(f"generate {seed}"), image_base).world(wallets, nfts, seed)  # noqa: S311


class _Maker:
    def __init__(self, random: Random, image_base: str) -> None:
        self._random = random
        self._images = f"{image_base.rstrip('/')}/sandbox/images"
        self._organization = self._uuid()
        self._contracts = {each.name: self._address() for each in COLLECTIONS}
        self._pictures = {each.maker: f"{self._images}/{self._uuid()}.svg" for each in COLLECTIONS}
        self._numbers = {each.name: count(1) for each in COLLECTIONS}
        self._made = 0

    def world(self, wallets: int, nfts: int, seed: int) -> World:
        world = World(seed=seed, organization_id=self._organization)
        lists = self._shared_lists(wallets, round(nfts * _SHARE))
        for listed in lists:
            while len(listed) < nfts:
                listed.append(self._owned())
            self._random.shuffle(listed)
            world.add_wallet(self._uuid(), listed)
        return world

    def _shared_lists(self, wallets: int, each_holds: int) -> list[list[Holding]]:
        """Deal out the NFTs that several wallets hold, then make them with their totals."""
        pool = max(each_holds, wallets * each_holds // _HOLDERS)
        dealt = [
            {number: self._copies() for number in self._random.sample(range(pool), each_holds)}
            for _ in range(wallets)
        ]
        totals = [0] * pool
        for hand in dealt:
            for number, amount in hand.items():
                totals[number] += amount
        tokens = [self._shared(number, total) for number, total in enumerate(totals)]
        return [
            [
                Holding(tokens[number][0], str(amount), tokens[number][1])
                for number, amount in hand.items()
            ]
            for hand in dealt
        ]

    def _copies(self) -> int:
        return min(int(self._random.paretovariate(1.1)), 500)

    def _shared(self, number: int, total: int) -> tuple[str, msgspec.Raw]:
        # Every fourth is open: its provider says 0 for a number that nobody has set.
        limit = 0 if number % 4 == 0 else -(-total // 25) * 25
        return self._token(
            _SHARED[number % len(_SHARED)], edition={"editionId": 0, "totalEdition": limit}
        )

    def _owned(self) -> Holding:
        # Each collection once, so that small worlds show all kinds.
        if self._made < len(_OWNED):
            collection = _OWNED[self._made]
        else:
            collection = self._random.choices(_OWNED, _WEIGHTS)[0]
        self._made += 1
        token_id, record = self._token(collection)
        return Holding(token_id, "1", record)

    def _token(
        self, collection: Collection, edition: dict[str, object] | None = None
    ) -> tuple[str, msgspec.Raw]:
        token_id = self._uuid()
        number = next(self._numbers[collection.name])
        chain_id = self._random.getrandbits(256) if collection.hashed else number
        address = self._contracts[collection.name]
        record: dict[str, object] = {
            "id": token_id,
            "organizationId": self._organization,
            # One contract in two spellings, as sources differ in it.
            "contractAddress": address.lower() if chain_id % 3 == 0 else address,
            "blockchainTokenId": str(chain_id),
        }
        if self._made % 97 == 9:
            record["metadata"] = {}
        elif self._made % 131 != 17:
            record["metadata"] = self._metadata(collection, token_id, number, edition)
        return token_id, msgspec.Raw(msgspec.json.encode(record))

    def _metadata(
        self,
        collection: Collection,
        token_id: str,
        number: int,
        edition: dict[str, object] | None,
    ) -> dict[str, object]:
        maker = collection.maker
        if edition is None and collection.run:
            work, place = divmod(number - 1, collection.run)
            title = f"{collection.name} {work + 1}"
            edition = {"editionId": place + 1, "totalEdition": collection.run}
        else:
            title = f"{collection.name} #{number}"
        mood = f"{self._random.choice(QUALITIES)} {self._random.choice(PLACES)}"
        metadata: dict[str, object] = {
            "name": title,
            "description": f"{collection.about}: {mood}.",
            "image": f"{self._images}/{token_id}.svg",
            "externalUrl": f"{_SITE}/works/{token_id}",
            "backgroundColor": f"{self._random.getrandbits(24):06x}",
        }
        if number % 20 == 0:
            metadata["animationUrl"] = f"{_SITE}/motion/{token_id}.mp4"
        return (
            metadata
            | (edition or {})
            | {
                "creatorName": maker,
                "creatorImageUrl": self._pictures[maker],
                "creatorExternalPageUrl": f"{_SITE}/makers/{list(self._pictures).index(maker) + 1}",
            }
        )

    def _address(self) -> str:
        """An address in mixed case, as if it carried a checksum."""
        digits = f"{self._random.getrandbits(160):040x}"
        return "0x" + "".join(
            digit.upper() if self._random.random() < 0.5 else digit for digit in digits
        )

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
