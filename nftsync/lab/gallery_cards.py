"""What a gallery shows: cells as text of one line, bounded, without marks that mislead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from nftsync.errors import InputError
from nftsync.provider.images import image_address
from nftsync.text import without_controls

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cards", "Column", "Images", "cards_of", "clean"]


_SURROGATE = re.compile("[\ud800-\udfff]")
#: Emoji and several scripts are written with them; alone they show nothing.
_JOINERS = "\u200c\u200d"


def clean(value: Any, most: int) -> str | None:
    """Make a cell's text one line of at most `most` characters; None if nothing can be seen of it.

    Args:
        value: text, an integer, or whatever a frame's cell holds.
        most: characters; what is longer is cut and ends in `…`.
    """
    # Far more than is kept is never looked at, so that long texts cost nothing.
    text = str(value)[: most * 4 + 1000]
    text = without_controls(_SURROGATE.sub("\ufffd", text))
    if not text.strip(_JOINERS):
        return None
    return text if len(text) <= most else f"{text[: most - 1]}…"


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


class Images(NamedTuple):
    """Where images may come from.

    Attributes:
        gateway: the URL that IPFS content is found behind.
        provider: the provider's base URL, whose origin may show images; None: none is known.
    """

    gateway: str
    provider: str | None


@dataclass(frozen=True)
class Cards:
    """What a gallery shows.

    Attributes:
        columns: page column to values, each of the same length. Columns of nothing are left out.
        total: NFTs that there were, those beyond the limit included.
        zeros: rows left out before, as their amount is 0.
    """

    columns: dict[str, Column]
    total: int
    zeros: int

    def __len__(self) -> int:
        return len(self.columns["token"])

    @property
    def noun(self) -> str:
        """What the rows are: an NFT that several wallets hold is several holdings."""
        return "holdings" if "wallet" in self.columns else "NFTs"


def cards_of(frame: pd.DataFrame, images: Images, *, limit: int, hide_zero: bool) -> Cards:
    """Read a frame's columns, as far as it has them.

    Args:
        frame: has `token_id`, and any of the columns of `frames.holdings` and `collection`.
        images: where images may come from.
        limit: NFTs at most, the first of the frame.
        hide_zero: leave out rows with an amount of 0.

    Raises:
        InputError: it has no `token_id`, or a column twice.
    """
    if "token_id" not in frame.columns:
        raise InputError("a gallery needs the column token_id; give it a frame of holdings")
    twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
    if twice:
        raise InputError(f"a gallery cannot tell columns of one name apart: {', '.join(twice)}")
    rows = len(frame)
    if hide_zero:
        frame = _without_zeros(frame)
    total = len(frame)
    columns = _read(frame.iloc[:limit], images)
    columns["token"] = [token or "" for token in columns["token"]]
    kept = {name: values for name, values in columns.items() if name == "token" or any(values)}
    return Cards(kept, total, rows - total)


def _read(frame: pd.DataFrame, images: Images) -> dict[str, Column]:
    columns: dict[str, Column] = {
        name: [None if cell is None else clean(cell, most) for cell in _cells(frame, source)]
        for name, (source, most) in _TEXTS.items()
        if source in frame.columns
    }
    columns["amount"] = _amounts(frame)
    columns["edition"] = [_integer(cell) for cell in _cells(frame, "edition_id")]
    # Providers say 0 where there is no limit.
    totals = [_integer(cell) for cell in _cells(frame, "total_edition")]
    columns["editions"] = [None if text == "0" else text for text in totals]
    columns["held"] = [_moment(cell) for cell in _cells(frame, "held_since")]
    addresses = [_image(cell, images) for cell in _cells(frame, "image")]
    columns["image"] = [url for url, _ in addresses]
    columns["problem"] = [problem for _, problem in addresses]
    return columns


def _cells(frame: pd.DataFrame, name: str) -> list[Any]:
    """A column's values, None where one is missing or there is no such column."""
    if name not in frame.columns:
        return [None] * len(frame)
    column = frame[name].astype(object)
    cells: list[Any] = column.where(column.notna(), None).tolist()
    return cells


def _without_zeros(frame: pd.DataFrame) -> pd.DataFrame:
    amounts = enumerate(_amounts(frame))
    return frame.iloc[[row for row, text in amounts if text is None or text.strip("0")]]


def _amounts(frame: pd.DataFrame) -> Column:
    """Amounts as text: as they were sent where the frame has that, else exactly as they are."""
    name = "amount_text" if "amount_text" in frame.columns else "amount"
    return [_integer(cell) for cell in _cells(frame, name)]


def _integer(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # where pandas made floats of integers beside missing values
    return None if value is None else clean(value, _MOST_DIGITS)


def _moment(value: Any) -> str | None:
    if isinstance(value, datetime):
        known = value.tzinfo is not None
        moment = value.astimezone(UTC) if known else value
        value = f"{moment:%Y-%m-%d %H:%M:%S}{' UTC' if known else ''}"
    return None if value is None else clean(value, 40)


def _image(value: Any, images: Images) -> tuple[str | None, str | None]:
    """Where an image may be loaded from, or what is wrong with its address."""
    if value is None or not str(value).strip():
        return None, None
    return image_address(str(value), ipfs_gateway=images.gateway, provider=images.provider)
