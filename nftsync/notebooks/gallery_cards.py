"""Data of the gallery page's cards: texts cut to a length, pictures, traits."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from nftsync import settings
from nftsync.columnar.source import Store, reading
from nftsync.errors import InputError, NftsyncWarning, SettingsError
from nftsync.provider.config import ClientConfig
from nftsync.provider.images import ImageAddress, Images
from nftsync.store.contracts import contract_key, nft_name, short_address
from nftsync.text import counted, seen_line, short_id

if TYPE_CHECKING:
    import pandas as pd


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(value: Any, most: int) -> str | None:
    """Return a cell's text on one line, or None if it is invisible."""
    return seen_line(_SURROGATE.sub("\ufffd", str(value)), most) or None


Made = TypeVar("Made")

#: A text or None per NFT.
Texts: TypeAlias = list[str | None]

#: The page's text columns: the frame's column and the most characters.
_TEXTS = {
    "token": ("token_id", 100),
    "name": ("name", 200),
    "creator": ("creator_name", 100),
    "collection": ("collection", 100),
    "contract": ("contract_address", 100),
    "chain": ("blockchain_token_id", 100),
    "label": ("wallet_label", 100),
    "group": ("wallet_group", 100),
    "wallet": ("wallet_id", 100),
    "database": ("database", 100),
    "description": ("description", 200),
}
_MOST_DIGITS = 120
#: Characters of all pictures that metadata contain.
_MOST_IN_PAGE = 20_000_000
_TOO_MUCH = ImageAddress(None, "all pictures in metadata together are larger than 20 MB")
#: The most traits of a token.
_MOST_TRAITS = 100


def configured_images(config: Path | None = None, database: str | Path | None = None) -> Images:
    """Return the configured sources; if they are unusable, warn and use the defaults.

    A demo's `database` has a provider of its own.
    """
    try:
        configured = settings.load(config=config)
        images = Images(configured.ipfs_gateway, configured.base_url).checked()
    except (SettingsError, InputError) as error:
        # The gallery is useful even if some images are missing.
        warnings.warn(f"the gallery ignores the settings: {error}", stacklevel=3)
        images = Images()
    if database is None:
        return images
    from nftsync.notebooks.database import demo_address  # loads a server, which is slow

    return images._replace(provider=demo_address(Path(database)) or images.provider)


