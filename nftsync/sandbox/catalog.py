"""The made-up collections of a generated world: names, makers and the way each numbers its NFTs."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["COLLECTIONS", "PLACES", "QUALITIES", "Collection"]


class Collection(NamedTuple):
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


COLLECTIONS = (
    Collection("Lowtide Studies", "Studio Lowtide", "single", "A study of water leaving sand"),
    Collection("Paper Lantern Index", "Lantern Press", "series", "A sheet from the index", run=25),
    Collection("Tram Line Nocturnes", "Night Depot", "single", "The last tram of an evening"),
    Collection("Moss Kites 🪁", "Attic Weather", "single", "A kite that grows", hashed=True),
    Collection("Quiet Machines", "Workshop Nine", "series", "A machine at rest", run=10),
    Collection("حدائق الضوء", "بيت الألوان", "single", "A garden drawn with light"),
    Collection("Salt Cartography", "Studio Lowtide", "series", "A chart of a salt plain", run=50),
    Collection("Orchard Frequencies", "Fieldrecorder", "single", "A tree heard", hashed=True),
    Collection("Harbour Passes", "Pier Cooperative", "copies", "Opens the harbour gate"),
    Collection("Kiln Tokens", "Workshop Nine", "copies", "One firing in the shared kiln"),
    Collection("Cloud Ferry Tickets ☁️", "Night Depot", "copies", "A crossing", hashed=True),
)

QUALITIES = (
    "Amber", "Borrowed", "Cobalt", "Drifting", "Early", "Folded", "Glass", "Hollow", "Inland",
    "Late", "Mended", "Northern", "Open", "Pale", "Restless", "Silver", "Tidal", "Unlit",
)  # fmt: skip

PLACES = (
    "Arcade", "Basin", "Causeway", "Delta", "Estuary", "Foundry", "Gallery", "Hour", "Island",
    "Jetty", "Lighthouse", "Meadow", "Orchard", "Passage", "Quarry", "Ravine", "Signal", "Window",
)  # fmt: skip
