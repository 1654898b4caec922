"""Display of results in notebooks: frames, figures, tables, pictures and charts."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from html import escape
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync.errors import NftsyncWarning
from nftsync.text import MISSING, lasting, visible, without_controls
from nftsync.times import parse_time

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell
    from plotly.graph_objects import Figure


_MIMETYPE = "plotly_mimetype"


def show_chart(figure: Figure) -> None:
    """Show a plotly figure, in JupyterLab and in pages made by nbconvert."""
    import plotly.io

    bundle = plotly.io.renderers[_MIMETYPE].to_mimebundle(figure.to_dict())
    page = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        include_mathjax=False,
        config={"responsive": True},
        default_height=f"{figure.layout.height or _HEIGHT}px",
    )
    _display({**bundle, "text/html": page})


#: plotly's default height, in pixels.
_HEIGHT = 450


def show_heading(heading: str, text: str = "") -> None:
    """Show a heading and a sentence below it."""
    lead = f"<p>{escape(without_controls(text))}</p>" if text else ""
    display_html(f"<h2>{escape(heading)}</h2>{lead}")


#: The most characters of a text.
_WIDTH = 120
#: The most characters of a cell that never wraps: times, ids, most names.
_UNBROKEN = 24
_NO_BREAK = "; white-space: nowrap"


def show_table(
    frame: pd.DataFrame, most: int = 10, *, none: str = "None.", total: bool = False
) -> None:
    """Show the first rows of a frame as a table, and count the rest.

    Leaves out ids beside a column with names. The text `none` replaces an empty table; with
    `total`, the last row is a total.
    """
    from nftsync.columnar.columns import IDS_NAMED
    from nftsync.frames import brief

    if frame.empty:
        if none:
            display_html(f"<p>{escape(none)}</p>")
        return
    head = frame.head(most)
    lengths = head.select_dtypes("timedelta")
    texts = {name: lengths[name].map(_age) for name in lengths}
    for name in head.columns[[isinstance(one, Decimal) for one in head.iloc[0]]]:
        texts[name] = head[name].map(exact_text)
    rows = brief(head.assign(**texts), width=_WIDTH, all=True)
    named = [ids for names, ids in IDS_NAMED.items() if names in rows.columns]
    rows = rows.drop(columns=chain(*named), errors="ignore")
    shown = [_texts(rows[name]) for name in rows.columns]
    numeric = [_are_numbers(head[name]) for name in rows.columns]
    heads = [_HEADS.get(name, str(name).replace("_", " ")) for name in rows.columns]
    table = _table(heads, shown, numeric, kind=" nftsync-total" * total)
    rest = len(frame) - len(rows)
    more = f"<p>{rest:,} more rows are not shown.</p>" if rest else ""
    display_html(table + more)


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


def _table(
    heads: list[str], columns: list[list[str]], right: list[bool], size: str = "", kind: str = ""
) -> str:
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
    return f'<div class="nftsync-table{kind}" style="overflow-x: auto">{table}</div>'


def _texts(column: pd.Series) -> list[str]:
    """Format a column's values; shares are in percent, and changes have a sign."""
    if column.name == "change":
        return [f"{value:+,}" if value else "±0" for value in column]
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


def exact_text(number: int | Decimal) -> str:
    """Return an exact number with separators; more than two decimals do not end in zeros."""
    if isinstance(number, int):
        return f"{number:,}"
    whole, point, decimals = f"{number:,f}".partition(".")
    return f"{whole}{point}{decimals[:2]}{decimals[2:].rstrip('0')}"


def _age(length: pd.Timedelta) -> str:
    import pandas as pd

    return MISSING if pd.isna(length) else lasting(length.total_seconds())


def show_figures(figures: Mapping[str, object], *, none: str = "None.") -> None:
    """Show a few texts or numbers in large type, each below its name."""
    if not figures:
        display_html(f"<p>{escape(none)}</p>")
        return
    texts = [[_text(value)] for value in figures.values()]
    size = "; font-size: 1.5em; padding-right: 1.2em"
    display_html(_table(list(figures), texts, [False] * len(texts), size))


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


def window_start(
    db: Path, start: str | None = None, end: pd.Timestamp | None = None
) -> pd.Timestamp:
    """Return the start of a period.

    Args:
        db: the database.
        start: a time; a date means its end. None: 30 days before the end, or the end of the first
            sync if later.
        end: the end of the period; None is now.
    """
    import pandas as pd

    from nftsync import frames

    if start is not None:
        return pd.Timestamp(parse_time(start, "end"))

    now = end or pd.Timestamp.now("UTC").floor("s")
    runs = frames.runs(db)
    first = runs.loc[runs["kind"] == "sync", "finished_at"].min()
    return now if pd.isna(first) else max(first, now - pd.Timedelta(days=30))


def display_html(page: str) -> None:
    """Show HTML as the output of a cell."""
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
