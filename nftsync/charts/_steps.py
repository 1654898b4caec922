"""Numbers that change at points in time, thinned out to what a picture can show."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Ticks",
    "distinct_times",
    "plotted",
    "shown_times",
    "standing",
    "step_line",
    "to_the_second",
]

#: Microseconds since 1970, as `datetime64[us]` or the integers in it.
Ticks: TypeAlias = npt.NDArray[Any]


def distinct_times(ticks: Ticks) -> Ticks:
    """Each of some ascending times once."""
    distinct: Ticks = ticks[np.append(True, ticks[1:] != ticks[:-1])[: len(ticks)]]
    return distinct


def shown_times(ticks: Ticks, most: int) -> Ticks:
    """Choose at which times a step line is drawn.

    Args:
        ticks: when something changed, in microseconds, ascending; may repeat.
        most: how many times may be chosen, 2 or more.

    Returns:
        All distinct times if they are few enough. Else the first, and the last within each of
        equal spans: at these the line is exact.
    """
    distinct = distinct_times(ticks)
    if len(distinct) <= most:
        return distinct
    since = (distinct - distinct[0]).astype(np.float64)
    spans = (since / since[-1] * (most - 2)).astype(np.int64)
    last = np.append(spans[1:] != spans[:-1], True)
    chosen: Ticks = np.union1d(distinct[:1], distinct[last])
    return chosen


def standing(ticks: Ticks, steps: npt.NDArray[np.int64], at: Ticks) -> npt.NDArray[np.int64]:
    """What a count has come to after all steps up to each of some times.

    Args:
        ticks: when each step was, ascending.
        steps: by how much the count changed then.
        at: the times.
    """
    sums = np.append(0, np.cumsum(steps))
    counts: npt.NDArray[np.int64] = sums[np.searchsorted(ticks, at, side="right")]
    return counts


def plotted(ticks: Ticks) -> list[str]:
    """Times as plotly takes them: its axes know no zones, so theirs is UTC."""
    texts: list[str] = np.datetime_as_string(ticks.view("M8[us]"), unit="us").tolist()
    return texts


def to_the_second(time: str) -> str:
    """A time as `plotted` gives it, for a person."""
    return f"{time[:10]} {time[11:19]} UTC"


def step_line(
    name: str,
    color: str,
    dash: str,
    times: Ticks,
    counts: npt.NDArray[np.int64],
    hover: str,
) -> dict[str, Any]:
    """A line that keeps each count until the next time.

    Args:
        name: what the legend calls it, escaped.
        color: of the line.
        dash: how it is drawn.
        times: where it may step.
        counts: one per time.
        hover: what it counts, escaped.
    """
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": plotted(times),
        "y": counts.tolist(),
        "hovertemplate": f"<b>{hover}</b>: %{{y:,}}<br>from %{{x|%Y-%m-%d %H:%M:%S}} UTC on"
        "<extra></extra>",
        "line": {"color": color, "dash": dash, "shape": "hv", "width": 2},
    }
