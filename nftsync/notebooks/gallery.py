"""The gallery: one page of NFTs, saved as a file or shown in a notebook cell.

Untrusted notebooks and viewers such as GitHub remove frames, styles and scripts. The output
therefore contains a table, too; only a style beside it hides the table and shows the frame.
"""

from __future__ import annotations

import gzip
import json
import os
import warnings
from base64 import b64encode
from functools import cached_property, lru_cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, get_args

from nftsync.errors import InputError, NftsyncWarning
from nftsync.notebooks.gallery_cards import (
    Column,
    GalleryRows,
    clean,
    coded,
    configured_images,
    make_cards,
    make_traits,
    select_rows,
    with_embedded,
)
from nftsync.provider.images import Images, WhichImages, origin
from nftsync.store.contracts import short_address
from nftsync.text import short_id
from nftsync.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

_TITLE = "NFTs"
_MOST_PAGE_SIZE = 500
#: Default limit in a notebook, which stores these NFTs in about 8 MB.
_IN_NOTEBOOK = 200_000


class Gallery:
    """A page of NFTs: shown at the end of a notebook's cell, or saved as one HTML file.

    Attributes:
        title: the heading.
    """

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
        notes = _notes(self._rows, len(cards["token"]), _ADVICE if self._limit else _SAVE_ADVICE)
        return _output(self._page(cards, notes), cards, notes, title=self.title)

    def _embedded_page(self) -> str:
        cards, notes = with_embedded(make_cards(self._rows, self._limit), self._rows.images)
        return self._page(cards, _notes(self._rows, len(self), _ADVICE) + notes, embedded=True)

    def _page(self, cards: dict[str, Column], notes: list[str], *, embedded: bool = False) -> str:
        script = _part("gallery_choice.js") + _part("gallery.js")
        style = _part("gallery.css")
        data = {
            "count": len(cards["token"]),
            "total": len(self._rows.frame),
            "page_size": self._page_size,
            "embedded": embedded,
            "hidden": int(self._rows.frame.attrs.get("hidden", 0)),
            "traits": make_traits(self._rows.traits, cards["token"]),
            "columns": {name: coded(values) for name, values in cards.items()},
        }
        return Template(_part("gallery.html")).substitute(
            policy=_policy(script, style, ["data:"] if embedded else _sources(self._rows.images)),
            title=escape(self.title),
            style=style,
            notes="".join(f'<p class="notes">{escape(note)}</p>' for note in notes),
            order="pictures first" if self._rows.pictures_first else "frame order",
            data=_packed(data),
            script=script,
        )

    def save(self, path: str | os.PathLike[str], *, embed: bool = False) -> Path:
        """Write the page to a file that only its owner can read, and return its absolute path.

        Replaces an existing file, and creates a missing folder.

        Args:
            path: the file.
            embed: download the images into the page, which then makes no requests. Cards name the
                reason if an image is not embedded.

        Raises:
            StoreError: the file cannot be written.
            SettingsError: `embed`, and the settings for downloads cannot be used.
        """
        target = Path(path).resolve()
        page = self._embedded_page() if embed else self.html
        with whole_file(target, replace=True) as partial:
            partial.write_text(page, encoding="utf-8", newline="\n")
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
        holdings: a database as for `frames.holdings` (None: the configured one), or a frame with
            `token_id` and any other column of `frames.holdings`; `collection` is the contract's
            name.
        title: the heading.
        page_size: NFTs shown at a time, 1 to 500.
        limit: the most NFTs on the page, from the first. None: all in a file, 200,000 in a
            notebook.
        hidden: include hidden tokens of a database.
        hide_zero: leave out rows with an amount of 0.
        pictures_first: show NFTs with a picture first; None: unless the frame was sorted, so that
            its index does not ascend.
        ipfs_gateway: the URL before IPFS content; None: the configured one.
        base_url: the provider, whose origin may show images; None: the configured one.
        images: `all`, only the `provider`'s, or `none`.
        traits: a frame of `frames.traits`, to filter by; None: the database's, if `holdings` is
            one.

    Returns:
        The gallery, which shows itself at the end of a cell; `.save(path)` writes the page.

    Raises:
        InputError: an argument or the frame cannot be used.
        StoreError: the database is missing, is not nftsync's or cannot be read.
        SettingsError: no usable database is configured, and none was given.
    """
    import pandas as pd

    from nftsync.columnar.filters import one_of, whole_number
    from nftsync.frames import holdings as read_holdings
    from nftsync.frames import traits as read_traits

    page_size = whole_number("page_size", page_size, _MOST_PAGE_SIZE)
    if limit is not None:
        limit = whole_number("limit", limit, None)
    if ipfs_gateway is None or base_url is None:
        configured = configured_images()
        ipfs_gateway = ipfs_gateway or configured.gateway
        base_url = base_url or configured.provider
    one_of(images, "images", get_args(WhichImages))
    allowed = Images(ipfs_gateway, base_url, images).checked()
    if isinstance(holdings, pd.DataFrame):
        frame = holdings
    else:
        frame = read_holdings(holdings, hidden=hidden)
        if traits is None:
            with warnings.catch_warnings():  # a gallery without traits has no filters for them
                warnings.simplefilter("ignore", NftsyncWarning)
                traits = read_traits(holdings, hidden=hidden)
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
    """Return the notes on NFTs that are left out."""
    notes = []
    if len(rows.frame) > shown:
        total = f"{len(rows.frame):,} {rows.noun}"
        notes.append(f"This page contains the first {shown:,} of {total}; {advice}.")
    if rows.zeros:
        notes.append(f"Left out: {rows.zeros:,} with an amount of 0.")
    return notes


def _sources(images: Images) -> list[str]:
    """Return the sources of images for the page's security policy."""
    own = [] if images.provider is None else [origin(images.provider)]
    everywhere = {site for site in [origin(images.gateway), *own] if not site.startswith("https:")}
    return {"all": ["https:", *sorted(everywhere)], "provider": own, "none": []}[images.which]


