"""Contents of the report."""

from __future__ import annotations

import shlex
import warnings
from decimal import localcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nftsync import frames
from nftsync.columnar.filters import states_between
from nftsync.columnar.hidden import hidden_note
from nftsync.columnar.inputs import load_holdings
from nftsync.columnar.source import reading
from nftsync.notebooks.database import database as opened
from nftsync.notebooks.database import provider_address
from nftsync.notebooks.display import (
    display_html,
    holding_figures,
    show_figures,
    show_heading,
    show_lines,
    show_table,
    window_start,
)
from nftsync.notebooks.pages import part
from nftsync.notebooks.picture_cards import picture_cards
from nftsync.reports.comparison import differences, in_words, summary
from nftsync.store.contracts import short_address
from nftsync.text import counted, lasting, sentence
from nftsync.times import parse_time, utc_times
from nftsync.version import __version__

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ENDS = ("opening", "closing")
_ENTRIES = ("opening", "initial", "received", "sent", "closing")
#: By column of a statement: its heading, its column of names, and the text without a name.
_GROUPS = {
    "wallet_group": ("group", "wallet_group", "no group"),
    "wallet_id": ("wallet", "wallet", "no wallet"),
    "contract": ("collection", "collection", "no contract"),
}
#: Rows of a statement; further groups are one row.
_MOST_GROUPS = 5
#: Heights of the chart on the screen and, at least, on paper, in pixels.
_CHART_HEIGHT, _PRINTED_HEIGHT = 400, 330
#: Digits of an exact sum of values.
_DIGITS = 400


