"""Odd values survive the way from the provider to the DataFrame, to the character."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nftsync
from nftsync import frames
from tests.kit.provider import Provider, token, wallet

AMOUNTS = [str(2**256 - 1), "0", "0007", "1.5", "", "-1", "1" * 101, "٣", "1", "1", "1"]
EXACT = [2**256 - 1, 0, 7, None, None, None, None, None, 1, 1, 1]
NAMES = ["🚀 to the moon 🌕", "شجرة الزيتون", "\u202eevil\u202c", "nul\x00inside", " padded ", ""]
ABSENT = [None, {}, {"metadata": None}, {"metadata": {}}, {"metadata": {"name": None}}]


def listed(number: int, amount: str, about: Any) -> dict[str, Any]:
    return {"tokenId": token(number), "amount": amount, "token": about}


def named(number: int, name: str) -> dict[str, Any]:
    return {"id": token(number), "metadata": {"name": name}}


def test_amounts_and_names_come_out_as_sent_and_what_is_absent_as_missing(
    lying: Provider, database: Path
) -> None:
    tokens = [*(named(number, name) for number, name in enumerate(NAMES)), *ABSENT]
    both = zip(AMOUNTS, tokens, strict=True)
    lying.holds(wallet(0), *(listed(number, *each) for number, each in enumerate(both)))
    nftsync.sync([wallet(0)], base_url=lying.url, database=database, progress=False)
    frame = frames.holdings(database).sort_values("token_id")
    assert frame["amount"].dtype == object
    assert frame["amount"].tolist() == EXACT
    assert frame["amount_text"].tolist() == AMOUNTS
    assert frame["name"].tolist()[: len(NAMES)] == NAMES
    assert frame["name"].iloc[len(NAMES) :].isna().all()
    assert frame["edition_id"].isna().all()