def _policy(script: str, style: str, images: list[str]) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            " ".join(["img-src", *(images or ["'none'"])]),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _packed(value: object) -> str:
    """Return compressed JSON in characters without meaning in HTML; deterministic."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


@lru_cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_HEIGHT = 720
#: Height of a page without cards, in pixels.
_LOW = 240
_ROWS = 24
_MOST_NAME = 60
_HEADINGS = ("image", "name", "edition", "amount", "collection", "wallet")


def _output(page: str, cards: dict[str, Column], notes: list[str], *, title: str) -> str:
    """Return a cell's output as HTML; `page` is the complete page."""
    name = f"nftsync-gallery-{sha256(page.encode()).hexdigest()[:12]}"
    # In single quotes, as the page has fewer of them to escape.
    document = page.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<div id="{name}">\n<style>\n{_style(name)}</style>\n'
        f'<iframe hidden title="{escape(title)}" sandbox="allow-scripts" width="100%" '
        f"height=\"{_HEIGHT if cards['token'] else _LOW}\" srcdoc='{document}'></iframe>\n"
        f"{_table(cards, notes, title)}</div>"
    )


def _style(name: str) -> str:
    # A frame without an origin learns the surrounding theme only from its color scheme.
    return (
        f"#{name} > iframe {{ display: block; border: 0; color-scheme: light dark; }}\n"
        f"#{name} > section {{ display: none; }}\n"
        f'[data-jp-theme-light="true"] #{name} > iframe {{ color-scheme: light; }}\n'
        f'[data-jp-theme-light="false"] #{name} > iframe {{ color-scheme: dark; }}\n'
    )


def _table(cards: dict[str, Column], notes: list[str], title: str) -> str:
    total = len(cards["token"])
    shown = min(total, _ROWS)
    rows = "".join(_row(cards, nft) for nft in range(shown))
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    note_lines = "".join(f"<p>{escape(note)}</p>" for note in notes)
    rest = f"Showing the first {shown:,} of {total:,}. " if total > shown else ""
    return (
        # Not a heading element, which JupyterLab would list in the table of contents.
        f"<section><p><b><bdi>{escape(title)}</bdi></b></p>{note_lines}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{rest}Trust this notebook to search, sort and page.</p></section>"
    )


def _row(cards: dict[str, Column], nft: int) -> str:
    def value(name: str) -> str | None:
        return cards[name][nft] if name in cards else None

    contract, wallet, chain = value("contract"), value("wallet"), value("chain")
    unnamed = "Unnamed" if chain is None else f"Unnamed {short_id(chain)}"
    cells = (
        _picture(value("image"), value("problem")),
        _own(clean(value("name") or unnamed, _MOST_NAME)),
        _own(_edition(value("edition"), value("editions"))),
        _own(clean(value("amount") or "", _MOST_NAME)),
        _own(value("collection") or (contract and short_address(contract))),
        _own(value("label") or (wallet and short_id(wallet))),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _picture(url: str | None, problem: str | None) -> str:
    if url is None:
        return "no image" if problem is None else f"not shown: {escape(problem)}"
    return (
        f'<img src="{escape(url)}" alt="image" width="72" height="72" '
        'loading="lazy" decoding="async" referrerpolicy="no-referrer">'
    )


def _edition(number: str | None, total: str | None) -> str | None:
    if number in {None, "0"}:
        return None
    return number if total is None else f"{number} of {total}"


def _own(text: str | None) -> str:
    return "" if text is None else f"<bdi>{escape(text)}</bdi>"
