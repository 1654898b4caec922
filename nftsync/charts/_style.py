"""The look of all charts: readable on light and dark pages, and without internet access.

Text and grid are of the grey that stands out as much from white as from JupyterLab's dark
`#111111`: 4.3:1 from each, which is the most that one colour can have from both. What is drawn has
at least 3:1 from both, in the hues of Okabe and Ito, and lines also differ by their dashes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nftsync.errors import InputError, NftsyncError
from nftsync.text import cut_line, short_id

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Names that a caller gives to contracts, wallets or other groups.
Names: TypeAlias = "Mapping[str, str] | None"

_LONGEST = 40
_LONGEST_IN_HOVER = 120

_MISSING = {
    "contract_address": "no contract",
    "contract": "no contract",
    "collection": "no contract",
    "creator_name": "no creator",
    "name": "no name",
    "wallet_group": "no group",
    "wallet_label": "no label",
}
_ENTITIES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "$": "&#36;", "%": "&#37;"}
)
_ID = re.compile(r"0x[0-9a-f]{40}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def escaped(text: str, longest: int = _LONGEST) -> str:
    """Text as plotly shows it literally, on one line.

    Args:
        text: anything.
        longest: characters that may remain; what is longer ends in `…`.
    """
    return cut_line(text, longest).translate(_ENTITIES)


def group_labels(
    values: Sequence[Any], by: str, names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Name what stands for groups: wallets, contracts, or values of a column.

    Args:
        values: an id or value each; None or blank text is missing.
        by: the column that they are of, which says what to call what is missing.
        names: given names, as `checked_names` returns them.

    Returns:
        Labels, all different, and longer texts for hovers; both are escaped.
    """
    missing = _MISSING.get(by, "none given")
    ids = ["" if value is None else str(value) for value in values]
    labels, hovers = [], []
    for text in ids:
        full = escaped(text, _LONGEST_IN_HOVER) or missing
        given = escaped(_short(names.get(_key(text), "")))
        labels.append(given or escaped(_short(text)) or missing)
        hovers.append(f"{given}<br>{full}" if given else full)
    # Labels that look the same carry a part of their ids, or all of it if that does not do.
    for part in (lambda text: _short(text)[-13:], lambda text: text):
        often = Counter(labels)
        labels = [
            label if often[label] == 1 or not text else f"{label} ({escaped(part(text))})"
            for label, text in zip(labels, ids, strict=True)
        ]
    return labels, hovers


def checked_names(names: Names) -> dict[str, str]:
    """Check the names that a caller gives, and let them match addresses whatever their case.

    Raises:
        InputError: they are not a mapping of text to text.
    """
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        raise InputError(f"names={names!r} is not a mapping; give {{address or id: name}}")
    for key, name in names.items():
        if not isinstance(key, str) or not isinstance(name, str):
            raise InputError(f"names has {key!r}: {name!r}; give text for both")
    return {_key(key): name for key, name in names.items()}


def _key(text: str) -> str:
    """Addresses and UUIDs are the same whatever their case."""
    return text.lower() if _ID.fullmatch(text) else text


def _short(text: str) -> str:
    """Chain addresses and UUIDs by their two ends, which is how people tell them apart."""
    return short_id(text) if _ID.fullmatch(text) else text


#: Points of a chart over time; more cannot be told apart on any screen.
MAX_POINTS = 2_000


GREY = "#797979"
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"

#: Colours and dashes of several lines, in order; what is left over is grey.
PENS = (
    (BLUE, "solid"),
    (ORANGE, "dash"),
    (GREEN, "dot"),
    ("#cc79a7", "dashdot"),
    ("#8a7a00", "longdash"),
    ("#9467bd", "longdashdot"),
)

#: Hover shows the text that was made for it, and no name that plotly would cut.
TEXT_ONLY = "%{hovertext}<extra></extra>"

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_CLEAR = "rgba(0, 0, 0, 0)"
_FAINT = "rgba(121, 121, 121, 0.3)"


def line(
    name: str, pen: tuple[str, str], shape: str = "linear", width: int = 2, **properties: Any
) -> dict[str, Any]:
    """A line of a chart.

    Args:
        name: what the legend calls it, escaped.
        pen: its colour and its dashes.
        shape: `hv` keeps each value until the next one.
        width: in pixels.
        properties: further ones of plotly's.
    """
    color, dash = pen
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "line": {"color": color, "dash": dash, "shape": shape, "width": width},
        **properties,
    }


def numbered_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis of rows or fields, which are numbered, so that two of the same label stay two."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": list(labels),
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }


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
    return figure([], title, x=hidden, y=hidden, annotations=[says], height=180)


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
        "exponentformat": "none",
        "gridcolor": _FAINT,
        "linecolor": GREY,
        "separatethousands": True,
        "ticks": "outside",
        "tickcolor": _FAINT,
        "title": {"standoff": 10, "font": {"size": 13}},
        "zerolinecolor": GREY,
    }
    return {
        "bargap": 0.25,
        "bargroupgap": 0.05,
        "colorway": [color for color, _ in PENS],
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
            "y": 1,
            "yanchor": "top",
        },
        "xaxis": axis,
        "yaxis": axis,
    }
