"""What the report needs to become one page that draws without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nftsync.errors import NftsyncError

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["begin_charts", "short_times", "show_chart", "show_table"]


def short_times(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose times are cut to the second and no longer say that they are UTC; for reading.

    Args:
        frame: any frame; it stays as it is.

    Returns:
        A copy with the same rows and columns, of the same type.
    """
    times = frame.select_dtypes("datetimetz")
    shown = frame.assign(
        **{name: times[name].dt.floor("s").dt.tz_localize(None) for name in times.columns}
    )
    # What is made of a frame that shows itself in its own way is a plain one.
    kind: type[pd.DataFrame] = type(frame)
    return kind(shown)


_MIMETYPE = "plotly_mimetype"


def begin_charts() -> None:
    """Put plotly's script into the page, once, before the first chart.

    Raises:
        NftsyncError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise NftsyncError("charts need plotly: pip install 'nftsync[notebook]'") from error
    _display({"text/html": f"<script>{get_plotlyjs()}</script>"})


def show_chart(figure: Figure) -> None:
    """Show a chart in JupyterLab, and in the page that nbconvert makes.

    nbconvert draws nothing of what JupyterLab draws from, so the output holds both.

    Args:
        figure: from `nftsync.charts`, or any figure of plotly.
    """
    import plotly.io

    bundle = plotly.io.renderers[_MIMETYPE].to_mimebundle(figure.to_dict())
    page = figure.to_html(full_html=False, include_plotlyjs=False, include_mathjax=False)
    _display({**bundle, "text/html": page})


def show_table(frame: pd.DataFrame, most: int = 40) -> None:
    """Show a frame without its index, and tell how many rows were left out.

    Times are cut to the second, and UTC as all of nftsync's are.

    Args:
        frame: any frame; what it holds is escaped.
        most: how many rows are shown.
    """
    if frame.empty:
        _display({"text/html": "<p>None.</p>"})
        return
    head = frame.head(most)
    shown = head.apply(_as_text) if len(head.columns) else head
    table = shown.to_html(index=False, border=0)
    rest = len(frame) - most
    more = f"<p>{rest:,} more rows are not shown.</p>" if rest > 0 else ""
    _display({"text/html": table + more})


def _as_text(column: pd.Series) -> pd.Series:
    """A column as objects, so that what is missing is an empty cell."""
    if column.dtype.kind == "M":
        column = column.dt.strftime("%Y-%m-%d %H:%M:%S")
    elif column.dtype.kind == "m":
        column = column.dt.floor("s")
    whole = column.astype(object)
    return whole.where(whole.notna(), "")


def _display(forms: dict[str, Any]) -> None:
    """Show one thing in the form that its reader knows best."""
    from IPython.display import display

    display(forms, raw=True)  # type: ignore[no-untyped-call]
