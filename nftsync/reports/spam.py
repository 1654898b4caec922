"""Candidates for `nftsync hide`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from nftsync.text import cut_line

if TYPE_CHECKING:
    import os

    import pandas as pd

#: A link: an address, or a domain with an ending that spam uses. Bounded, because names are
#: untrusted.
_LINK: Final = (
    r"(?i)https?://|\bwww\.|\b[a-z0-9-]{2,63}\.(?:app|cc|club|co|com|finance|gift|info|io|link|live"
    r"|me|net|online|org|site|top|vip|xyz)\b"
)
_CLAIM: Final = (
    r"(?i)\b(?:airdrop(?:ped|s)?|claim(?:able)?|eligible|free mint|giveaway|redeem|rewards?|visit"
    r"|vouchers?)\b"
)
#: Share of a collection's held tokens whose text must look like spam.
_SHARE_OF_TOKENS: Final = 0.5
#: An arrival at once: the fewest wallets, their share of all holders, and the time in hours.
_FEWEST_WALLETS, _SHARE_OF_HOLDERS, _HOURS = 5, 0.8, 24
_LONGEST_QUOTE: Final = 60


def suggest_hidden(database: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return collections, and tokens without a contract, that look like spam, most held first."""
    from nftsync import frames

    holdings = _keyed(frames.holdings(database))
    holdings = holdings[holdings["held_since"].notna()]
    received = frames.transfers(database)
    received = _keyed(received[received["kind"] == "received"])
    reasons: dict[str, list[str]] = {}
    for key, reason in (*_texts(holdings), *_arrivals(holdings, received)):
        reasons.setdefault(key, []).append(reason)
    rows = [
        _candidate(group, "; ".join(reasons[key]))
        for key, group in holdings[holdings["key"].isin(reasons)].groupby("key", sort=False)
    ]
    return sorted(rows, key=lambda row: -row["holdings"])


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(key=frame["contract"].fillna(frame["token_id"]))


def _candidate(group: pd.DataFrame, reason: str) -> dict[str, Any]:
    first = group.astype(object).where(group.notna(), None).iloc[0]
    of_contract = first["contract"] is not None
    return {
        "name": first["collection"] if of_contract else first["name"],
        "contract": first["contract"],
        "token_id": None if of_contract else first["token_id"],
        "tokens": int(group["token_id"].nunique()),
        "holdings": len(group),
        "wallets": int(group["wallet_id"].nunique()),
        "reason": reason,
    }


def _texts(holdings: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the keys of tokens with a link or a claim in their texts."""
    tokens = holdings.drop_duplicates("token_id")
    signs = {
        (name, kind): tokens[name].str.contains(pattern, na=False)
        for name in ("name", "description")
        for kind, pattern in (("link", _LINK), ("claim", _CLAIM))
    }
    in_name = signs["name", "link"] | signs["name", "claim"]
    spam = in_name | (signs["description", "link"] & signs["description", "claim"])
    share = spam.groupby(tokens["key"]).mean()
    suspicious = tokens[spam & tokens["key"].map(share).ge(_SHARE_OF_TOKENS)]
    for row in suspicious.drop_duplicates("key").itertuples():
        field = "name" if in_name[row.Index] else "description"
        kinds = [kind for kind in ("link", "claim") if signs[field, kind][row.Index]]
        text = cut_line(getattr(row, field), _LONGEST_QUOTE)
        yield row.key, f"{' and '.join(kinds)} in the {field}: {text}"


def _arrivals(holdings: pd.DataFrame, received: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the keys of NFTs that many wallets received at once."""
    import numpy as np

    holders = holdings.groupby("key")["wallet_id"].nunique()
    first = received.groupby(["key", "to_wallet_id"])["observed_at"].min().sort_values()
    for key, times in first.groupby("key"):
        at = times.to_numpy("M8[us]")
        until = np.searchsorted(at, at + np.timedelta64(_HOURS, "h"), side="right")
        wallets, count = int((until - np.arange(len(at))).max()), int(holders.get(key, 0))
        if wallets >= max(_FEWEST_WALLETS, _SHARE_OF_HOLDERS * count):
            yield str(key), f"arrived in {wallets:,} wallets within {_HOURS} hours, sender unknown"
