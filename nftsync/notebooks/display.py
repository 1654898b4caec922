"""Display of results in notebooks: frames, figures, tables, pictures and charts."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from functools import partial
from html import escape
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.errors import NftsyncError, NftsyncWarning
from nftsync.notebooks.database import provider_address
from nftsync.notebooks.gallery_cards import addresses, configured_images
from nftsync.text import MISSING, lasting, visible, without_controls
from nftsync.times import parse_time

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell
    from plotly.graph_objects import Figure


_MIMETYPE = "plotly_mimetype"

#: Charts are as wide as the window, which paper would cut off: 620 pixels fit A4 and Letter.
_PRINTED = """
const resize = (width) => document.querySelectorAll(".js-plotly-plot").forEach(
  (chart) => Plotly.relayout(chart, {width: width, autosize: width === null}));
window.addEventListener("beforeprint", () => resize(620));
window.addEventListener("afterprint", () => resize(null));
"""
_ON_PAPER = """@media print {
  h2 { break-after: avoid }
  .js-plotly-plot, .nftsync-pictures > div, tr { break-inside: avoid }
  .nftsync-table td { white-space: normal !important }
}"""


def begin_charts() -> None:
    """Insert plotly's script into the page, once, before the first chart.

    Raises:
        NftsyncError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise NftsyncError("charts need plotly: pip install 'nftsync[notebook]'") from error
    script = f"<script>{get_plotlyjs()}\n{_PRINTED}</script>"
    _display({"text/html": f"{script}<style>{_ON_PAPER}</style>"})


def show_chart(figure: Figure) -> None:
    """Show a plotly figure, in JupyterLab and in pages made by nbconvert."""
    import plotly.io

    bundle = plotly.io.renderers[_MIMETYPE].to_mimebundle(figure.to_dict())
    page = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        include_mathjax=False,
        default_height=f"{figure.layout.height or _HEIGHT}px",
    )
    _display({**bundle, "text/html": page})


#: plotly's default height, in pixels.
_HEIGHT = 450


def show_heading(topic: str, answer: str) -> None:
    """Show a heading and its answer, as in `Changes: 71 transfers`."""
    _display_html(f"<h2>{escape(topic)}: {escape(without_controls(answer))}</h2>")


#: The most characters of a text.
_WIDTH = 120
#: The most characters of a cell that never wraps: times, ids, most names.
_UNBROKEN = 24
_NO_BREAK = "; white-space: nowrap"


def show_table(frame: pd.DataFrame, most: int = 10, *, none: str = "None.") -> None:
    """Show the first rows of a frame as a table, and count the rest.

    Leaves out ids beside a column with names. The text `none` replaces an empty table.
    """
    from nftsync.columnar.columns import IDS_NAMED
    from nftsync.frames import brief

    if frame.empty:
        _display_html(f"<p>{escape(none)}</p>")
        return
    head = frame.head(most)
    lengths = head.select_dtypes("timedelta")
    rows = brief(
        head.assign(**{name: lengths[name].map(_age) for name in lengths}), width=_WIDTH, all=True
    )
    named = [ids for names, ids in IDS_NAMED.items() if names in rows.columns]
    rows = rows.drop(columns=chain(*named), errors="ignore")
    shown = [_texts(rows[name]) for name in rows.columns]
    numeric = [_are_numbers(head[name]) for name in rows.columns]
    heads = [_HEADS.get(name, str(name).replace("_", " ")) for name in rows.columns]
    table = _table(heads, shown, numeric)
    rest = len(frame) - len(rows)
    more = f"<p>{rest:,} more rows are not shown.</p>" if rest else ""
    _display_html(table + more)


#: Headings for columns of names or ids.
_HEADS = {
    "wallet_label": "wallet",
    "label": "wallet",
    "wallet_id": "wallet",
    "name": "NFT",
    "token_id": "NFT",
    "from_label": "from",
    "from_wallet_id": "from",
    "to_label": "to",
    "to_wallet_id": "to",
}


def _are_numbers(column: pd.Series) -> bool:
    values = column.dropna()
    return all(isinstance(value, Number) and not isinstance(value, bool) for value in values)


