"""What a notebook shows: the page in a frame of its own, or a table where frames are not trusted.

Notebooks that are not trusted, and sites that show them, take frames, styles and scripts out of
an output. So the output holds both: the frame is hidden until the style beside it shows it, and
the table stands there until that style hides it.
"""

from __future__ import annotations

from hashlib import sha256
from html import escape

from nftsync.gallery_page._cards import Cards
from nftsync.gallery_page._clean import clean
from nftsync.gallery_page._page import notes

__all__ = ["output"]

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
