"""NFTs to look through: one page that is saved as a file or shown in a notebook's cell.

Notebooks that are not trusted, and sites that show them, take frames, styles and scripts out of
an output. So the output holds both a frame with the page and a table: the frame is hidden until
the style beside it shows it, and the table stands there until that style hides it.
"""

from __future__ import annotations

import json
import os
import warnings
from base64 import b64encode
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from uuid import uuid4

from nftsync import settings
from nftsync.errors import InputError, SettingsError
from nftsync.lab.gallery_cards import Cards, Column, Images, cards_of, clean
from nftsync.provider.images import DEFAULT_GATEWAY, origin

__all__ = ["Gallery", "gallery"]

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
    import pandas as pd

    from nftsync.frames import holdings as read_holdings

    _check("page_size", page_size, _MOST_PAGE_SIZE)
    _check("limit", limit, None)
    gateway, provider = ipfs_gateway, base_url
    if gateway is None or provider is None:
        configured = _image_sources()
        gateway, provider = gateway or configured[0], provider or configured[1]
    for url in (gateway, provider):
        if url is not None:
            origin(url)
    images = Images(gateway, provider)
    frame = holdings if isinstance(holdings, pd.DataFrame) else read_holdings(holdings)
    cards = cards_of(frame, images, limit=limit, hide_zero=hide_zero)
    heading = _TITLE if title is None else clean(title, 200) or _TITLE
    return Gallery(cards, images, title=heading, page_size=page_size)


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


#: What could end the script element that holds the data, or begin a comment in it.
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def page(cards: Cards, images: Images, *, title: str, page_size: int) -> str:
    """Write the page.

    Args:
        cards: what it shows.
        images: where images may come from.
        title: its heading.
        page_size: NFTs in the document at a time.
    """
    script, style = _part("gallery.js"), _part("gallery.css")
    data = {
        "count": len(cards),
        "page_size": page_size,
        "columns": {name: _coded(values) for name, values in cards.columns.items()},
    }
    said = "".join(f'<p class="notes">{escape(note)}</p>' for note in notes(cards))
    return Template(_part("gallery.html")).substitute(
        policy=_policy(script, style, images),
        title=escape(title),
        style=style,
        notes=said,
        data=_json(data),
        script=script,
    )


def notes(cards: Cards) -> list[str]:
    """Say what was left out."""
    said = []
    if cards.total > len(cards):
        said.append(
            f"The first {len(cards):,} of {cards.total:,} {cards.noun}; "
            "filter the frame, or raise limit, to see others."
        )
    if cards.zeros:
        said.append(f"{cards.zeros:,} with an amount of 0 left out.")
    return said


def _policy(script: str, style: str, images: Images) -> str:
    known = [images.gateway, *([] if images.provider is None else [images.provider])]
    plain = {source for source in map(origin, known) if not source.startswith("https:")}
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            " ".join(["img-src https:", *sorted(plain)]),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _coded(values: Column) -> Column | dict[str, list[int] | Column]:
    """List each distinct value once where many are the same."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) * 2 > len(values):
        return values
    place = {value: number for number, value in enumerate(distinct)}
    return {"of": distinct, "at": [place[value] for value in values]}


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_IN_SCRIPT)


@lru_cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_HEIGHT = 720
_ROWS = 24
_MOST_NAME = 60
_HEADINGS = ("image", "name", "edition", "amount", "collection", "wallet")


def output(page: str, cards: Cards, *, title: str) -> str:
    """Write the output of a cell.

    Args:
        page: the page, whole.
        cards: what it shows.
        title: its heading.
    """
    name = f"nftsync-gallery-{sha256(page.encode()).hexdigest()[:12]}"
    # In single quotes: the page's data is full of double ones, which then stay as they are.
    document = page.replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<div id="{name}">\n<style>\n{_style(name)}</style>\n'
        f'<iframe hidden title="{escape(title)}" sandbox="allow-scripts" width="100%" '
        f"height=\"{_HEIGHT}\" srcdoc='{document}'></iframe>\n"
        f"{_table(cards, title)}</div>"
    )


def _style(name: str) -> str:
    # A frame without an origin cannot ask what theme surrounds it; its color scheme tells it.
    return (
        f"#{name} > iframe {{ display: block; border: 0; color-scheme: light dark; }}\n"
        f"#{name} > section {{ display: none; }}\n"
        f'[data-jp-theme-light="true"] #{name} > iframe {{ color-scheme: light; }}\n'
        f'[data-jp-theme-light="false"] #{name} > iframe {{ color-scheme: dark; }}\n'
    )


def _table(cards: Cards, title: str) -> str:
    shown = min(len(cards), _ROWS)
    rows = "".join(_row(cards, nft) for nft in range(shown))
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    said = "".join(f"<p>{escape(note)}</p>" for note in notes(cards))
    rest = f"The first {shown:,} of {len(cards):,}. " if len(cards) > shown else ""
    return (
        # No heading element: JupyterLab would list it among the notebook's own.
        f"<section><p><b><bdi>{escape(title)}</bdi></b></p>{said}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{rest}Trust this notebook to search, sort and page through them.</p></section>"
    )


def _row(cards: Cards, nft: int) -> str:
    def value(name: str) -> str | None:
        column = cards.columns.get(name)
        return None if column is None else column[nft]

    cells = (
        _picture(value("image"), value("problem")),
        _own(clean(value("name") or _unnamed(value("chain")), _MOST_NAME)),
        _own(_edition(value("edition"), value("editions"))),
        _own(clean(value("amount") or "", _MOST_NAME)),
        _own(value("collection") or _short(value("contract"))),
        _own(value("label") or _short(value("wallet"))),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _unnamed(chain: str | None) -> str:
    return "Unnamed" if chain is None else f"Unnamed {_short(chain)}"


def _short(name: str | None) -> str | None:
    return name if name is None or len(name) <= 20 else f"{name[:8]}…{name[-6:]}"


def _picture(url: str | None, problem: str | None) -> str:
    if url is None:
        return "no image" if problem is None else f"not shown: {escape(problem)}"
    return (
        f'<img src="{escape(url)}" alt="image" width="72" height="72" '
        'loading="lazy" decoding="async" referrerpolicy="no-referrer">'
    )


def _edition(number: str | None, total: str | None) -> str | None:
    if number is None:
        return None if total is None else f"edition of {total}"
    return f"#{number}" if total is None else f"#{number} of {total}"


def _own(text: str | None) -> str:
    return "" if text is None else f"<bdi>{escape(text)}</bdi>"
