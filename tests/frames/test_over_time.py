"""Holdings over time, against what was held at each of the times."""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, rows_of, wallet_id
from tests.kit.histories import READS, Histories, Read, moment, size

# Spans begin at any time, also before the first read.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(the history begins|no balances are known):nftsync.NftsyncWarning"
)

LABELS = {wallet_id(1): "Vault", wallet_id(2): "Vault", wallet_id(3): "Desk"}


def sums(
    held: dict[tuple[str, str], int | str], by: str | None, contracts: dict[str, Any]
) -> dict[Any, tuple[int, int, int]]:
    """Holdings, amount and unknown amounts of each group."""
    found: dict[Any, tuple[int, int, int]] = {}
    for (wallet, token), amount in held.items():
        group = {None: None, "wallet_id": wallet, "wallet_label": LABELS.get(wallet)}
        key = group.get(by, contracts[token])
        count, total, unknown = found.get(key, (0, 0, 0))
        known = amount if isinstance(amount, int) else 0
        found[key] = count + 1, total + known, unknown + isinstance(amount, str)
    return found


@settings(max_examples=40)
@given(
    reads=READS,
    by=st.sampled_from([None, "wallet_id", "wallet_label", "contract_address", "collection"]),
    start=st.none() | st.integers(-1, 12),
    every=st.sampled_from([None, "1s", "4s", timedelta(seconds=7)]),
)
def test_each_row_is_what_was_held_then(
    histories: Histories, reads: list[Read], by: str | None, start: int | None, every: Any
) -> None:
    clock = histories.play(reads)
    histories.label(LABELS)
    begin = None if start is None else moment(start)
    frame = frames.holdings_over_time(histories.path, by, begin, moment(clock + 12), every)
    frame["group"] = frame[by] if by else None
    today = rows_of(frames.tokens(histories.path), ["token_id", "contract_address"])
    contracts = {row["token_id"]: row["contract_address"] for row in today}
    rows = rows_of(frame, list(frame))
    for time, of_time in groupby(rows, lambda row: row["at"]):
        held = sums(histories.held(time), by, contracts)
        for row in of_time:
            expected = held.pop(row["group"], (0, 0, 0))
            assert (row["holdings"], row["amount"], row["unknown_amounts"]) == expected
        # Without periods, groups in which nothing changed have no row then.
        assert every is None or not held
    for _, of_group in frame.groupby("group", dropna=False):
        moved = of_group["arrived"] + of_group["first_seen"] - of_group["left"]
        assert (of_group["holdings"].diff().iloc[1:] == moved.iloc[1:]).all()
    log = [each for each in histories.log() if size(each.old) != size(each.new)]
    later = [each for each in log if begin is None or each.at >= begin]
    came = [each for each in later if size(each.old) == 0]
    assert frame["first_seen"].sum() == sum(each.baseline for each in came)
    assert frame["arrived"].sum() == sum(not each.baseline for each in came)
    assert frame["left"].sum() == sum(size(each.new) == 0 for each in later)


