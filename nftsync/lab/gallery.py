"""Text of strangers, made fit to be shown: one line, bounded, and without marks that mislead."""

from __future__ import annotations

import math
import os
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import uuid4

from nftsync import settings
from nftsync.errors import InputError, SettingsError
from nftsync.lab.gallery_page import output, page
from nftsync.provider.images import DEFAULT_GATEWAY, image_address, origin

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cards", "Gallery", "Images", "cards_of", "clean", "gallery", "make_gallery"]


#: Controls, marks that turn the direction of what follows, and characters without width. The two
#: joiners stay: emoji and several scripts are written with them.
_DROPPED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_JOINERS = "\u200c\u200d"


def clean(value: Any, most: int) -> str | None:
    """Make a cell's text one line of at most `most` characters; None if nothing can be seen of it.

    Args:
        value: text, an integer, or whatever a frame's cell holds.
        most: characters; what is longer is cut and ends in `…`.
    """
    # Far more than is kept is never looked at, so that long texts cost nothing.
    text = str(value)[: most * 4 + 1000]
    text = _SURROGATE.sub("\ufffd", _DROPPED.sub("", text))
    text = " ".join(text.split())
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
        name: [_text(value, most) for value in frame[source].tolist()]
        for name, (source, most) in _TEXTS.items()
        if source in frame.columns
    }
    columns["amount"] = _amounts(frame)
    if "edition_id" in frame.columns:
        columns["edition"] = [_integer(value) for value in frame["edition_id"].tolist()]
    if "total_edition" in frame.columns:
        # Providers say 0 where there is no limit.
        totals = [_integer(value) for value in frame["total_edition"].tolist()]
        columns["editions"] = [None if text == "0" else text for text in totals]
    if "held_since" in frame.columns:
        columns["held"] = [_moment(value) for value in frame["held_since"].tolist()]
    if "image" in frame.columns:
        columns["image"], columns["problem"] = _images(frame["image"].tolist(), images)
    return columns


def _without_zeros(frame: pd.DataFrame) -> pd.DataFrame:
    if "amount_text" not in frame.columns and "amount" not in frame.columns:
        return frame
    held = [text is None or text.strip("0") != "" for text in _amounts(frame)]
    return frame.iloc[[row for row, kept in enumerate(held) if kept]]


def _amounts(frame: pd.DataFrame) -> Column:
    """Amounts as text: as they were sent where the frame has that, else exactly as they are."""
    for name in ("amount_text", "amount"):
        if name in frame.columns:
            return [_integer(value) for value in frame[name].tolist()]
    return [None] * len(frame)


def _missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    # pandas' own marks equal nothing, and importing pandas to name them is slow.
    return type(value).__name__ in {"NAType", "NaTType"}


def _text(value: Any, most: int) -> str | None:
    return None if _missing(value) else clean(value, most)


def _integer(value: Any) -> str | None:
    if _missing(value):
        return None
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)  # where pandas made floats of integers beside missing values
    return clean(value, _MOST_DIGITS)


def _moment(value: Any) -> str | None:
    if _missing(value):
        return None
    if isinstance(value, datetime):
        known = value.tzinfo is not None
        moment = value.astimezone(UTC) if known else value
        value = f"{moment:%Y-%m-%d %H:%M:%S}{' UTC' if known else ''}"
    return clean(value, 40)


def _images(values: list[Any], images: Images) -> tuple[Column, Column]:
    urls: Column = []
    problems: Column = []
    for value in values:
        url = problem = None
        if not _missing(value) and str(value).strip():
            url, problem = image_address(
                str(value), ipfs_gateway=images.gateway, provider=images.provider
            )
        urls.append(url)
        problems.append(problem)
    return urls, problems


_TITLE = "NFTs"
_MOST_PAGE_SIZE = 500


