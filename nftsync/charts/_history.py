"""How many holdings were known of, over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from nftsync.charts._bars import Groups, folded, grouped, largest
from nftsync.charts._look import (
    BLUE,
    DASHES,
    GREY,
    MOST_POINTS,
    ORANGE,
    SERIES,
    TEXT_ONLY,
    Names,
    choice,
    counted,
    empty_figure,
    figure,
    given_names,
    name_group,
    number_of,
    tell_apart,
    without,
)
from nftsync.frames import changes, tokens, wallets
from nftsync.frames._columns import Amounts, Moment, coded, stored_time
from nftsync.frames._given import text_column
from nftsync.frames._groups import distinct_in_each
from nftsync.frames._source import Numbers, Store
from nftsync.frames._tables import WalletIds, wallet_ids

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "NO_HISTORY",
    "Movements",
    "Ticks",
    "distinct_times",
    "holdings_over_time",
    "microseconds",
    "movements",
    "plotted",
    "shown_times",
    "standing",
    "step_line",
    "tick_of",
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


@dataclass(frozen=True)
class Movements:
    """The changes that began or ended a holding, in the order they were observed.

    Attributes:
        at: when, in microseconds since 1970.
        step: 1 began one, -1 ended one.
        first_read: whether the wallet's first read showed it, so that nobody knows since when.
        wallet: index into `wallet_ids`.
        wallet_ids: ids of wallets.
        token: index into `token_ids`.
        token_ids: ids of tokens.
    """

    at: Ticks
    step: npt.NDArray[np.int64]
    first_read: npt.NDArray[np.bool_]
    wallet: npt.NDArray[np.int64]
    wallet_ids: list[str]
    token: npt.NDArray[np.int64]
    token_ids: list[str]

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Movements:
        """The rows of a mask."""
        return Movements(
            self.at[rows],
            self.step[rows],
            self.first_read[rows],
            self.wallet[rows],
            self.wallet_ids,
            self.token[rows],
            self.token_ids,
        )


def movements(db: Store, exclude: WalletIds = (), since: Moment | None = None) -> Movements:
    """Read the change log, less changes from one amount above zero to another.

    Args:
        db: where to read.
        exclude: wallets to leave out.
        since: only changes observed at this time or later.

    Raises:
        InputError: `since` is no time, or an excluded id is no UUID.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    left_out = set(wallet_ids(exclude))
    log = changes(db, since=since)
    before = Amounts(text_column(log, "old_amount_text")).nonzero()
    after = Amounts(text_column(log, "new_amount_text")).nonzero()
    wallet, wallets = coded(text_column(log, "wallet_id"))
    token, tokens = coded(text_column(log, "token_id"))
    known = wallets.to_pylist()
    stays = np.array([one not in left_out for one in known] + [True])
    found = Movements(
        microseconds(log["observed_at"]),
        after.astype(np.int64) - before,
        log["baseline"].to_numpy(),
        wallet.astype(np.int64),
        known,
        token.astype(np.int64),
        tokens.to_pylist(),
    )
    return found.chosen((found.step != 0) & stays[wallet])


def microseconds(times: pd.Series) -> npt.NDArray[np.int64]:
    """A column of times as microseconds since 1970; the least integer where one is missing."""
    column: Any = times
    ticks: npt.NDArray[np.int64] = (
        column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy("M8[us]").view(np.int64)
    )
    return ticks


def tick_of(moment: Moment) -> int:
    """A time that a caller gave, in microseconds since 1970.

    Raises:
        InputError: it names no time.
    """
    return int(np.datetime64(stored_time(moment)[:-1], "us").astype(np.int64))


NO_HISTORY = "No changes in this database yet; each nftsync sync adds what it finds."

_TITLE = "Holdings over time"
_MOST_MARKS = 100
_SOURCES: dict[str, Callable[[Store], pd.DataFrame]] = {
    "contract_address": tokens,
    "creator_name": tokens,
    "wallet_group": wallets,
    "wallet_id": wallets,
}


