from __future__ import annotations

from pathlib import Path

import pandas as pd

from nftsync import frames
from tests.kit.database import Builder, at


def test_collections(small_database: Path) -> None:
    frame = frames.collections(small_database)
    assert frame.astype(object).where(frame.notna(), None).drop(
        columns=["first_seen_at", "updated_at"]
    ).to_dict("split")["data"] == [
        ["0x" + "aB" * 20, "0x" + "ab" * 20, "0xabab…abab", None, 2, 1, 2, 2**256 + 2],
        ["KT1abc", "KT1abc", "KT1abc", None, 1, 1, 1, 0],
        [None, None, None, None, 1, 0, 0, 0],
    ]
    assert all(type(amount) is int for amount in frame["amount"])


def test_order_times_and_zero_amounts(build: Builder) -> None:
    for wallet in (1, 2, 3):
        build.wallet(wallet)
    for token, (contract, seen) in enumerate(
        [("b", 5), ("a", 1), ("b", 2), ("c", 3), ("A", 4)], start=1
    ):
        build.token(token, seen, contract_address=contract, updated_at=at(seen + 10))
    build.balance(1, 3, "00")
    build.balance(1, 4, "2")
    build.balance(2, 4, "2")
    build.balance(3, 4, "000")
    build.balance(1, 1, "1" + "0" * 99)
    build.balance(1, 5, "")
    frame = frames.collections(build.path)
    assert list(frame["contract_address"]) == ["c", "A", "b", "a"]
    assert list(frame["holders"]) == [2, 1, 1, 0]
    assert list(frame["held"]) == [1, 1, 1, 0]
    assert list(frame["tokens"]) == [1, 1, 2, 1]
    assert list(frame["amount"]) == [4, 0, 10**99, 0]
    assert frame["first_seen_at"][2] == pd.Timestamp(at(2))
    assert frame["updated_at"][2] == pd.Timestamp(at(15))