class Gallery:
    """NFTs to look through: shown at the end of a notebook's cell, or saved as one HTML file.

    Attributes:
        title: the heading.
    """

    def __init__(self, cards: Cards, images: Images, *, title: str, page_size: int) -> None:
        self.title = title
        self._cards = cards
        self._images = images
        self._page_size = page_size

    def __len__(self) -> int:
        """NFTs that the page holds."""
        return len(self._cards)

    def __repr__(self) -> str:
        left_out = self._cards.total - len(self)
        rest = f" of {self._cards.total:,}" if left_out else ""
        what = f"{len(self):,}{rest} {self._cards.noun}"
        return f"<Gallery {self.title!r}: {what}; .save(path) makes a page>"

    @cached_property
    def html(self) -> str:
        """The page, whole."""
        return page(self._cards, self._images, title=self.title, page_size=self._page_size)

    def _repr_html_(self) -> str:
        return output(self.html, self._cards, title=self.title)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, all of it or nothing; an older file is replaced.

        Args:
            path: the file; its directory exists.

        Returns:
            The file, absolute.

        Raises:
            InputError: it cannot be written there.
        """
        target = Path(path).absolute()
        if target.is_dir():
            raise InputError(f"cannot write {target}: it is a directory; name a file in it")
        unfinished = target.with_name(f".{uuid4().hex}.unfinished")
        try:
            unfinished.write_text(self.html, encoding="utf-8", newline="\n")
            unfinished.replace(target)
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                unfinished.unlink()
        return target


def make_gallery(
    holdings: pd.DataFrame | Any,
    *,
    title: str | None,
    page_size: int,
    limit: int,
    hide_zero: bool,
    images: Images,
) -> Gallery:
    """Make a gallery of a frame, or of what `frames.holdings` reads from a database.

    Args:
        holdings: a frame with `token_id` and any other column of `frames.holdings`, or what
            `frames.holdings` takes as a database.
        title: the heading; None: a plain one.
        page_size: NFTs shown at a time, 1 to 500.
        limit: NFTs that the page holds at most, 1 or more.
        hide_zero: leave out rows with an amount of 0.
        images: where images may come from.

    Raises:
        InputError: an argument or the frame cannot be used.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    import pandas as pd

    from nftsync.frames import holdings as read_holdings

    _check("page_size", page_size, _MOST_PAGE_SIZE)
    _check("limit", limit, None)
    for url in (images.gateway, images.provider):
        if url is not None:
            origin(url)
    frame = holdings if isinstance(holdings, pd.DataFrame) else read_holdings(holdings)
    cards = cards_of(frame, images, limit=limit, hide_zero=hide_zero)
    heading = _TITLE if title is None else clean(title, 200) or _TITLE
    return Gallery(cards, images, title=heading, page_size=page_size)


def _check(name: str, value: object, most: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):  # type: ignore[operator]
        span = "of 1 or more" if most is None else f"from 1 to {most}"
        raise InputError(f"{name} must be a whole number {span}, not {value!r}")


def gallery(
    holdings: Any = None,
    *,
    title: str | None = None,
    page_size: int = 60,
    limit: int = 2_000,
    hide_zero: bool = True,
    ipfs_gateway: str | None = None,
    base_url: str | None = None,
) -> Gallery:
    """Show NFTs: a page with search, sorting and pages, in a notebook or, saved, as a file.

    Images are loaded by the browser that shows the page, from `https:` addresses, from IPFS
    through a gateway, and from the provider's own origin; others are named, not loaded.

    Args:
        holdings: a frame with `token_id` and any other column of `frames.holdings`, and
            `collection`, if there is one, as the contract's name; or a database, as
            `frames.holdings` takes it (None: the configured one).
        title: the heading.
        page_size: NFTs shown at a time, 1 to 500.
        limit: NFTs that the page holds at most, the first of the frame; it says what it left out.
        hide_zero: leave out rows with an amount of 0.
        ipfs_gateway: the URL that IPFS content is found behind; None: the configured one.
        base_url: the provider, whose origin may show images; None: the configured one.

    Returns:
        The gallery; it shows itself at the end of a cell, and `.save(path)` writes the page.

    Raises:
        InputError: an argument or the frame cannot be used.
        StoreError: the database is missing, is not nftsync's or cannot be read.
        SettingsError: no usable database is configured, and none was given.
    """
    gateway, provider = ipfs_gateway, base_url
    if gateway is None or provider is None:
        configured = _image_sources()
        gateway, provider = gateway or configured[0], provider or configured[1]
    return make_gallery(
        holdings,
        title=title,
        page_size=page_size,
        limit=limit,
        hide_zero=hide_zero,
        images=Images(gateway, provider),
    )


def _image_sources() -> tuple[str, str | None]:
    """The configured IPFS gateway and provider; a warning and the defaults if they are unusable."""
    try:
        configured = settings.load()
        for url in (configured.ipfs_gateway, configured.base_url):
            if url is not None:
                origin(url)
    except (SettingsError, InputError) as error:
        # Some images may be missing for it, but the NFTs are there to be shown.
        warnings.warn(f"gallery without settings: {error}", stacklevel=3)
        return DEFAULT_GATEWAY, None
    return configured.ipfs_gateway, configured.base_url
