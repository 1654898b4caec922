"""The gallery of NFTs.

Untrusted notebooks and viewers such as GitHub remove frames, styles and scripts. The output
therefore contains a table, too; only a style beside it hides the table and shows the frame.
"""

from __future__ import annotations

import gzip
import json
import os
import warnings
from base64 import b64encode
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from nftsync.errors import InputError, NftsyncWarning
from nftsync.notebooks.gallery_cards import (
    GalleryRows,
    Texts,
    clean,
    coded,
    configured_images,
    first_cards,
    make_cards,
    make_traits,
    select_rows,
    with_embedded,
    with_other_fields,
)
from nftsync.notebooks.pages import markup, page, part, source
from nftsync.provider.images import Images, WhichImages, image_sources
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

_TITLE = "NFTs"
_MOST_PAGE_SIZE = 500
#: Default limit in a notebook, which stores these NFTs in about 8 MB.
_IN_NOTEBOOK = 200_000
#: Heights of a page in a notebook, with and without cards, in pixels.
_HEIGHT, _LOW = 720, 240
#: Rows of the table in a notebook.
_ROWS = 24


class Gallery:
    """A page of NFTs: shown at the end of a notebook's cell, or saved as one HTML file."""

    def __init__(self, rows: GalleryRows, *, title: str, page_size: int, limit: int | None) -> None:
        self.title = title
        self._rows = rows
        self._page_size = page_size
        self._limit = limit

    def __len__(self) -> int:
        """Number of NFTs on the saved page."""
        return len(self._rows.frame.iloc[: self._limit])

    def __repr__(self) -> str:
        total = len(self._rows.frame)
        rest = f" of {total:,}" if total > len(self) else ""
        size = f"{len(self):,}{rest} {self._rows.noun}"
        return f"<Gallery {self.title!r}: {size}; .save(path) writes a page>"

    @cached_property
    def html(self) -> str:
        """The complete page."""
        cards = make_cards(self._rows, self._limit)
        return self._page(cards, _notes(self._rows, len(self), _ADVICE))

    def _repr_html_(self) -> str:
        cards = make_cards(self._rows, self._limit or _IN_NOTEBOOK)
        total = len(cards["token"])
        notes = _notes(self._rows, total, _ADVICE if self._limit else _SAVE_ADVICE)
        document = self._page(cards, notes)
        return part(
            "gallery",
            ident=f"nftsync-gallery-{sha256(document.encode()).hexdigest()[:12]}",
            title=self.title,
            # In single quotes, as the page has fewer of them to escape.
            document=markup(document.replace("&", "&amp;").replace("'", "&#39;")),
            height=_HEIGHT if total else _LOW,
            notes=notes,
            cards=first_cards(cards, _ROWS),
            rest=f"Showing the first {_ROWS} of {total:,}." if total > _ROWS else "",
        )

    def _page(self, cards: dict[str, Texts], notes: list[str], *, embedded: bool = False) -> str:
        data = {
            "count": len(cards["token"]),
            "total": len(self._rows.frame),
            "page_size": self._page_size,
            "embedded": embedded,
            "hidden": int(self._rows.frame.attrs.get("hidden", 0)),
            "traits": make_traits(self._rows.traits, cards["token"]),
            "columns": {name: coded(values) for name, values in cards.items()},
        }
        return page(
            "gallery.html",
            source("theme.css", "gallery.css"),
            "data:" if embedded else image_sources(self._rows.images),
            source("gallery_choice.js", "gallery.js"),
            title=self.title,
            notes=notes,
            order="pictures first" if self._rows.pictures_first else "frame order",
            data=markup(_packed(data)),
        )

    def save(self, path: str | os.PathLike[str], *, embed: bool = False) -> Path:
        """Write the page to a file that only its owner can read, and return its absolute path.

        Replaces a file, and creates a missing folder. With `embed`, downloads the images into the
        page, which then makes no requests. Cards name the reason if an image is not embedded, and a
        warning gives their number.
        """
        target = Path(path).resolve()
        if embed:
            cards, notes = with_embedded(make_cards(self._rows, self._limit), self._rows.images)
            notes = [*_notes(self._rows, len(self), _ADVICE), *notes]
            html = self._page(cards, notes, embedded=True)
        else:
            html = self.html
        with whole_file(target, replace=True) as partial:
            partial.write_text(html, encoding="utf-8", newline="\n")
        return target


