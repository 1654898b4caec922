"""The cards of a gallery: texts of limited length without misleading characters."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from nftsync import settings
from nftsync.errors import InputError, SettingsError
from nftsync.provider.images import DEFAULT_GATEWAY, ImageAddress, image_address, origin
from nftsync.store.contracts import short_address
from nftsync.text import without_controls

if TYPE_CHECKING:
    import pandas as pd


#: Most texts: nothing in them needs a closer look.
_PLAIN = re.compile("[!-~]+(?: [!-~]+)*")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Emoji and several scripts are written with them; alone they show nothing.
_JOINERS = "\u200c\u200d"


def clean(value: Any, most: int) -> str | None:
    """Make a cell's text one line of at most `most` characters; None if nothing can be seen of it.

    Args:
        value: text, an integer, or whatever a frame's cell holds.
        most: characters; what is longer is cut and ends in `…`.
    """
    if isinstance(value, str) and len(value) <= most and _PLAIN.fullmatch(value):
        return value
    # Far more than is kept is never looked at, so that long texts cost nothing.
    text = str(value)[: most * 4 + 1000]
    text = without_controls(_SURROGATE.sub("\ufffd", text))
    if not text.strip(_JOINERS):
        return None
    return text if len(text) <= most else f"{text[: most - 1]}…"


Made = TypeVar("Made")

#: A text per NFT; None where there is nothing to say.
Column: TypeAlias = list[str | None]

#: The page's columns of text: the frame's column and the most characters that are kept.
_TEXTS = {
    "token": ("token_id", 100),
    "name": ("name", 200),
    "creator": ("creator_name", 100),
    "collection": ("collection", 100),
    "contract": ("contract_address", 100),
    "chain": ("blockchain_token_id", 100),
    "label": ("wallet_label", 100),
    "wallet": ("wallet_id", 100),
    "description": ("description", 200),
}
_MOST_DIGITS = 120


#: Which images are shown.
WhichImages: TypeAlias = Literal["all", "provider", "none"]


class Images(NamedTuple):
    """Where images may come from.

    Attributes:
        gateway: the URL that IPFS content is found behind.
        provider: the provider's base URL, whose origin may show images; None: none is known.
        which: `all` of these, the `provider`'s alone, or `none`.
    """

    gateway: str
    provider: str | None
    which: WhichImages = "all"

    def at(self, text: str) -> ImageAddress:
        """Where an image may be loaded from."""
        if self.which == "none":
            return ImageAddress(None, "images are off")
        found = image_address(text, ipfs_gateway=self.gateway, provider=self.provider)
        if self.which == "all" or found.url is None:
            return found
        if self.provider and found.url.startswith(f"{origin(self.provider)}/"):
            return found
        return ImageAddress(None, "images are off that are not the provider's")


def configured_images() -> Images:
    """The configured IPFS gateway and provider; a warning and the defaults if they are unusable."""
    try:
        configured = settings.load()
        for url in (configured.ipfs_gateway, configured.base_url):
            if url is not None:
                origin(url)
    except (SettingsError, InputError) as error:
        # Some images may be missing for it, but the NFTs are there to be shown.
        warnings.warn(f"gallery without settings: {error}", stacklevel=3)
        return Images(DEFAULT_GATEWAY, None)
    return Images(configured.ipfs_gateway, configured.base_url)


@dataclass(frozen=True)
class Shown:
    """What a gallery was given, in the order in which it shows it.

    Attributes:
        frame: the rows.
        images: where images may come from.
        zeros: rows left out before, as their amount is 0.
        pictures_first: whether those with a picture come first; else the order is the caller's.
    """

    frame: pd.DataFrame
    images: Images
    zeros: int
    pictures_first: bool

    @property
    def noun(self) -> str:
        """What the rows are: an NFT that several wallets hold is several holdings."""
        return "holdings" if "wallet_id" in self.frame.columns else "NFTs"


@dataclass(frozen=True)
class Cards:
    """What a page of a gallery shows.

    Attributes:
        columns: page column to values, each of the same length. Columns of nothing are left out.
        of: what the gallery was given.
    """

    columns: dict[str, Column]
    of: Shown

    def __len__(self) -> int:
        return len(self.columns["token"])

    @property
    def total(self) -> int:
        """NFTs that there are, those beyond the limit included."""
        return len(self.of.frame)


def shown_of(
    frame: pd.DataFrame, images: Images, *, hide_zero: bool, pictures_first: bool | None
) -> Shown:
    """Choose and order a frame's rows.

    Args:
        frame: has `token_id`, and any of the columns of `frames.holdings`.
        images: where images may come from.
        hide_zero: leave out rows with an amount of 0.
        pictures_first: put those with a picture first; None: unless the frame was sorted, which
            shows in its index.

    Raises:
        InputError: it has no `token_id`, or a column twice.
    """
    if "token_id" not in frame.columns:
        raise InputError("a gallery needs the column token_id; give it a frame of holdings")
    twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise InputError(f"a gallery cannot tell columns of one name apart: {', '.join(twice)}")
    rows = len(frame)
    frame = _without_zeros(frame) if hide_zero else frame.copy(deep=False)
    zeros = rows - len(frame)
    if pictures_first is None:
        pictures_first = frame.index.is_monotonic_increasing
    if pictures_first:
        without = [address.url is None for address in addresses(frame, images)]
        frame = frame.iloc[sorted(range(len(frame)), key=without.__getitem__)]
    return Shown(frame, images, zeros, pictures_first)


def cards_of(shown: Shown, limit: int | None = None) -> Cards:
    """Read the columns of the first rows, at most `limit` of them, as far as there are any."""
    columns = _read(shown.frame.iloc[:limit], shown.images)
    columns["token"] = [token or "" for token in columns["token"]]
    kept = {name: values for name, values in columns.items() if name == "token" or any(values)}
    return Cards(kept, shown)


def _read(frame: pd.DataFrame, images: Images) -> dict[str, Column]:
    columns: dict[str, Column] = {
        name: _each(partial(clean, most=most), frame, source)
        for name, (source, most) in _TEXTS.items()
        if source in frame.columns
    }
    if {"collection", "contract"} <= columns.keys():
        pairs = zip(columns["collection"], columns["contract"], strict=True)
        columns["collection"] = [None if _stands_in(*pair) else pair[0] for pair in pairs]
    columns["amount"] = _amounts(frame)
    columns["edition"] = _each(_integer, frame, "edition_id")
    # Providers say 0 where there is no limit.
    totals = _each(_integer, frame, "total_edition")
    columns["editions"] = [None if text == "0" else text for text in totals]
    columns["held"] = _each(_moment, frame, "held_since")
    found = addresses(frame, images)
    columns["image"] = [address.url for address in found]
    columns["problem"] = [address.problem for address in found]
    return columns


def _stands_in(collection: str | None, contract: str | None) -> bool:
    """Whether a frame's collection is none, but the short address of its contract."""
    if collection is None or contract is None:
        return False
    return collection.lower() == short_address(contract).lower()