def coded(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Encode a column as its distinct values and an index per row."""
    place = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return {"of": list(place), "at": [place[value] for value in values]}


class GalleryRows(NamedTuple):
    """Rows of a gallery, in order, without `zeros` rows with an amount of 0."""

    frame: pd.DataFrame
    images: Images
    zeros: int
    pictures_first: bool
    traits: pd.DataFrame | None = None

    @property
    def noun(self) -> str:
        """Word for rows: an NFT in several wallets is several holdings."""
        return "holdings" if "wallet_id" in self.frame.columns else "NFTs"


def select_rows(
    frame: pd.DataFrame, images: Images, *, hide_zero: bool, pictures_first: bool | None
) -> GalleryRows:
    """Select and order a frame's rows; for the arguments, see `gallery`."""
    if "token_id" not in frame.columns:
        raise InputError("a gallery needs the column token_id; pass a frame of holdings")
    twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise InputError(f"the gallery's frame has several columns of one name: {', '.join(twice)}")
    rows = len(frame)
    if hide_zero:
        amounts = enumerate(_amounts(frame))
        frame = frame.iloc[[row for row, text in amounts if text is None or text.strip("0")]]
    zeros = rows - len(frame)
    if pictures_first is None:
        pictures_first = frame.index.is_monotonic_increasing
    if pictures_first:
        without = [address.url is None for address in addresses(frame, images)]
        frame = frame.iloc[sorted(range(len(frame)), key=without.__getitem__)]
    return GalleryRows(frame, images, zeros, pictures_first)


def make_cards(rows: GalleryRows, limit: int | None) -> dict[str, Texts]:
    """Return the cards of the first rows: equally long columns, without empty ones."""
    frame, images = rows.frame.iloc[:limit], rows.images
    columns: dict[str, Texts] = {
        name: _map_column(partial(clean, most=most), frame, source)
        for name, (source, most) in _TEXTS.items()
    }
    columns["token"] = [token or "" for token in columns["token"]]
    columns |= _names(columns, _map_column(partial(clean, most=100), frame, "wallet"))
    columns["amount"] = _amounts(frame)
    columns["edition"] = _map_column(_integer, frame, "edition_id")
    # Providers use 0 for an unlimited edition.
    totals = _map_column(_integer, frame, "total_edition")
    columns["editions"] = [None if text == "0" else text for text in totals]
    columns["held"] = _map_column(_moment, frame, "held_since")
    checked = addresses(frame, images)
    inline = [len(url or "") * (url or "").startswith("data:") for url, _ in checked]
    for place, size in enumerate(accumulate(inline)):
        if inline[place] and size > _MOST_IN_PAGE:
            checked[place] = _TOO_MUCH
    columns["image"] = [address.url for address in checked]
    columns["problem"] = [address.problem for address in checked]
    return {name: values for name, values in columns.items() if name == "token" or any(values)}


def _names(cards: dict[str, Texts], wallets: Texts) -> dict[str, Texts]:
    rows = partial(zip, strict=True)
    collections = [
        name or (contract and short_address(contract_key(contract)))
        for name, contract in rows(cards["collection"], cards["contract"])
    ]
    return {
        "collection": collections,
        "name": [
            name or nft_name(None, collection, chain, token or "") or "NFT"
            for name, collection, chain, token in rows(
                cards["name"], collections, cards["chain"], cards["token"]
            )
        ],
        "label": [
            name or label or (wallet and short_id(wallet))
            for name, label, wallet in rows(wallets, cards["label"], cards["wallet"])
        ],
    }


def first_cards(cards: dict[str, Texts], most: int) -> list[dict[str, str | None]]:
    """Return the texts of the first cards."""
    return [
        _with_edition(dict(zip(cards, texts, strict=True)))
        for texts in islice(zip(*cards.values(), strict=True), most)
    ]


def _with_edition(card: dict[str, str | None]) -> dict[str, str | None]:
    edition, total = card.get("edition"), card.get("editions")
    shown = None if edition in {None, "0"} else " of ".join(filter(None, (edition, total)))
    return {**card, "edition": shown}


def make_traits(traits: pd.DataFrame | None, tokens: Texts) -> dict[str, Any] | None:
    """Return distinct traits, and for each token a set of them."""
    if traits is None:
        return None
    rows = traits[traits["token_id"].isin(set(tokens))]
    text = partial(clean, most=60)
    types, values = (_map_column(text, rows, name) for name in ("trait_type", "value"))
    numbers: dict[tuple[str, str], int] = {}
    by_token: dict[str, tuple[int, ...]] = {}
    for token, trait_type, value in zip(rows["token_id"].tolist(), types, values, strict=True):
        earlier = by_token.get(token, ())
        if value is not None and len(earlier) < _MOST_TRAITS:
            number = numbers.setdefault((trait_type or "Other", value), len(numbers))
            by_token[token] = earlier if number in earlier else (*earlier, number)
    sets = coded([by_token.get(token or "", ()) for token in tokens])
    return {"of": list(numbers), "sets": sets} if numbers else None


def with_embedded(cards: dict[str, Texts], images: Images) -> tuple[dict[str, Texts], list[str]]:
    """Download images; return cards with data URLs, and a note on missing images."""
    from nftsync.provider.downloads import download_images  # loads httpx, which is slow

    configured = settings.load()
    config = ClientConfig(
        base_url=images.gateway,
        proxy=configured.proxy,
        proxy_source=configured.sources["proxy"],
        ca_file=None if configured.ca_file is None else str(configured.ca_file),
    )
    nothing: Texts = [None] * len(cards["token"])
    urls, problems = cards.get("image", nothing), cards.get("problem", nothing)
    to_load = (url for url in urls if url and not url.startswith("data:"))
    embedded = download_images(to_load, images, config)
    checked = [embedded.get(url or "", ImageAddress(url, None)) for url in urls]
    reasons = [new.problem or old for new, old in zip(checked, problems, strict=True)]
    cards = {**cards, "image": [address.url for address in checked], "problem": reasons}
    missing = [*filter(None, reasons)]
    if not missing:
        return cards, []
    total = len(missing) + sum(url is not None for url in cards["image"])
    number = f"{len(missing):,} of {counted(total, 'image')}"
    warnings.warn(f"{number} not embedded; the first: {missing[0]}", NftsyncWarning, stacklevel=3)
    return cards, [f"Not embedded: {number}. Their cards say why."]


def _map_column(
    make: Callable[[Any], Made | None], frame: pd.DataFrame, name: str
) -> list[Made | None]:
    """Apply `make` to each cell of a column, once per distinct text, time or integer.

    Gives None for missing cells, and for a missing column.
    """
    import pandas as pd

    if name not in frame.columns:
        return [None] * len(frame)
    column = frame[name]
    if isinstance(column.dtype, pd.StringDtype) or column.dtype.kind in "iuM":
        codes, cells = column.factorize()
        made = [*map(make, cells), None]  # missing cells have the code -1
        return [made[code] for code in codes.tolist()]
    cells = column.astype(object)
    return [
        None if gone else make(cell)
        for cell, gone in zip(cells.tolist(), cells.isna().tolist(), strict=True)
    ]


def _amounts(frame: pd.DataFrame) -> Texts:
    name = "amount_text" if "amount_text" in frame.columns else "amount"
    return _map_column(_integer, frame, name)


def _integer(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas turns integers into floats beside missing values
    return clean(value, _MOST_DIGITS)


def _moment(value: Any) -> str | None:
    if isinstance(value, datetime):
        has_zone = value.tzinfo is not None
        moment = value.astimezone(UTC) if has_zone else value
        value = f"{moment:%Y-%m-%d %H:%M:%S}{' UTC' if has_zone else ''}"
    return clean(value, 40)


def with_other_fields(frame: pd.DataFrame, db: Store) -> pd.DataFrame:
    """Add `extra` to tokens without an image, as it may name a picture."""
    with reading(db) as source:
        query = "SELECT token_id, extra FROM tokens WHERE coalesce(trim(image), '') = ''"
        return frame.assign(extra=frame["token_id"].map(dict(source.rows(query))))


def addresses(frame: pd.DataFrame, images: Images) -> list[ImageAddress]:
    """Check the image of each NFT."""
    names = ("image", "blockchain_token_id", "extra")
    columns = (_map_column(str, frame, name) for name in names)
    checked = lru_cache(maxsize=None)(images.of_token)
    return [checked(*(text or "" for text in texts)) for texts in zip(*columns, strict=True)]