def _table(heads: list[str], columns: list[list[str]], right: list[bool], size: str = "") -> str:
    """Return an HTML table with numbers aligned right; it scrolls in a narrow window."""
    sides = [f"text-align: {'right' if is_right else 'left'}{size}" for is_right in right]
    head = "".join(
        f'<th style="{side}{_NO_BREAK}">{escape(name)}</th>'
        for side, name in zip(sides, heads, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td style="{side}{_NO_BREAK if len(cell) <= _UNBROKEN else ""}">{escape(cell)}</td>'
            for side, cell in zip(sides, cells, strict=True)
        )
        + "</tr>\n"
        for cells in zip(*columns, strict=True)
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody>\n</table>"
    return f'<div class="nftsync-table" style="overflow-x: auto">{table}</div>'


def _texts(column: pd.Series) -> list[str]:
    """Format a column's values; shares are in percent."""
    is_share = re.fullmatch("(?:.+_)?share", str(column.name)) is not None
    return [
        _percent(value) if is_share and isinstance(value, float) else _text(value)
        for value in column.astype(object)
    ]


def _percent(share: float) -> str:
    if math.isnan(share):
        return MISSING
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _text(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "<0.001" if 0 < value < 0.0005 else f"{value:,.3f}"
    return without_controls(str(value)) or MISSING


def _age(length: pd.Timedelta) -> str:
    import pandas as pd

    return MISSING if pd.isna(length) else lasting(length.total_seconds())


def show_figures(figures: Mapping[str, object], *, none: str = "None.") -> None:
    """Show a few texts or numbers in large type, each below its name."""
    if not figures:
        _display_html(f"<p>{escape(none)}</p>")
        return
    texts = [[_text(value)] for value in figures.values()]
    size = "; font-size: 1.5em; padding-right: 1.2em"
    _display_html(_table(list(figures), texts, [False] * len(texts), size))


def headline(db: Path, holdings: pd.DataFrame) -> dict[str, object]:
    """Return the main figures: NFTs, collections, holding wallets, age of reads, problems."""
    from nftsync import frames

    current = holdings[holdings["held_since"].notna()]
    fresh = frames.freshness(db).set_index("what")
    (oldest,) = fresh.loc[["oldest wallet read"], "age"]
    problems = {name: int(fresh.loc[lines, "count"].sum()) for name, lines in _PROBLEMS.items()}
    return {
        "NFTs": current["token_id"].nunique(),
        "collections": current["contract"].nunique(),
        "wallets holding them": current["wallet_id"].nunique(),
        "all wallets read within": _age(oldest),
        **{name: total for name, total in problems.items() if total},
    }


#: Problems, and the lines of `frames.freshness` that count them.
_PROBLEMS = {
    "wallets not fully read": ["wallets never read", "failed wallets", "incomplete wallets"],
    "stuck webhooks": ["webhooks failed", "webhooks dead", "webhooks unrouted"],
}


def window_start(db: Path, start: str | None = None) -> pd.Timestamp:
    """Return the start of the period to compare with the present.

    Args:
        db: the database.
        start: a time; a date means its end. None: 30 days ago, or the end of the first sync if
            later.
    """
    import pandas as pd

    from nftsync import frames

    if start is not None:
        return pd.Timestamp(parse_time(start, "end"))

    now = pd.Timestamp.now("UTC").floor("s")
    runs = frames.runs(db)
    first = runs.loc[runs["kind"] == "sync", "finished_at"].min()
    return now if pd.isna(first) else max(first, now - pd.Timedelta(days=30))


#: Eight cards fill their rows at most widths.
_PICTURES = 8
_CARD = "display: inline-block; width: 140px; margin: 0 10px 14px 0; vertical-align: top"
_SIZE = "width: 140px; height: 140px; border-radius: 6px"
_TILE = f"{_SIZE}; position: relative; box-sizing: border-box; padding: 8px; background: #8883"
_PICTURE = f"{_SIZE}; position: absolute; inset: 0; object-fit: cover; background: Canvas"
_LINE = "font-size: 0.85em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap"


def show_pictures(frame: pd.DataFrame, db: Path) -> None:
    """Show the first NFTs that have an allowed picture, with their names and captions.

    Args:
        frame: has `token_id`, `name`, `image`, and the caption lines in `about`.
        db: the database, whose provider's pictures are allowed.
    """
    from nftsync.frames import brief

    images = configured_images()._replace(provider=provider_address(db))
    nfts = frame.drop_duplicates("token_id")
    nfts = nfts.assign(url=[address.url for address in addresses(nfts, images)])
    nfts = nfts[nfts["url"].notna()].head(_PICTURES)
    if nfts.empty:
        return
    # The id replaces a missing name.
    names = _texts(brief(nfts[["name", "token_id"]], width=_WIDTH)["name"])
    shown = [
        f'<div style="{_CARD}"><div style="{_TILE}">The picture did not load.'
        f'<img src="{escape(url)}" alt="" style="{_PICTURE}" referrerpolicy="no-referrer"'
        f' onerror="this.remove()"></div><b><bdi>{escape(name)}</bdi></b>'
        + "".join(f'<div style="{_LINE}"><bdi>{escape(line)}</bdi></div>' for line in about)
        + "</div>"
        for url, name, about in zip(nfts["url"], names, nfts["about"], strict=True)
    ]
    _display_html(f'<div class="nftsync-pictures">{"".join(shown)}</div>')


def captions(transfers: pd.DataFrame) -> list[list[str]]:
    """Return the caption lines of each transfer: `from Auctions`, `to Treasury`."""
    from nftsync.frames import brief

    sides = []
    for side in ("from", "to"):
        ids = f"{side}_wallet_id"
        shown = brief(transfers[[f"{side}_label", ids]])
        # The ids replace the labels if no wallet has one.
        names = shown[shown.columns[0]] if len(shown.columns) else transfers[ids]
        present = transfers[ids].notna()
        sides.append(
            [f"{side} {name}" if shown else "" for name, shown in zip(names, present, strict=True)]
        )
    return [list(filter(None, both)) for both in zip(*sides, strict=True)]


def _display_html(page: str) -> None:
    _display({"text/html": page})


def _display(forms: dict[str, Any]) -> None:
    from IPython.display import display

    display(forms, raw=True)  # type: ignore[no-untyped-call]


# `%load_ext nftsync` ----------------------------------------------------------------------

#: Cells never wrap, stacked marks stay within their cell, and `$` does not start mathematics.
_STYLE = "<style>table.nftsync-rows :is(td, th) { white-space: nowrap; overflow: clip }</style>"
_CLASSES = "nftsync-rows tex2jax_ignore mathjax_ignore"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Show frames with one line per row, and warnings on one line; called by `%load_ext nftsync`.

    Frames with their own display keep it.
    """
    import pandas as pd

    _formatter(shell).for_type(pd.DataFrame, _html)
    warnings.showwarning = partial(_show_warning, warnings.showwarning)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Restore the display of frames and warnings; called by `%unload_ext nftsync`."""
    import pandas as pd

    _formatter(shell).pop(pd.DataFrame, None)
    hook: Any = warnings.showwarning
    if isinstance(hook, partial) and hook.func is _show_warning:
        (warnings.showwarning,) = hook.args


def _formatter(shell: InteractiveShell) -> Any:
    display: Any = shell.display_formatter
    return display.formatters["text/html"]


def _show_warning(
    fallback: Any, message: Warning | str, category: type[Warning], *where: Any
) -> None:
    """Print nftsync's warnings without the line of code."""
    if issubclass(category, NftsyncWarning):
        text = visible(str(message))
        click.echo(f"{text[:1].upper()}{text[1:]}.")
    else:
        fallback(message, category, *where)


def _html(frame: pd.DataFrame) -> str | None:
    """Return pandas' HTML without line breaks in cells; None for plain text."""
    import pandas as pd

    page: str | None = frame._repr_html_()
    if page is None or type(frame)._repr_html_ is not pd.DataFrame._repr_html_:
        return page
    # The first match is the table's own tag, as cells are escaped.
    return _STYLE + page.replace('class="dataframe"', f'class="dataframe {_CLASSES}"', 1)
