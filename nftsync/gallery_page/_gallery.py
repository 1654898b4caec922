"""The gallery that `nftsync.gallery` returns."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nftsync.errors import InputError
from nftsync.gallery_page._cards import Cards, Images, cards_of
from nftsync.gallery_page._clean import clean
from nftsync.gallery_page._notebook import output
from nftsync.gallery_page._page import page
from nftsync.image_address import origin

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Gallery", "make_gallery"]

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
