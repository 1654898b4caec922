"""Generator of sandbox data: same arguments, same bytes everywhere."""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import count
from random import Random
from typing import NamedTuple

import msgspec

from nftsync.sandbox.world import Holding, World


class _Collection(NamedTuple):
    """A collection of generated NFTs.

    `run` is the length of a series (0: single works); `hashed`: on-chain ids are 256-bit hashes.
    """

    name: str
    maker: str
    about: str
    run: int = 0
    hashed: bool = False


# Each work has one holder. The first collections are the largest, as in real data.
_OWNED = (
    _Collection("Lowtide Studies", "Studio Lowtide", "A study of water leaving sand"),
    _Collection("Paper Lantern Index", "Lantern Press", "A sheet from the index", run=25),
    _Collection("Tram Line Nocturnes", "Night Depot", "The last tram of an evening"),
    _Collection("Moss Kites 🪁", "Attic Weather", "A kite that grows", hashed=True),
    _Collection("Quiet Machines", "Workshop Nine", "A machine at rest", run=10),
    _Collection("حدائق الضوء", "بيت الألوان", "A garden drawn with light"),
    _Collection("Salt Cartography", "Studio Lowtide", "A chart of a salt plain", run=50),
    _Collection("Orchard Frequencies", "Fieldrecorder", "A tree heard", hashed=True),
)
# Each work has many holders with several copies.
_SHARED = (
    _Collection("Harbour Passes", "Pier Cooperative", "Opens the harbour gate"),
    _Collection("Kiln Tokens", "Workshop Nine", "One firing in the shared kiln"),
    _Collection("Cloud Ferry Tickets ☁️", "Night Depot", "A crossing", hashed=True),
)

_QUALITIES = (
    "Amber", "Borrowed", "Cobalt", "Drifting", "Early", "Folded", "Glass", "Hollow", "Inland",
    "Late", "Mended", "Northern", "Open", "Pale", "Restless", "Silver", "Tidal", "Unlit",
)  # fmt: skip
_PLACES = (
    "Arcade", "Basin", "Causeway", "Delta", "Estuary", "Foundry", "Gallery", "Hour", "Island",
    "Jetty", "Lighthouse", "Meadow", "Orchard", "Passage", "Quarry", "Ravine", "Signal", "Window",
)  # fmt: skip

_FINISHES, _FINISH_WEIGHTS = ("Matte", "Gloss", "Foil", "Gilded"), (60, 30, 8, 2)

_WEIGHTS = [1 / rank for rank in range(1, len(_OWNED) + 1)]
_SHARE = 0.3
_HOLDERS = 8
_SITE = "https://example.com"


def generate(
    *, wallets: int = 50, nfts: int = 20, seed: int = 0, image_base: str = "", traits: bool = True
) -> World:
    """Generate a world with `nfts` NFTs in each wallet.

    `image_base` is the base URL of its pictures. With `traits`, metadata has `attributes`, which
    the provider's document does not name.
    """
    chance = Random(f"generate {seed}")  # noqa: S311 - to be repeatable
    maker = _Generator(chance, image_base, with_traits=traits)
    world = World(seed=seed, organization_id=maker.organization)
    for listed in maker.shared_lists(wallets, round(nfts * _SHARE)):
        listed += [maker.owned() for _ in range(nfts - len(listed))]
        maker.random.shuffle(listed)
        world.add_wallet(maker.new_id(), listed)
    return world


