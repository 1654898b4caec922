"""Style of all charts: a white card with dark text, without internet access.

No color of text has a contrast of 4.5:1 to both white and JupyterLab's dark `#111111`, so charts
bring a background. Bars and lines have at least 3:1 to both, in the hues of Okabe and Ito, and
lines differ by their dashes.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias
from unicodedata import east_asian_width

from nftsync.columnar.hidden import hidden_note
from nftsync.errors import InputError
from nftsync.extras import require
from nftsync.text import ID, cut_line, id_key, short_id

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

#: The caller's names for contracts, wallets or other groups.
GroupLabels: TypeAlias = "Mapping[str, str] | None"

_LONGEST = 40
#: Characters of a line of labels and of subtitles, for pages of 390 pixels.
_LABEL_LINE, _SUBTITLE_LINE = 22, 50
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


def escaped(text: str, longest: int = _LONGEST) -> str:
    """Return text on one line that plotly shows literally."""
    return cut_line(text, longest).translate(_ENTITIES)


def with_hidden(subtitle: str, frame: pd.DataFrame, noun: str = "holding") -> str:
    return "\n".join(filter(None, (subtitle, hidden_note(frame, noun))))


def group_labels(
    values: Sequence[Any], by: str, names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return distinct labels for groups, and longer texts for hovers, all escaped."""
    missing = _MISSING.get(by, "not set")
    ids = ["" if value is None else str(value) for value in values]
    labels, hovers = [], []
    for text in ids:
        full = escaped(text, _LONGEST_IN_HOVER) or missing
        name = escaped(_short(names.get(id_key(text), "")))
        labels.append(name or escaped(_short(text)) or missing)
        hovers.append(f"{name}<br>{full}" if name else full)
    # Equal labels get a part of their ids, or the whole ids if still equal.
    for part in (lambda text: _short(text)[-13:], lambda text: text):
        counts = Counter(labels)
        labels = [
            label if counts[label] == 1 or not text else f"{label} ({escaped(part(text))})"
            for label, text in zip(labels, ids, strict=True)
        ]
    return [_in_lines(label) for label in labels], hovers


def _in_lines(label: str) -> str:
    text = html.unescape(label)
    is_wide = sum(east_asian_width(character) in "FW" for character in text) > len(text) / 4
    lines = textwrap.wrap(text, _LABEL_LINE // (1 + is_wide))
    return "<br>".join(line.translate(_ENTITIES) for line in lines)


def short_lines(text: str) -> str:
    return "<br>".join(
        line
        for part in text.splitlines()
        for line in textwrap.wrap(part, _SUBTITLE_LINE, break_long_words=False)
    )


def checked_names(names: GroupLabels) -> dict[str, str]:
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        raise InputError(f"names={names!r} is not a mapping; use {{address or id: name}}")
    for key, name in names.items():
        if not isinstance(key, str) or not isinstance(name, str):
            raise InputError(f"names has {key!r}: {name!r}; use text for both")
    return {id_key(key): name for key, name in names.items()}


def _short(text: str) -> str:
    return short_id(text) if ID.fullmatch(text) else text


#: Points of a chart over time; screens cannot show more.
MAX_POINTS = 2_000


GREY = "#797979"
BLUE = "#0072b2"
ORANGE = "#d55e00"

#: Colors and dashes of lines, in order; the line of the others is gray.
PENS = (
    (BLUE, "solid"),
    (ORANGE, "dash"),
    ("#009e73", "dot"),
    ("#cc79a7", "dashdot"),
    ("#8a7a00", "longdash"),
    ("#9467bd", "longdashdot"),
)

#: Hovers show only their own text, because plotly cuts names.
TEXT_ONLY = "%{hovertext}<extra></extra>"


def line(
    name: str, pen: tuple[str, str], shape: str = "linear", width: int = 2, **properties: Any
) -> dict[str, Any]:
    """Return a line with a color and a dash; the shape `hv` keeps each value until the next one."""
    color, dash = pen
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "line": {"color": color, "dash": dash, "shape": shape, "width": width},
        **properties,
    }


def hovered(
    kind: str, name: str, x: Sequence[Any], y: Sequence[Any], hovers: Sequence[Any], **more: Any
) -> dict[str, Any]:
    texts = {"hovertext": hovers, "hovertemplate": TEXT_ONLY}
    return {"type": kind, "name": name, "x": x, "y": y, **texts, **more}


def numbered_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Return an axis of numbered rows, so that equal labels stay distinct."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": list(labels),
        "ticklabelstandoff": 8,
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }


def time_axis(title: str = "time (UTC)", **more: Any) -> dict[str, Any]:
    """Return an axis of times, with years below months."""
    months = {"dtickrange": ["M1", "M6"], "value": "%b\n%Y"}
    return {"title": {"text": title}, "type": "date", "tickformatstops": [months], **more}


def figure(
    traces: list[dict[str, Any]],
    title: str,
    *,
    subtitle: str = "",
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Return a figure in the style of all charts; the subtitle must be escaped."""
    require("notebook", "charts", "plotly")
    import plotly.graph_objects as go

    below = short_lines(subtitle)
    more = 18 * (below.count("<br>") + ((x or {}).get("side") == "top"))
    return go.Figure(
        data=traces,
        layout={
            "template": {"layout": _template()},
            "title": {"text": title, "subtitle": {"text": below}},
            "xaxis": x or {},
            "yaxis": y or {},
            **layout,
            "margin": {"t": 80 + more, **layout.get("margin", {})},
            # Not in the template: JupyterLab reads the height only from the layout itself.
            "height": layout.get("height", 440) + more,
        },
    )


def empty_figure(title: str, message: str) -> go.Figure:
    hidden = {"visible": False, "range": [0, 1]}
    middle = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    text = short_lines(message)
    annotation = {"text": text, "showarrow": False, **middle}
    return figure([], title, x=hidden, y=hidden, annotations=[annotation], height=180)


@lru_cache
def _template() -> dict[str, Any]:
    template = files(__package__).joinpath("template.json").read_text(encoding="utf-8")
    layout: dict[str, Any] = json.loads(template)
    return layout
