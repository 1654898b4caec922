"""The report's picture cards, without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nftsync.notebooks.gallery_cards import (
    configured_images,
    first_cards,
    make_cards,
    select_rows,
    with_embedded,
    with_other_fields,
)
from nftsync.notebooks.pages import part
from nftsync.text import counted

if TYPE_CHECKING:
    import pandas as pd


#: The number of cards up to which NFTs without a picture have one.
_WITHOUT = 12


def picture_cards(holdings: pd.DataFrame, db: Path, most: int, command: str, *, embed: bool) -> str:
    """Return a card for each NFT, those with a picture first, then the newest; count the rest.

    No amount is 0. `command` lists all holdings; `embed` downloads the pictures.
    """
    images = configured_images(database=db)
    newest = holdings.sort_values("held_since", ascending=False, kind="stable")
    nfts = newest.drop_duplicates("token_id")
    rows = select_rows(with_other_fields(nfts, db), images, hide_zero=False, pictures_first=True)
    columns = make_cards(rows, most)
    if embed:
        columns, _ = with_embedded(columns, images)
    pictured = sum(image is not None for image in columns.get("image", ()))
    cards = first_cards(columns, max(pictured, min(most, _WITHOUT)))
    wallets = holdings["token_id"].value_counts()
    for card, nft in zip(cards, rows.frame.itertuples(), strict=False):
        many = "" if nft.amount in {None, 1} else f", amount {nft.amount:,}"
        count = wallets[nft.token_id]
        card["holder"] = f"{card['label'] if count == 1 else counted(count, 'wallet')}{many}"
    more = counted(len(nfts) - len(cards), "more NFT") if len(nfts) > len(cards) else ""
    return part("pictures", cards=cards, more=more, command=command)