def test_periods_end_with_the_day_and_the_last_read(build: Builder) -> None:
    day = 86_400
    build.wallet(1, label="Vault", synced_at=at(3 * day + 60))
    build.wallet(2)
    for token in (1, 2):
        build.token(token, contract_address="0x" + "aB" * 20)
    build.change(1, 1, None, "2", 10, baseline=1)
    build.change(2, 2, None, str(2**255), day)
    build.change(2, 2, str(2**255), "7", day + 5)
    build.change(1, 1, "2", None, 2 * day + 1)
    frame = frames.holdings_over_time(build.path, every="1d")
    ends = [f"2026-03-0{n}T23:59:59.999999Z" for n in (1, 2, 3)]
    assert list(frame["at"]) == [pd.Timestamp(each) for each in (*ends, at(3 * day + 60))]
    assert frame["holdings"].tolist() == [1, 2, 1, 1]
    assert frame["amount"].tolist() == [2, 9, 7, 7]
    assert frame[["arrived", "left", "first_seen"]].to_numpy().tolist() == [
        *([0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0])
    ]
    contracts = frames.holdings_over_time(build.path, "contract")
    address = "0x" + "aB" * 20
    assert contracts.iloc[0, 1:4].tolist() == [address.lower(), address, "0xabab…abab"]
    labels = frames.holdings_over_time(build.path, "wallet_id")["wallet_label"]
    assert labels.fillna("").tolist() == ["Vault", "", "", "Vault"]
    by_wallet = frames.holdings_over_time(build.path, "wallet_label", every="1d")
    assert by_wallet["wallet_label"].fillna("").tolist() == ["Vault", ""] * 4
    sparse = frames.holdings_over_time(build.path, exclude=wallet_id(1))
    assert sparse["amount"].tolist() == [2**255, 7]
    begun = frames.holdings_over_time(build.path, start=at(day + 1), end=at(day + 5))
    assert begun[["holdings", "amount", "arrived"]].to_numpy().tolist() == [
        [2, 2 + 2**255, 0],
        [2, 9, 0],
    ]


def test_what_cannot_be_shown_over_time(small_database: Path, build: Builder) -> None:
    over_time = frames.holdings_over_time
    for seconds in (0, 20_000_000):
        build.change(seconds and 1, 1, None, "1", seconds)
    begun_long_ago = build.close()
    assert over_time(small_database, start="today").empty
    assert over_time(small_database, end="2000-01-01", every="1d").empty
    with pytest.raises(InputError, match=r"did you mean 'wallet_label'\? use one of contract"):
        over_time(small_database, "wallet_lable")
    with pytest.raises(InputError, match="is after end"):
        over_time(small_database, start=at(5), end=at(4))
    with pytest.raises(InputError, match="not a period; use a duration from 1s to a century"):
        over_time(small_database, every=timedelta(0))
    with pytest.raises(InputError, match="choose a longer period"):
        over_time(begun_long_ago, "wallet_id", every="1s")


@pytest.mark.parametrize(
    ("freq", "ends"),
    [
        ("ME", ["2026-03-31", "2026-04-30", "2026-05-30"]),
        ("2ME", ["2026-04-30", "2026-05-30"]),
        ("QE", ["2026-03-31", "2026-05-30"]),
        ("QE-APR", ["2026-04-30", "2026-05-30"]),
        ("YE", ["2026-05-30"]),
    ],
)
def test_calendar_periods_end_in_utc_and_every_is_another_name(
    build: Builder, freq: str, ends: list[str]
) -> None:
    build.wallet(1, synced_at=at(90 * 86_400))
    build.token(1)
    build.change(1, 1, None, "2", 31 * 86_400 - 1, baseline=1)
    frame = frames.holdings_over_time(build.path, freq=freq)
    assert [str(time)[:10] for time in frame["at"]] == ends
    assert all(str(time)[11:19] == "23:59:59" for time in frame["at"].iloc[:-1])
    assert frame["holdings"].tolist() == [1] * len(ends)
    assert frame.equals(frames.holdings_over_time(build.path, every=freq))
    with pytest.raises(InputError, match=r"freq='BME' is not a period; .* ME, QE"):
        frames.holdings_over_time(build.path, freq="BME")


def test_weeks_end_on_sunday_or_the_named_day(build: Builder) -> None:
    build.wallet(1, synced_at=at(14 * 86_400))  # from Sunday, 1 March, to Sunday, 15 March
    build.token(1)
    build.change(1, 1, None, "2", 10, baseline=1)
    for freq, days in (("W", [1, 8, 15]), ("7d", [1, 8, 15]), ("W-WED", [4, 11, 15])):
        frame = frames.holdings_over_time(build.path, freq=freq)
        assert frame["at"].dt.day.tolist() == days
