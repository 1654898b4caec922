"""Display of results in notebooks."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from itertools import chain
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pandas as pd

from nftsync import frames
from nftsync.columnar.columns import NAMED
from nftsync.columnar.inputs import load_holdings
from nftsync.errors import NftsyncWarning
from nftsync.notebooks.pages import part
from nftsync.text import MISSING, lasting, sentence, visible, without_controls
from nftsync.times import parse_time

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from plotly.graph_objects import Figure


def show_chart(figure: Figure) -> None:
    """Show a plotly figure, also in nbconvert's pages."""
    import plotly.io

    bundle = plotly.io.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict())
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
    display_html(part("heading", heading=heading, text=text))


def show_lines(*texts: str) -> None:
    """Show paragraphs, without the empty ones."""
    if html := part("lines", texts=filter(None, texts)):
        display_html(html)


#: The most characters of a text.
_WIDTH = 120


def show_table(
    frame: pd.DataFrame, most: int = 10, *, none: str = "None.", total: bool = False
) -> None:
    """Show the first rows of a frame as a table, and count the rest.

    Drops columns of ids and labels that have a column of names. `none` replaces an empty table;
    with `total`, the last row is a total.
    """
    if frame.empty:
        show_lines(none)
        return
    head = frame.head(most)
    lengths = head.select_dtypes("timedelta")
    texts = {name: lengths[name].map(_age) for name in lengths}
    for name in head.columns[[isinstance(one, Decimal) for one in head.iloc[0]]]:
        texts[name] = head[name].map(exact_text)
    rows = frames.brief(head.assign(**texts), width=_WIDTH, all=True)
    named = [columns for name, columns in NAMED.items() if name in rows.columns]
    rows = rows.drop(columns=chain(*named), errors="ignore")
    rows = rows[head.columns.intersection(rows.columns, sort=False)]
    cells = [_texts(rows[name]) for name in rows.columns]
    table = part(
        "table",
        heads=[_HEADS.get(name, str(name).replace("_", " ")) for name in rows.columns],
        rows=zip(*cells, strict=True),
        numeric=[_are_numbers(head[name]) for name in rows.columns],
        rest=len(frame) - len(rows),
        total=total,
    )
    display_html(table)


#: Headings for columns of names.
_HEADS = {"nft": "NFT", "from_wallet": "from", "to_wallet": "to"}


def _are_numbers(column: pd.Series) -> bool:
    values = column.dropna()
    return all(isinstance(value, Number) and not isinstance(value, bool) for value in values)


def _texts(column: pd.Series) -> list[str]:
    """Format a column's values; shares are in percent, and changes have a sign."""
    if column.name == "change":
        return [_change(value) for value in column]
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
    if pd.isna(value):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal):
        return exact_text(value)
    if isinstance(value, float):
        return "<0.001" if 0 < value < 0.0005 else f"{value:,.3f}".replace("-", _MINUS)
    return without_controls(str(value)) or MISSING


_MINUS = "\N{MINUS SIGN}"


def exact_text(number: int | Decimal) -> str:
    """Return an exact number with separators, and zeros only in its first two decimals."""
    if isinstance(number, int):
        return f"{number:,}".replace("-", _MINUS)
    whole, point, decimals = f"{number:,f}".replace("-", _MINUS).partition(".")
    return f"{whole}{point}{decimals[:2]}{decimals[2:].rstrip('0')}"


def _age(length: pd.Timedelta) -> str:
    return MISSING if pd.isna(length) else lasting(length.total_seconds())


def show_figures(
    figures: Mapping[str, Any], before: Mapping[str, Any] | None = None, *, none: str = "None."
) -> None:
    """Show texts or numbers in large type, their changes, and what they count."""
    changes = {} if before is None else {name: figures[name] - before[name] for name in figures}
    texts = [
        (name, _text(value), _change(changes[name]) if changes else "", _MEANINGS.get(name))
        for name, value in figures.items()
    ]
    if texts:
        display_html(part("figures", figures=texts))
    else:
        show_lines(none)


def _change(number: Any) -> str:
    return f"{'+' if number > 0 else '−'}{exact_text(abs(number))}" if number else "±0"


#: What the main figures count.
_MEANINGS = {
    "NFTs": "distinct tokens held",
    "collections": "contracts of these NFTs",
    "holding wallets": "wallets that hold an NFT",
    "holdings": "pairs of wallet and NFT",
    "total amount": "sum of all amounts",
}


def holding_figures(holdings: pd.DataFrame) -> dict[str, int]:
    """Return the main figures of holdings."""
    rows = load_holdings(holdings, needs=("wallet_id", "token_id", "contract"))
    return {
        "NFTs": rows["token_id"].nunique(),
        "collections": rows["contract"].nunique(),
        "holding wallets": rows["wallet_id"].nunique(),
        "holdings": len(rows),
        "total amount": sum(rows["amount"].dropna()),
    }


def headline(db: Path, holdings: pd.DataFrame) -> dict[str, object]:
    """Return the main figures of holdings, the age of reads, and the number of problems."""
    fresh = frames.freshness(db).set_index("what")
    (oldest,) = fresh.loc[["oldest wallet read"], "age"]
    problems = {name: int(fresh.loc[lines, "count"].sum()) for name, lines in _PROBLEMS.items()}
    return {
        **holding_figures(holdings),
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
    """Return the start of a period: a time (a date: its end).

    None: 30 days before the end (None: now), or the end of the first sync if later.
    """
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

#: Cells never wrap, combining characters stay within their cell, and `$` starts no mathematics.
_STYLE = "<style>table.nftsync-rows :is(td, th) { white-space: nowrap; overflow: clip }</style>"
_CLASSES = "nftsync-rows tex2jax_ignore mathjax_ignore"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Show frames with one line per row, and warnings on one line; called by `%load_ext nftsync`.

    Frames with their own display keep it.
    """
    _formatter(shell).for_type(pd.DataFrame, _html)
    warnings.showwarning = partial(_show_warning, warnings.showwarning)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Restore the display of frames and warnings; called by `%unload_ext nftsync`."""
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
    if issubclass(category, NftsyncWarning):
        click.echo(sentence(visible(str(message))))
    else:
        fallback(message, category, *where)


def _html(frame: pd.DataFrame) -> str | None:
    """Return pandas' HTML without line breaks in cells; None if pandas shows text."""
    page: str | None = frame._repr_html_()
    if page is None or type(frame)._repr_html_ is not pd.DataFrame._repr_html_:
        return page
    # The first match is the table's own tag, as cells are escaped.
    return _STYLE + page.replace('class="dataframe"', f'class="dataframe {_CLASSES}"', 1)
