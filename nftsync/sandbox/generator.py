"""Worlds made up from a seed: the same figures give the same bytes, on every machine."""

from __future__ import annotations

import uuid
from itertools import count
from random import Random
from typing import Literal, NamedTuple

import msgspec

from nftsync.errors import InputError
from nftsync.sandbox.world import Holding, World

__all__ = ["draw", "generate"]


class _Collection(NamedTuple):
    """One collection.

    Attributes:
        name: its name.
        maker: who is named as creator.
        kind: `single` works stand alone; `series` are numbered works, each number an NFT of its
            own; `copies` are held by many wallets, several at a time.
        about: the first words of a description.
        run: how long a series is.
        hashed: whether the ids on the chain are 256-bit hashes, not small numbers.
    """

    name: str
    maker: str
    kind: Literal["single", "series", "copies"]
    about: str
    run: int = 0
    hashed: bool = False


_COLLECTIONS = (
    _Collection("Lowtide Studies", "Studio Lowtide", "single", "A study of water leaving sand"),
    _Collection("Paper Lantern Index", "Lantern Press", "series", "A sheet from the index", run=25),
    _Collection("Tram Line Nocturnes", "Night Depot", "single", "The last tram of an evening"),
    _Collection("Moss Kites 🪁", "Attic Weather", "single", "A kite that grows", hashed=True),
    _Collection("Quiet Machines", "Workshop Nine", "series", "A machine at rest", run=10),
    _Collection("حدائق الضوء", "بيت الألوان", "single", "A garden drawn with light"),
    _Collection("Salt Cartography", "Studio Lowtide", "series", "A chart of a salt plain", run=50),
    _Collection("Orchard Frequencies", "Fieldrecorder", "single", "A tree heard", hashed=True),
    _Collection("Harbour Passes", "Pier Cooperative", "copies", "Opens the harbour gate"),
    _Collection("Kiln Tokens", "Workshop Nine", "copies", "One firing in the shared kiln"),
    _Collection("Cloud Ferry Tickets ☁️", "Night Depot", "copies", "A crossing", hashed=True),
)

_QUALITIES = (
    "Amber", "Borrowed", "Cobalt", "Drifting", "Early", "Folded", "Glass", "Hollow", "Inland",
    "Late", "Mended", "Northern", "Open", "Pale", "Restless", "Silver", "Tidal", "Unlit",
)  # fmt: skip

_PLACES = (
    "Arcade", "Basin", "Causeway", "Delta", "Estuary", "Foundry", "Gallery", "Hour", "Island",
    "Jetty", "Lighthouse", "Meadow", "Orchard", "Passage", "Quarry", "Ravine", "Signal", "Window",
)  # fmt: skip


_SHARED = tuple(each for each in _COLLECTIONS if each.kind == "copies")
_OWNED = tuple(each for each in _COLLECTIONS if each.kind != "copies")
# The first collections are the large ones, as in the field.
_WEIGHTS = tuple(1 / rank for rank in range(1, len(_OWNED) + 1))
_SHARE = 0.3
_HOLDERS = 8
_SITE = "https://example.com"
_CANVAS = 400


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
        self._contracts = {each.name: self._address() for each in _COLLECTIONS}
        self._pictures = {each.maker: f"{self._images}/{self._uuid()}.svg" for each in _COLLECTIONS}
        self._numbers = {each.name: count(1) for each in _COLLECTIONS}
        self._made = 0

    def world(self, wallets: int, nfts: int, seed: int) -> World:
        world = World(seed=seed, organization_id=self._organization)
        with world.state.transaction():
            for listed in self._shared_lists(wallets, round(nfts * _SHARE)):
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
        self, collection: _Collection, edition: dict[str, object] | None = None
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
        collection: _Collection,
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
        mood = f"{self._random.choice(_QUALITIES)} {self._random.choice(_PLACES)}"
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


def draw(token_id: str) -> str:
    """Draw abstract art as SVG: the same id gives the same picture, and nothing else enters it.

    Args:
        token_id: any UUID, in any case.
    """
    pen = Random(token_id.lower())  # noqa: S311 - art
    hue = pen.randrange(360)
    shapes = [_shape(pen, (hue + pen.choice((0, 25, 180, 205))) % 360) for _ in range(9)]
    sky = f"hsl({hue} 62% {pen.randrange(16, 34)}%)"
    ground = f"hsl({(hue + pen.randrange(30, 90)) % 360} 58% {pen.randrange(52, 72)}%)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_CANVAS} {_CANVAS}">'
        f'<defs><linearGradient id="g" gradientTransform="rotate({pen.randrange(20, 90)})">'
        f'<stop offset="0" stop-color="{sky}"/><stop offset="1" stop-color="{ground}"/>'
        f'</linearGradient></defs><rect width="{_CANVAS}" height="{_CANVAS}" fill="url(#g)"/>'
        f"{''.join(shapes)}</svg>"
    )


def _shape(pen: Random, hue: int) -> str:
    x, y, size = pen.randrange(_CANVAS), pen.randrange(_CANVAS), pen.randrange(24, 130)
    paint = f"hsl({hue} {pen.randrange(55, 90)}% {pen.randrange(45, 85)}%)"
    fill = f'fill="{paint}" fill-opacity="0.{pen.randrange(25, 75)}"'
    line = f'fill="none" stroke="{paint}" stroke-width="{pen.randrange(3, 14)}"'
    turn = f'transform="rotate({pen.randrange(360)} {x} {y})"'
    kind = pen.randrange(4)
    if kind == 0:
        return f'<circle cx="{x}" cy="{y}" r="{size}" {fill}/>'
    if kind == 1:
        return f'<circle cx="{x}" cy="{y}" r="{size}" {line}/>'
    if kind == 2:
        corner = pen.randrange(size)
        return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="{corner}" {fill} {turn}/>'
    bend = pen.randrange(-_CANVAS, _CANVAS)
    return f'<path d="M{x - _CANVAS} {y}Q{x} {y + bend} {x + _CANVAS} {y}" {line} {turn}/>'
