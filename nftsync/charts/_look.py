"""What all charts have in common: readable on a light and on a dark page, and without the internet.

Text and grid are of the grey that stands out as much from white as from JupyterLab's dark
`#111111`: 4.3:1 from each, which is the most that one colour can have from both. What is drawn has
at least 3:1 from both, in the hues of Okabe and Ito, and lines also differ by their dashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nftsync.errors import NftsyncError

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "BLUE",
    "DASHES",
    "GREEN",
    "GREY",
    "ORANGE",
    "SERIES",
    "SHADES",
    "TEXT_ONLY",
    "empty_figure",
    "figure",
]

GREY = "#797979"
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"

#: Colours of several things of one kind, in order; what is left over is grey.
SERIES = (BLUE, ORANGE, GREEN, "#cc79a7", "#8a7a00", "#9467bd")

#: How the lines of those colours are drawn.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

#: From little to much. Opacity grows, so that little is near the page's own colour.
SHADES = ((0.0, "rgba(0, 114, 178, 0.10)"), (1.0, "rgba(0, 114, 178, 1)"))

#: Hover shows the text that was made for it, and no name that plotly would cut.
TEXT_ONLY = "%{hovertext}<extra></extra>"

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_CLEAR = "rgba(0, 0, 0, 0)"
_FAINT = "rgba(121, 121, 121, 0.3)"


def figure(
    traces: list[dict[str, Any]],
    title: str,
    *,
    subtitle: str = "",
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Make a figure in the look of all charts.

    Args:
        traces: what is drawn, as plotly's own properties.
        title: above it.
        subtitle: below the title.
        x: properties of the horizontal axis.
        y: properties of the vertical axis.
        layout: further properties of the layout.

    Raises:
        NftsyncError: plotly is not installed.
    """
    go = _graph_objects()
    return go.Figure(
        data=traces,
        layout={
            "template": {"layout": _template()},
            "title": {"text": title, "subtitle": {"text": subtitle}},
            "xaxis": x or {},
            "yaxis": y or {},
            # Not in the template: JupyterLab heeds only the height of the layout itself.
            "height": 440,
            **layout,
        },
    )


def empty_figure(title: str, missing: str) -> go.Figure:
    """Make a figure that says that there is nothing to draw yet, and what would fill it.

    Raises:
        NftsyncError: plotly is not installed.
    """
    hidden = {"visible": False, "range": [0, 1]}
    says = {
        "text": missing,
        "showarrow": False,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5,
        "y": 0.5,
        "font": {"size": 15},
    }
    return figure([], title, x=hidden, y=hidden, annotations=[says], height=260)


def _graph_objects() -> Any:
    try:
        import plotly.graph_objects
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "plotly":
            raise
        raise NftsyncError(
            "charts are drawn by plotly, which is missing; run: pip install 'nftsync[notebook]'"
        ) from error
    return plotly.graph_objects


def _template() -> dict[str, Any]:
    axis = {
        "automargin": True,
        "color": GREY,
        "gridcolor": _FAINT,
        "linecolor": GREY,
        "ticks": "outside",
        "tickcolor": _FAINT,
        "title": {"standoff": 10, "font": {"size": 13}},
        "zerolinecolor": GREY,
        "zerolinewidth": 1,
    }
    return {
        "autosize": True,
        "bargap": 0.25,
        "bargroupgap": 0.05,
        "colorway": list(SERIES),
        "dragmode": "zoom",
        "font": {"family": _FONT, "size": 13, "color": GREY},
        "hoverlabel": {
            "align": "left",
            "bgcolor": "#1f2328",
            "bordercolor": GREY,
            "font": {"family": _FONT, "size": 13, "color": "#ffffff"},
        },
        "legend": {
            # Below the picture, where many or long names push nothing over the title.
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "bgcolor": _CLEAR,
        },
        "margin": {"l": 16, "r": 24, "t": 80, "b": 16},
        "modebar": {"bgcolor": _CLEAR, "color": GREY, "activecolor": BLUE},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "title": {
            "font": {"size": 18},
            "pad": {"l": 16, "t": 16},
            "subtitle": {"font": {"size": 13, "color": GREY}},
            "x": 0,
            "xanchor": "left",
            "xref": "container",
            "y": 1,
            "yanchor": "top",
            "yref": "container",
        },
        "xaxis": axis,
        "yaxis": axis,
    }
