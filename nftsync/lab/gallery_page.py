"""What a notebook shows: the page in a frame of its own, or a table where frames are not trusted.

Notebooks that are not trusted, and sites that show them, take frames, styles and scripts out of
an output. So the output holds both: the frame is hidden until the style beside it shows it, and
the table stands there until that style hides it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from nftsync.lab.gallery import Cards, Column, Images, clean
from nftsync.provider.images import origin

__all__ = ["notes", "output", "page"]


#: What could end the script element that holds the data, or begin a comment in it.
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}

_SORTS = (
    ("", "as given", ""),
    ("name", "name", "name"),
    ("collection", "collection", "collection contract"),
    ("wallet", "wallet", "wallet label"),
    ("edition", "edition", "edition"),
    ("amount", "amount", "amount"),
    ("held", "held since", "held"),
)
_STEPS = (
    ("first", "First page", "«"),
    ("previous", "Previous page", "‹"),
    ("next", "Next page", "›"),
    ("last", "Last page", "»"),
)


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
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script, style, images)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1><bdi>{escape(title)}</bdi></h1>
{said}
</header>
{_bar()}
<main>
<p class="status" id="status" role="status"></p>
<ul class="grid" id="grid" role="list" aria-label="NFTs"></ul>
<p class="nothing" id="nothing" hidden>Nothing found.</p>
</main>
<noscript><p class="nothing">This page needs JavaScript to show its NFTs.</p></noscript>
<script type="application/json" id="data">{_json(data)}</script>
<script>{script}</script>
</body>
</html>
"""


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


def _bar() -> str:
    options = "".join(
        f'<option value="{value}" data-of="{needs}">{label}</option>'
        for value, label, needs in _SORTS
    )
    buttons = [
        f'<button type="button" data-step="{step}" aria-label="{label}">{sign}</button>'
        for step, label, sign in _STEPS
    ]
    place = '<span class="place" id="place"></span>'
    return f"""<div class="bar" role="search">
<input id="search" type="search" autocomplete="off" spellcheck="false"
 aria-label="Search names, creators, collections, wallets and ids"
 placeholder="Search name, creator, collection, wallet, id">
<div class="sorting">
<label for="sort">Sort</label>
<select id="sort" aria-label="Sort by">{options}</select>
<button id="turn" type="button" aria-pressed="false" aria-label="Descending"
 title="Turn the order round">↑</button>
</div>
<nav class="paging" aria-label="Pages">{"".join((*buttons[:2], place, *buttons[2:]))}</nav>
</div>"""


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
