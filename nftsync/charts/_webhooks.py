"""Charts of webhooks: processing time and backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nftsync.charts import _history, _style
from nftsync.columnar.inputs import FrameOrDb, require_columns
from nftsync.columnar.source import Numbers
from nftsync.frames import webhooks
from nftsync.text import counted

if TYPE_CHECKING:
    import plotly.graph_objects as go


_LAG = "Webhook lag"
_BACKLOG = "Webhook backlog"
_MAX_UNIT_TICKS = 8
_NO_WEBHOOKS = "No webhooks in this database yet; nftsync serve receives them."
_MISSING = np.iinfo(np.int64).min

#: Start of the logarithmic axis.
_LEAST_SECONDS = 0.001
_TICKS = {
    0.001: "1 ms",
    0.01: "10 ms",
    0.1: "100 ms",
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3_600: "1 h",
    36_000: "10 h",
    86_400: "1 day",
    864_000: "10 days",
    8_640_000: "100 days",
    315_360_000: "10 years",
}
#: Maximum ratio of lags for additional ticks at 2 and 5.
_SHORT_SPAN = 1_000
_POINTS = 500
_PERCENTILES = (50, 90, 99)
_BACKLOG_STATES = ("pending", "running", "failed")
_UNDONE_STATES = ("dead", "unrouted", "quarantined")


def webhook_lag(db: FrameOrDb = None) -> go.Figure:
    """Draw the cumulative shares of webhook delays, with median, p90 and p99.

    One line covers the time from sending (`createdAtUtc`, the provider's clock) to receipt (the
    first delivery, this machine's clock). The other covers the time from receipt to done, when the
    read is stored. A percentile is the shortest delay that this share of webhooks did not exceed.

    The first line leaves out webhooks without a readable `createdAtUtc`, and webhooks received
    before that time, as clocks differ. The subtitle counts both.
    """
    frame = _load_webhooks(db, "created_at_utc", "received_at", "finished_at", "state")
    if frame.empty:
        return _style.empty_figure(_LAG, _NO_WEBHOOKS)
    sent = _sent(frame["created_at_utc"])
    received = _history.microseconds(frame["received_at"])
    finished = _history.microseconds(frame["finished_at"])
    dated = sent != _MISSING
    done = (frame["state"] == "done").to_numpy(dtype=bool) & (finished != _MISSING)
    early = int(np.count_nonzero(dated & (received < sent)))
    arriving = (received - sent)[dated & (received >= sent)]
    working = np.maximum(finished - received, 0)[done]
    notes = [f"{len(frame):,} received, {int(np.count_nonzero(done)):,} done"]
    if undated := int(np.count_nonzero(~dated)):
        notes.append(f"{undated:,} without a readable createdAtUtc")
    if early:
        notes.append(f"{early:,} received before they were sent (clocks differ)")
    return _style.figure(
        [
            *_share_line("sent to received", _style.PENS[0], arriving),
            *_share_line("received to done", _style.PENS[1], working),
        ],
        _LAG,
        subtitle="; ".join(notes),
        x={
            "title": {"text": "lag (logarithmic)"},
            "type": "log",
            **_ticks(np.concatenate((arriving, working))),
        },
        y={"title": {"text": "share of webhooks (%)"}, "range": [0, 103]},
    )


def webhook_backlog(db: FrameOrDb = None) -> go.Figure:
    """Draw the number of webhooks in the backlog over time.

    One line counts received webhooks that are pending, running, or failed with a retry due. The
    other counts webhooks that ended dead, unrouted or quarantined. A requeued webhook counts as
    pending since its receipt.
    """
    frame = _load_webhooks(db, "received_at", "finished_at", "state")
    if frame.empty:
        return _style.empty_figure(_BACKLOG, _NO_WEBHOOKS)
    received = _history.microseconds(frame["received_at"])
    finished = _history.microseconds(frame["finished_at"])
    undone = frame["state"].isin(_UNDONE_STATES).to_numpy(dtype=bool)
    settled = ~frame["state"].isin(_BACKLOG_STATES).to_numpy(dtype=bool)
    # After a clock was set back, a webhook may seem to end before its receipt.
    ends = np.maximum(finished, received)[settled]
    at = np.concatenate((received, ends))
    steps = np.append(np.ones(len(received), np.int64), -np.ones(len(ends), np.int64))
    order = np.argsort(at, kind="stable")
    at, steps = at[order], steps[order]
    undone_at = np.sort(np.maximum(finished, received)[undone])
    times = _history.sampled_times(at, _style.MAX_POINTS // 2)
    backlog = _history.counts_at(at, steps, times)
    lines = [_history.step_line("backlog", _style.PENS[0], times, backlog, "backlog")]
    if len(undone_at):
        name = "dead, unrouted or quarantined"
        counts = _history.counts_at(undone_at, np.ones(len(undone_at), np.int64), times)
        lines.append(_history.step_line(name, _style.PENS[1], times, counts, name))
    oldest = received[~settled]
    notes = [f"{counted(len(frame), 'webhook')}, {len(oldest):,} in the backlog at the end"]
    if len(oldest):
        (since,) = _history.plotly_times(np.sort(oldest)[:1])
        notes.append(f"the oldest received {_history.readable_time(since)} UTC")
    return _style.figure(
        lines,
        _BACKLOG,
        subtitle="; ".join(notes),
        x=_style.time_axis(),
        y={
            "title": {"text": "webhooks"},
            "rangemode": "tozero",
            # No ticks at fractions of a webhook.
            **({"dtick": 1} if max(backlog) <= _MAX_UNIT_TICKS and not len(undone_at) else {}),
        },
        showlegend=True,
    )


def _load_webhooks(db: FrameOrDb, *needs: str) -> pd.DataFrame:
    if not isinstance(db, pd.DataFrame):
        return webhooks(db)
    require_columns(db, needs, "frames.webhooks")
    return db


def _sent(texts: pd.Series) -> Numbers:
    dated = texts.where(texts.str.len() >= len("2026-01-01T00"))
    return _history.microseconds(pd.to_datetime(dated, format="ISO8601", utc=True, errors="coerce"))


def _share_line(name: str, pen: tuple[str, str], lags: Numbers) -> list[dict[str, Any]]:
    if not len(lags):
        return []
    lags = np.sort(lags)
    ranks = np.unique(np.linspace(1, len(lags), _POINTS).round().astype(np.int64))
    marked = lags[[max(1, -(-len(lags) * share // 100)) - 1 for share in _PERCENTILES]]
    values = [_duration(int(lag)) for lag in marked]
    named = zip(("median", "p90", "p99"), values, strict=True)
    shares = _style.line(
        name,
        pen,
        shape="hv",
        x=_drawn(lags[ranks - 1]),
        y=(ranks / len(lags) * 100).tolist(),
        hoverinfo="skip",
        legendgroup=name,
        showlegend=False,
    )
    marks = _style.hovered(
        "scatter",
        _style.short_lines(f"{name}: " + ", ".join(f"{which} {value}" for which, value in named)),
        _drawn(marked),
        list(_PERCENTILES),
        [
            f"<b>{name}</b><br>{share} % of {counted(len(lags), 'webhook')} took at most {value}"
            for share, value in zip(_PERCENTILES, values, strict=True)
        ],
        mode="markers",
        marker={"color": pen[0], "size": 10, "symbol": ["circle", "square", "diamond"]},
        legendgroup=name,
    )
    return [shares, marks]


def _ticks(lags: Numbers) -> dict[str, Any]:
    ticks: dict[float, str] = dict(_TICKS)
    drawn = _drawn(lags)
    if drawn and max(drawn) <= _SHORT_SPAN * min(drawn):
        between = (times * tick for tick in list(_TICKS)[:4] for times in (2, 5))
        ticks |= {tick: _duration(round(tick * 1e6)) for tick in between}
    return {"tickvals": list(ticks), "ticktext": list(ticks.values())}


def _drawn(lags: Numbers) -> list[float]:
    seconds: list[float] = np.maximum(lags / 1e6, _LEAST_SECONDS).tolist()
    return seconds


def _duration(ticks: int) -> str:
    seconds = ticks / 1e6
    if seconds < 1:
        return f"{seconds * 1_000:.3g} ms"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"
