"""The report's cards with pictures of NFTs, as HTML without scripts."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nftsync.notebooks.database import provider_address
from nftsync.notebooks.gallery_cards import addresses, configured_images, embed_images
from nftsync.text import counted, without_controls

if TYPE_CHECKING:
    import pandas as pd

#: The most characters of a name.
_LONGEST = 120
_CARD = "display: inline-block; width: 140px; margin: 0 10px 14px 0; vertical-align: top"
_TILE = (
    "width: 140px; height: 140px; border-radius: 6px; position: relative; overflow: hidden;"
    " box-sizing: border-box; padding: 8px; background: #8883; font-size: 0.85em"
)
_PICTURE = "width: 100%; height: 100%; position: absolute; inset: 0; object-fit: cover"
_NAME = (
    "display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden;"
    " overflow-wrap: anywhere"
)
_LINE = "display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap"


def picture_cards(holdings: pd.DataFrame, db: Path, most: int, *, embed: bool) -> str:
    """Return a card for each NFT, the newest holdings with a picture first, and count the rest.

    Args:
        holdings: rows of `frames.holdings` without amounts of 0.
        db: the database, whose provider's pictures are allowed.
        most: the most NFTs.
        embed: download the pictures; otherwise, they load when the page opens.
    """
    from nftsync.frames import brief

    newest = holdings.sort_values("held_since", ascending=False, kind="stable")
    nfts = newest.drop_duplicates("token_id")
    images = configured_images()._replace(provider=provider_address(db))
    nfts = nfts.assign(address=addresses(nfts, images))
    without = nfts["address"].map(lambda address: address.url is None).astype(bool)
    total, nfts = len(nfts), nfts.iloc[without.argsort(kind="stable")].head(most)
    shown = nfts["address"].tolist()
    if embed:
        embedded = embed_images((address.url for address in shown), images)
        shown = [embedded.get(address.url or "", address) for address in shown]
    wallets = (
        newest[newest["token_id"].isin(nfts["token_id"])].groupby("token_id")["wallet_id"].size()
    )
    names = brief(nfts[["name", "token_id"]], width=_LONGEST).iloc[:, 0]
    holders = brief(nfts[["wallet_label", "wallet_id"]], width=_LONGEST).iloc[:, 0]
    columns = (names, holders, wallets.loc[nfts["token_id"]], shown, nfts.itertuples())
    cards = "".join(
        _card(name, holder if count == 1 else counted(count, "wallet"), address, nft)
        for name, holder, count, address, nft in zip(*columns, strict=True)
    )
    rest = counted(total - len(nfts), "more NFT")
    more = f"<p>{rest}; <code>nftsync holdings</code> lists all.</p>" if total > len(nfts) else ""
    return f'<div class="nftsync-pictures">{cards}</div>{more}'


def _card(name: str, holder: str, address: Any, nft: Any) -> str:
    picture = escape(f"Not shown: {address.problem}" if address.problem else "No picture")
    if address.url is not None:
        picture = (
            f'The picture did not load.<img src="{escape(address.url)}" alt=""'
            f' style="{_PICTURE}" referrerpolicy="no-referrer" onerror="this.remove()">'
        )
    many = "" if nft.amount in {None, 1} else f", amount {nft.amount:,}"
    # Most names begin with their collection's.
    is_named = isinstance(nft.collection, str) and not name.startswith(nft.collection)
    lines = [nft.collection, f"{holder}{many}"] if is_named else [f"{holder}{many}"]
    return (
        f'<div style="{_CARD}"><div style="{_TILE}">{picture}</div>'
        f'<b style="{_NAME}"><bdi>{escape(name)}</bdi></b>'
        + "".join(
            f'<div style="{_LINE}"><bdi>{escape(without_controls(line))}</bdi></div>'
            for line in lines
        )
        + "</div>"
    )