class _Generator:
    def __init__(self, random: Random, image_base: str, *, with_traits: bool) -> None:
        self.random = random
        self._with_traits = with_traits
        self._images = f"{image_base.rstrip('/')}/sandbox/images"
        self.organization = self.new_id()
        collections = _OWNED + _SHARED
        self._contracts = {c.name: self._address() for c in collections}
        self._pictures = {c.maker: f"{self._images}/{self.new_id()}.svg" for c in collections}
        self._numbers = {c.name: count(1) for c in collections}
        self._made = 0

    def shared_lists(self, wallets: int, per_wallet: int) -> list[list[Holding]]:
        pool = max(per_wallet, wallets * per_wallet // _HOLDERS)
        dealt = [
            {
                number: min(int(self.random.paretovariate(1.1)), 500)
                for number in self.random.sample(range(pool), per_wallet)
            }
            for _ in range(wallets)
        ]
        totals: Counter[int] = Counter()
        for hand in dealt:
            totals.update(hand)
        # Every fourth edition is open: real data has the total 0.
        limits = [-(-totals[number] // 25) * 25 if number % 4 else 0 for number in range(pool)]
        tokens = [
            self._token(_SHARED[number % len(_SHARED)], {"editionId": 0, "totalEdition": limit})
            for number, limit in enumerate(limits)
        ]
        return [
            [msgspec.structs.replace(tokens[n], amount=str(copies)) for n, copies in hand.items()]
            for hand in dealt
        ]

    def owned(self) -> Holding:
        """Generate an NFT with one holder; the first ones show each collection once."""
        collection = self.random.choices(_OWNED, _WEIGHTS)[0] if self._made >= len(_OWNED) else None
        self._made += 1
        return self._token(collection or _OWNED[self._made - 1], {})

    def _token(self, collection: _Collection, edition: dict[str, int]) -> Holding:
        token_id = self.new_id()
        number = next(self._numbers[collection.name])
        chain_id = self.random.getrandbits(256) if collection.hashed else number
        address = self._contracts[collection.name]
        record: dict[str, object] = {
            "id": token_id,
            "organizationId": self.organization,
            # Real data spells one contract in two ways.
            "contractAddress": address.lower() if chain_id % 3 == 0 else address,
            "blockchainTokenId": str(chain_id),
        }
        if self._made % 97 == 9:
            record["metadata"] = {}
        elif self._made % 131 != 17:
            record["metadata"] = self._metadata(collection, token_id, number, edition)
        return Holding(token_id, "1", msgspec.Raw(msgspec.json.encode(record)))

    def _metadata(
        self, collection: _Collection, token_id: str, number: int, edition: dict[str, int]
    ) -> dict[str, object]:
        title = f"{collection.name} #{number}"
        if collection.run:
            work, copy = divmod(number - 1, collection.run)
            title = f"{collection.name} {work + 1}"
            edition = {"editionId": copy + 1, "totalEdition": collection.run}
        quality, place = self.random.choice(_QUALITIES), self.random.choice(_PLACES)
        maker = list(self._pictures).index(collection.maker) + 1
        moving = {"animationUrl": f"{_SITE}/motion/{token_id}.mp4"} if number % 20 == 0 else {}
        traits = _attributes(token_id, {"Quality": quality, "Place": place})
        return {
            "name": title,
            "description": f"{collection.about}: {quality} {place}.",
            "image": f"{self._images}/{token_id}.svg",
            "externalUrl": f"{_SITE}/works/{token_id}",
            "backgroundColor": f"{self.random.getrandbits(24):06x}",
            **moving,
            **edition,
            "creatorName": collection.maker,
            "creatorImageUrl": self._pictures[collection.maker],
            "creatorExternalPageUrl": f"{_SITE}/makers/{maker}",
            **({"attributes": traits} if self._with_traits else {}),
        }

    def _address(self) -> str:
        digits = f"{self.random.getrandbits(160):040x}"
        mixed = (digit.upper() if self.random.random() < 0.5 else digit for digit in digits)
        return "0x" + "".join(mixed)

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def _attributes(token_id: str, traits: dict[str, object]) -> list[dict[str, object]]:
    chance = Random(f"traits {token_id}")  # noqa: S311 - to be repeatable
    (finish,) = chance.choices(_FINISHES, _FINISH_WEIGHTS)
    traits |= {"Finish": finish, "Year": chance.randrange(2019, 2026)}
    return [{"trait_type": name, "value": value} for name, value in traits.items()]


def draw(token_id: str) -> str:
    """Draw abstract art as SVG that depends only on the id."""
    pen = Random(token_id.lower())  # noqa: S311 - art
    hue = pen.randrange(360)
    circles = (
        f'<circle cx="{pen.randrange(400)}" cy="{pen.randrange(400)}" r="{pen.randrange(24, 130)}"'
        f' fill="hsl({hue + pen.choice((0, 25, 180, 205))} 70% {pen.randrange(45, 85)}%)"'
        f' fill-opacity="0.{pen.randrange(25, 75)}"/>'
        for _ in range(12)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 400">'
        f'<rect width="400" height="400" fill="hsl({hue} 62% 25%)"/>{"".join(circles)}</svg>'
    )