def holdings_over_time(
    db: Store = None,
    *,
    by: str | None = None,
    top: SupportsIndex = 5,
    since: Moment | None = None,
    exclude: WalletIds = (),
    names: Names = None,
) -> go.Figure:
    """Draw how many holdings were known of at each time, from the change log.

    A holding is a wallet with more than zero of a token; how much more doesn't count. The line
    steps when a read found a change, which may be long after it happened. A wallet's first read
    shows all that it held before, so these times are marked: what a line gains there was known
    from then on, not bought then. The lines end at the last read of a wallet or the last change.

    Args:
        db: a path, a connection, a `sqlite_utils.Database`, or None for the configured database.
        by: None for one line of all holdings; or a line each by `contract_address`,
            `creator_name`, `wallet_group` or `wallet_id`, as they are today.
        top: lines shown on their own, 1 to 5, those that end highest; the rest are one line.
        since: where the picture begins; the counts are those of the whole log. Text, a date (its
            end) or a datetime.
        exclude: wallets to leave out; one id or several.
        names: what to call contracts or wallets, by address or id.

    Raises:
        InputError: an option cannot be used.
        NftsyncError: plotly is not installed.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    number, known = number_of(top, "top", len(SERIES) - 1), given_names(names)
    chosen = None if by is None else choice(by, "by", _SOURCES)
    begin = None if since is None else tick_of(since)
    log = movements(db, exclude)
    about = wallets(db)
    if not len(log.at):
        return empty_figure(_TITLE, NO_HISTORY)
    ends = max(int(log.at[-1]), int(microseconds(about["synced_at"]).max()))
    if chosen == "wallet_id":
        known = dict(about.set_index("wallet_id")["label"].dropna()) | known
    begin = int(log.at[0]) if begin is None else begin
    if begin > ends:
        return empty_figure(_TITLE, "Nothing was read since the given time.")
    times, thinned = _times(log.at, begin, ends, MOST_POINTS // (number + 1 if by else 1))
    if chosen is None:
        counts = standing(log.at, log.step, times)
        traces = [step_line("holdings", BLUE, "solid", times, counts, "holdings")]
    else:
        traces = _lines(log, _groups_of(db, log, chosen), chosen, number, times, known)
    # With several lines there is no one line for the marks to stand on.
    traces += _first_reads(log, begin, on_line=chosen is None)
    return figure(
        traces,
        _TITLE,
        subtitle="as reads found them" + (f"; {len(times):,} times are drawn" if thinned else ""),
        x={"title": {"text": "time (UTC)"}, "type": "date"},
        y={"title": {"text": "holdings (wallet and token)"}, "rangemode": "tozero"},
        height=480,
    )


def _times(at: Ticks, begin: int, ends: int, most: int) -> tuple[Ticks, bool]:
    """Choose at which times lines are drawn, and tell whether some had to be left out."""
    inside = distinct_times(at[(at > begin) & (at < ends)])
    shown = shown_times(inside, most - 2)
    return np.union1d(np.array([begin, ends]), shown), len(shown) < len(inside)


def _groups_of(db: Store, log: Movements, by: str) -> Groups:
    """Group the rows of the log by what is known of their wallet or token today."""
    about = _SOURCES[by](db)
    if "wallet_id" in about.columns:
        place, rows = pd.Index(about["wallet_id"]).get_indexer(log.wallet_ids), log.wallet
    else:
        place, rows = pd.Index(about["token_id"]).get_indexer(log.token_ids), log.token
    groups = grouped(about, by)
    codes = np.append(groups.codes, len(groups) - 1)[place]
    return Groups(codes[rows], groups.values)


def _lines(
    log: Movements, groups: Groups, by: str, top: int, times: Ticks, known: dict[str, str]
) -> list[dict[str, Any]]:
    final = np.bincount(groups.codes, log.step, len(groups)).astype(np.int64)
    seen = np.bincount(groups.codes, minlength=len(groups))
    # A group that holds nothing any more comes after those that do, by its history.
    shown = largest((final + (seen > 0), seen), groups.values, top)
    labels, hovers = zip(
        *(name_group(groups.values[code], without(by), known) for code in shown), strict=True
    )
    ids = [str(groups.values[code] or "") for code in shown]
    codes = folded(groups.codes, shown, len(groups))
    lines = [
        step_line(label, color, dash, times, _count(log, codes == place, times), hover)
        for place, (label, hover, color, dash) in enumerate(
            zip(tell_apart(labels, ids), hovers, SERIES, DASHES, strict=False)
        )
    ]
    rest = int(np.count_nonzero(seen)) - len(shown)
    if rest:
        name = counted(rest, "other")
        counts = _count(log, codes == len(shown), times)
        lines.append(step_line(name, GREY, "solid", times, counts, name))
    return lines


def _count(log: Movements, rows: Any, times: Ticks) -> Numbers:
    return standing(log.at[rows], log.step[rows], times)


def _first_reads(log: Movements, begin: int, *, on_line: bool) -> list[dict[str, Any]]:
    """Marks where wallets were read for the first time, few enough to tell apart."""
    rows = log.first_read & (log.at >= begin)
    if not rows.any():
        return []
    at, wallet, step = log.at[rows], log.wallet[rows], log.step[rows]
    marks = shown_times(at, _MOST_MARKS)
    of = np.searchsorted(marks, at)
    found = np.bincount(of, step, len(marks)).astype(np.int64)
    readers = distinct_in_each(of, wallet, len(marks))
    shown = plotted(marks)
    heights = standing(log.at, log.step, marks) if on_line else np.zeros(len(marks), np.int64)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "first reads (held before, nobody knows since when)",
            "x": shown,
            "y": heights.tolist(),
            "hovertext": [
                f"<b>{counted(wallets, 'wallet')} read for the first time</b>"
                f"<br>{counted(count, 'holding')} seen, held since an unknown time"
                f"<br>by {to_the_second(time)}"
                for wallets, count, time in zip(
                    readers.tolist(), found.tolist(), shown, strict=True
                )
            ],
            "hovertemplate": TEXT_ONLY,
            "cliponaxis": False,
            "marker": {
                "symbol": "diamond-open",
                "size": 10,
                "color": ORANGE,
                "line": {"width": 2, "color": ORANGE},
            },
        }
    ]