class Report:
    """Holdings at both ends of a period, and what happened between.

    `start` and `end` are the times of the states shown (None: now); `notes` says why these are not
    the times asked for.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        start: str | None = None,
        end: str | None = None,
        group: str | None = None,
        wallet: str | None = None,
        prices: str | None = None,
        compare: str | None = None,
    ) -> None:
        self.db = opened(database)
        self.now = pd.Timestamp.now("UTC").floor("s")
        self.end = None if end is None else pd.Timestamp(parse_time(end, "end"))
        self.start = window_start(self.db, start, self.end)
        with reading(self.db) as source, warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            first, last = states_between(source, self.start, self.end)
        self.start, self.end = pd.Timestamp(first), None if last is None else pd.Timestamp(last)
        texts = (utc_times(str(note.message)) for note in notes)
        self.notes = [*map(sentence, texts)]
        chosen = {"group": group, "wallet": wallet}
        self.filters: dict[str, Any] = {name: one for name, one in chosen.items() if one}
        self._prices = prices
        self._list = compare

    @cached_property
    def holdings(self) -> pd.DataFrame:
        """Holdings at the end."""
        return frames.holdings(self.db, as_of=self.end, **self.filters)

    @cached_property
    def opening(self) -> pd.DataFrame:
        """Holdings at the start."""
        return frames.holdings(self.db, as_of=self.start, **self.filters)

    @cached_property
    def transfers(self) -> pd.DataFrame:
        """Transfers between, the newest first."""
        return frames.transfers(self.db, self.start, self.end, **self.filters).iloc[::-1]

    @cached_property
    def wallets(self) -> pd.DataFrame:
        """Wallets of the report."""
        return frames.wallets(self.db, **self.filters)

    # Page 1 -----------------------------------------------------------------------------------

    def show_title(self, title: str) -> None:
        """Show the title, the wallets and the period."""
        about = f"Wallets: {len(self.wallets):,}"
        if "group" in self.filters:
            about = f"Group {self.filters['group']}: {counted(len(self.wallets), 'wallet')}"
        elif "wallet" in self.filters:
            about = "Wallet {} ({})".format(*self.wallets[["wallet", "wallet_id"]].iloc[0])
        period = f"From {_moment(self.start)} to {_moment(min(self.end or self.now, self.now))}"
        display_html(part("title", title=title, text=f"{about}. {period}, in UTC."))
        show_lines(*self.notes)

    def show_headline(self) -> None:
        """Show the main figures at the end, and their changes."""
        before, after = holding_figures(self.opening), holding_figures(self.holdings)
        total = self._statement[1].iloc[-1]
        for currency in self.currencies:
            name = f"value in {currency}"
            before[name], after[name] = (total[f"{end}_value_{currency}"] for end in _ENDS)
        show_figures(after, before)
        unpriced, hidden = int(total.get("closing_unpriced", 0)), hidden_note(self.holdings)
        holdings = counted(after["holdings"], "holding")
        show_lines(
            f"{unpriced:,} of {holdings} have no price; they count in no value." * (unpriced > 0),
            f"{hidden}." * bool(hidden),
        )

    @cached_property
    def _statement(self) -> tuple[str, pd.DataFrame]:
        by = "wallet_id" if "group" in self.filters else "contract"
        if not self.filters and self.wallets["wallet_group"].nunique():
            by = "wallet_group"
        frame = frames.statement(
            self.db, self.start, self.end, by, prices=self._prices, **self.filters
        )
        return by, frame

    def statement(self, unit: str = "") -> pd.DataFrame:
        """Return the statement by group, of a group by wallet, or of a wallet by collection.

        The unit is empty for holdings, or `_amount`.
        """
        columns = {f"{entry}{unit}": entry for entry in _ENTRIES}
        return self._by_group(columns, ", in amounts" * bool(unit))

    def values(self, currency: str) -> pd.DataFrame:
        """Return the values of a statement in a currency."""
        columns = {f"{end}_value_{currency}": end for end in _ENDS}
        return self._by_group(
            {**columns, "closing_unpriced": "without a price"}, f", in {currency}"
        )

    @property
    def currencies(self) -> list[str]:
        """Currencies of the prices."""
        first = "closing_value_"
        return [name.removeprefix(first) for name in self._statement[1] if name.startswith(first)]

    def _by_group(self, columns: dict[str, str], unit: str) -> pd.DataFrame:
        by, frame = self._statement
        heading, name, missing = _GROUPS[by]
        names = frame[name].fillna(frame[by]).fillna(missing)
        rows = frame[list(columns)].set_axis(list(columns.values()), axis="columns")
        rows.insert(0, f"{heading}{unit}", names)
        if len(rows) <= _MOST_GROUPS + 2:
            return rows
        rest = rows.iloc[_MOST_GROUPS:-1]
        with localcontext(prec=_DIGITS):
            others = [f"{len(rest):,} others", *(rest[name].sum() for name in columns.values())]
        parts = [rows.iloc[:_MOST_GROUPS], pd.DataFrame([others], columns=rows.columns)]
        return pd.concat([*parts, rows.iloc[-1:]], ignore_index=True)

    def statement_text(self) -> str:
        """Return the total of the statement as a sentence, and explain its columns."""
        total = self._statement[1].iloc[-1]
        text = (
            f"{total['opening']:,} opening + {total['initial']:,} initial + {total['received']:,}"
            f" received − {total['sent']:,} sent = {counted(int(total['closing']), 'holding')}."
        )
        initial = " Initial: in a wallet's first read, held for an unknown time."
        twice = " A transfer between two of these wallets counts as received and as sent."
        sides = self.transfers[["from_wallet_id", "to_wallet_id"]]
        between = sides.isin([*self.wallets["wallet_id"]]).all(axis="columns").any()
        return text + initial * bool(total["initial"]) + twice * bool(between)

    @cached_property
    def collections(self) -> pd.DataFrame:
        """Collections, most NFTs first, with the change in NFTs, and measures of holders."""
        frame = frames.concentration(self.holdings)
        before = frames.concentration(self.opening).set_index("contract")["tokens"]
        frame["change"] = frame["tokens"] - frame["contract"].map(before).fillna(0).astype(int)
        frame["share"] = frame["tokens"] / frame["tokens"].sum()
        names = {
            "tokens": "NFTs",
            "top1_share": "largest_holder_share",
            "top10_share": "ten_largest_share",
            "nakamoto": "wallets with over half",
        }
        frame = frame.sort_values("tokens", ascending=False, kind="stable")
        return frame.rename(columns=names).reset_index(drop=True)

    def collections_text(self) -> str:
        """Return the largest collection as a sentence."""
        largest = self.collections.dropna(subset="contract").head(1)
        if largest.empty:
            return ""
        name = frames.brief(largest[["collection", "contract"]]).iloc[0, 0]
        total = counted(int(self.collections["NFTs"].sum()), "NFT")
        return f"{largest['NFTs'].item():,} of {total} are {name}. Shares are of NFTs."

    def show_naming(self) -> None:
        """Show how to name collections, if the largest ones are addresses."""
        names = self.collections.head(_MOST_GROUPS).dropna(subset="contract")
        if len(names) and (names["collection"] == names["contract"].map(short_address)).all():
            display_html(part("naming"))

    def growth(self) -> Figure:
        """Draw the holdings over time."""
        from nftsync import charts

        everyone = frames.wallets(self.db)["wallet_id"]
        others = everyone[~everyone.isin(self.wallets["wallet_id"])].tolist()
        by = None if self.filters or not self.wallets["wallet_group"].nunique() else "wallet_group"
        figure = charts.holdings_over_time(self.db, by=by, exclude=others)
        height = min(figure.layout.height, _CHART_HEIGHT)
        meta = {"printed_height": min(height, _PRINTED_HEIGHT)}
        figure.update_layout(height=height, meta=meta, xaxis_title_text="", yaxis_title_text="")
        return figure

    # Further pages ----------------------------------------------------------------------------

    def show_pictures(self, most: int | None = None, *, embed: bool = False) -> None:
        """Show cards of at most `most` NFTs (None: 24, or 96 of a group or wallet)."""
        holdings = load_holdings(self.holdings, needs=("wallet_id", "token_id", "contract"))
        most = most or (96 if self.filters else 24)
        at = {"as-of": self.end.isoformat()} if self.end else {}
        options = [f"--{name}={value}" for name, value in {**self.filters, **at}.items()]
        command = shlex.join(["nftsync", "holdings", *options, "--limit=0"])
        display_html(picture_cards(holdings, self.db, most, command, embed=embed))

    def transfers_text(self) -> str:
        """Return the numbers of transfers by kind, and their order."""
        counts = self.transfers["kind"].value_counts()
        texts = {"transfer": "between two wallets", "received": "received", "sent": "sent"}
        parts = [f"{counts[kind]:,} {text}" for kind, text in texts.items() if kind in counts]
        text = (
            f"{', '.join(parts)}; the newest first. Changes of an amount count as transfers, too."
        )
        return text if parts else "No transfers."

    def problems(self) -> pd.DataFrame:
        """Return wallets and webhooks with problems."""
        fresh = frames.freshness(self.db, **self.filters)
        wrong = fresh["what"].str.contains("never|failed|incomplete|dead|unrouted|quarantined")
        return fresh.loc[wrong & (fresh["count"] > 0), ["what", "count"]]

    def gaps(self) -> pd.DataFrame:
        """Return missing and broken metadata of the report's NFTs."""
        frame = frames.quality(self.db, base_url=provider_address(self.db))
        frame = frame[frame["token_id"].isin(self.holdings["token_id"])]
        sizes = frame.groupby(["field", "reason"]).size().sort_values(ascending=False)
        return sizes.reset_index(name="NFTs held")

    def show_comparison(self) -> None:
        """Show how the holdings at the end differ from the second list, if there is one."""
        if self._list is not None:
            frame = frames.compare(self.db, self._list, self.end, **self.filters)
            rows = differences(frame).assign(difference=lambda rows: rows["verdict"].map(in_words))
            rows = rows.rename(columns={"amount": "nftsync", "other_amount": "list"})
            show_heading("Comparison", summary(frame, Path(self._list).name))
            columns = ["difference", "wallet", "nft", "nftsync", "list"]
            show_table(rows[columns].dropna(axis="columns", how="all"), most=20, none="")

    def freshness(self) -> pd.DataFrame:
        """Return the last runs, and the oldest read of a wallet."""
        fresh = frames.freshness(self.db, **self.filters).rename(columns={"count": "wallets"})
        return fresh[fresh["at"].notna() & fresh["what"].str.startswith(("last", "oldest"))]

    def certainty(self) -> str:
        """Return the certainty of the balances at both ends."""
        fresh = frames.freshness(self.db, **self.filters).set_index("what")
        oldest = fresh.loc["oldest wallet read", "age"]
        parts = []
        for name, frame in (("opening", self.opening), ("closing", self.holdings)):
            if "certainty" in frame:
                wallets = frame.drop_duplicates("wallet_id")["certainty"].value_counts()
                counts = [
                    f"{counted(n, 'wallet')} {_CERTAINTY[kind]}" for kind, n in wallets.items()
                ]
                parts.append(f"At the {name}, {', '.join(counts) or 'no wallet had been read'}.")
        if self.end is None and pd.notna(oldest):
            age = lasting(oldest.total_seconds())
            parts.append(f"At the closing, all wallets had been read within {age}.")
        return " ".join(parts)

    def show_sources(self) -> None:
        """Show the sources and certainty of the figures."""
        show_lines(
            self.certainty(),
            f"Written at {self.now:%Y-%m-%d %H:%M} UTC by nftsync {__version__} from"
            f" {self.db.name}. All times are in UTC and mark when a read observed a state.",
        )


_CERTAINTY = {
    "bracketed": "confirmed by reads before and after",
    "gap": "changed between two reads",
    "open": "not read since",
}


def _moment(time: pd.Timestamp) -> str:
    if time.floor("s").time().isoformat() == "23:59:59":
        return f"the end of {time:%Y-%m-%d}"
    return f"{time:%Y-%m-%d %H:%M}"