def gallery(
    holdings: Any = None,
    *,
    title: str | None = None,
    page_size: int = 60,
    limit: int | None = None,
    hidden: bool = False,
    hide_zero: bool = True,
    pictures_first: bool | None = None,
    ipfs_gateway: str | None = None,
    base_url: str | None = None,
    images: WhichImages = "all",
    traits: pd.DataFrame | None = None,
) -> Gallery:
    """Show NFTs on a page with search and filters: in a notebook, or saved as a file.

    The browser loads images only from `https:` addresses, from IPFS through a gateway, and from the
    provider's own origin. The server of an image, which the NFT's creator chooses, learns who
    views it.

    Args:
        holdings: a database as for `frames.holdings`, or a frame with `token_id` and any other
            column of `frames.holdings`.
        title: the heading.
        page_size: NFTs shown at a time, 1 to 500.
        limit: the most NFTs on the page. None: all in a file, 200,000 in a notebook.
        hidden: include hidden tokens of a database.
        hide_zero: leave out rows with an amount of 0.
        pictures_first: show NFTs with a picture first; None: unless the frame was sorted, so that
            its index does not ascend.
        ipfs_gateway: the URL before IPFS content; None: the configured one.
        base_url: the provider, whose origin may show images; None: the one of a demo's database,
            or else the configured one.
        images: `all`, only the `provider`'s, or `none`.
        traits: a frame of `frames.traits`, to filter by; None: those of a database.

    Returns:
        The gallery, which shows itself at the end of a cell; `.save(path)` writes the page.
    """
    import pandas as pd

    from nftsync.columnar.filters import one_of, whole_number
    from nftsync.columnar.holdings import DATABASE
    from nftsync.frames import holdings as read_holdings
    from nftsync.frames import traits as read_traits

    page_size = whole_number("page_size", page_size, _MOST_PAGE_SIZE)
    if limit is not None:
        limit = whole_number("limit", limit, None)
    one_of(images, "images", get_args(WhichImages))
    if isinstance(holdings, pd.DataFrame):
        frame = holdings
    else:
        frame = with_other_fields(read_holdings(holdings, hidden=hidden), holdings)
        if traits is None:
            with warnings.catch_warnings():  # a gallery without traits has no filters for them
                warnings.simplefilter("ignore", NftsyncWarning)
                traits = read_traits(holdings, hidden=hidden)
    if ipfs_gateway is None or base_url is None:
        configured = configured_images(database=frame.attrs.get(DATABASE))
        ipfs_gateway = ipfs_gateway or configured.gateway
        base_url = base_url or configured.provider
    allowed = Images(ipfs_gateway, base_url, images).checked()
    rows = select_rows(frame, allowed, hide_zero=hide_zero, pictures_first=pictures_first)
    if traits is not None and not {"token_id", "trait_type", "value"} <= {*traits.columns}:
        raise InputError("traits is not a frame of traits; pass traits=frames.traits()")
    rows = rows._replace(traits=traits)
    heading = _TITLE if title is None else clean(title, 200) or _TITLE
    return Gallery(rows, title=heading, page_size=page_size, limit=limit)


# How to see the NFTs that are left out.
_ADVICE = "filter the frame, or raise limit, to see others"
_SAVE_ADVICE = 'save all of them with .save("gallery.html")'


def _notes(rows: GalleryRows, shown: int, advice: str) -> list[str]:
    notes = []
    if len(rows.frame) > shown:
        total = f"{len(rows.frame):,} {rows.noun}"
        notes.append(f"This page contains the first {shown:,} of {total}; {advice}.")
    if rows.zeros:
        notes.append(f"Left out: {rows.zeros:,} with an amount of 0.")
    return notes


def _packed(value: object) -> str:
    """Return compressed JSON in characters without meaning in HTML; deterministic."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")