def _each(make: Callable[[Any], Made | None], frame: pd.DataFrame, name: str) -> list[Made | None]:
    """What is made of each cell of a column; None where one is missing or there is no such column.

    Of texts, times and integers that are the same it is made once.
    """
    import pandas as pd

    if name not in frame.columns:
        return [None] * len(frame)
    column = frame[name]
    if isinstance(column.dtype, pd.StringDtype) or column.dtype.kind in "iuM":
        codes, cells = column.factorize()
        made = [*map(make, cells), None]  # of what is missing the code is -1
        return [made[code] for code in codes.tolist()]
    cells = column.astype(object)
    return [
        None if gone else make(cell)
        for cell, gone in zip(cells.tolist(), cells.isna().tolist(), strict=True)
    ]


def _without_zeros(frame: pd.DataFrame) -> pd.DataFrame:
    amounts = enumerate(_amounts(frame))
    return frame.iloc[[row for row, text in amounts if text is None or text.strip("0")]]


def _amounts(frame: pd.DataFrame) -> Column:
    """Amounts as text: as they were sent where the frame has that, else exactly as they are."""
    name = "amount_text" if "amount_text" in frame.columns else "amount"
    return _each(_integer, frame, name)


def _integer(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # where pandas made floats of integers beside missing values
    return clean(value, _MOST_DIGITS)


def _moment(value: Any) -> str | None:
    if isinstance(value, datetime):
        known = value.tzinfo is not None
        moment = value.astimezone(UTC) if known else value
        value = f"{moment:%Y-%m-%d %H:%M:%S}{' UTC' if known else ''}"
    return clean(value, 40)


def addresses(frame: pd.DataFrame, images: Images) -> list[ImageAddress]:
    """Where each image of the column `image` may be loaded from, or what is wrong with it."""

    def address(cell: Any) -> ImageAddress:
        if not str(cell).strip():
            return _NO_IMAGE
        return images.at(str(cell))

    return [found or _NO_IMAGE for found in _each(address, frame, "image")]


_NO_IMAGE = ImageAddress(None, None)
