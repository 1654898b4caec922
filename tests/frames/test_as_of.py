"""What was known at a time, against a plain replay of the logs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import StoreError
from tests.kit.database import Builder, at, rows_of
from tests.kit.histories import READS, Change, Histories, Read, moment, size

CONTENT = ("name", "edition_id", "contract_address", "extra")


def replayed(log: list[Change], then: str) -> dict[tuple[str, str], dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for change in log:
        if change.at <= then:
            old = rows.pop((change.wallet, change.token), None)
            if change.new is not None:
                since = old["held_since"] if old and old["held_since"] else change.at
                rows[change.wallet, change.token] = {
                    "amount_text": change.new,
                    "held_since": None if size(change.new) == 0 else since,
                    "balance_updated_at": change.at,
                }
    return rows


def described(path: Path, then: str) -> dict[str, dict[str, Any]]:
    """The tokens known at a time, played forwards from their first sight."""
    with closing(sqlite3.connect(path)) as connection:
        names = ("token_id", "first_seen_at", *CONTENT)
        tokens = {
            row[0]: dict(zip(names, row, strict=True))
            for row in connection.execute(f"SELECT {', '.join(names)} FROM tokens")
        }
        changes = connection.execute(
            "SELECT token_id, before, after, observed_at FROM token_changes ORDER BY change_id"
        ).fetchall()
    for token, before, _, _ in reversed(changes):
        tokens[token] |= {n: v for n, v in json.loads(before).items() if n in CONTENT}
    for about in tokens.values():
        about["updated_at"] = about["first_seen_at"]
    for token, _, after, observed in changes:
        if observed <= then:
            tokens[token] |= {n: v for n, v in json.loads(after).items() if n in CONTENT}
            tokens[token]["updated_at"] = observed
    return {token: about for token, about in tokens.items() if about["first_seen_at"] <= then}


#: Here, what there is counts, not why there is nothing.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


@settings(max_examples=25)
@given(reads=READS, seconds=st.integers(-1, 20))
def test_as_of_is_the_replay_and_that_of_the_end_is_now(
    histories: Histories, reads: list[Read], seconds: int
) -> None:
    end = moment(histories.play(reads))
    path, then = histories.path, moment(seconds)
    tokens = described(path, then)
    expected = []
    for (wallet, token), row in replayed(list(histories.log()), then).items():
        about = {name: value for name, value in tokens[token].items() if name in CONTENT[:-1]}
        updated = {"token_updated_at": tokens[token]["updated_at"]}
        expected.append({"wallet_id": wallet, "token_id": token, **row, **about, **updated})
    frame = frames.holdings(path, as_of=then, amounts="exact")
    found = rows_of(frame, list(expected[0])) if expected else rows_of(frame, ["wallet_id"])

    def order(row: dict[str, Any]) -> tuple[str, str]:
        return row["wallet_id"], row["token_id"]

    assert sorted(found, key=order) == sorted(expected, key=order)
    columns = ["token_id", "first_seen_at", *CONTENT, "updated_at"]
    shown = rows_of(frames.tokens(path, as_of=then), columns)
    assert {row["token_id"]: row for row in shown} == tokens

    now = frames.holdings(path).drop(columns="wallet_synced_at")
    pd.testing.assert_frame_equal(frames.holdings(path, as_of=end)[list(now.columns)], now)
    pd.testing.assert_frame_equal(frames.tokens(path, as_of=end), frames.tokens(path))


def test_certainty(build: Builder) -> None:
    build.wallet(1)
    build.token(1, seen=-5)
    build.change(1, 1, None, "1", -5)
    build.state(1, 1, 5, 2)
    build.state(1, 8, 8, 9)
    build.state(1, 20, 20, 21)
    for then, before, after, certainty in [
        (0.5, None, 1, "gap"),  # before the first read
        (1.5, None, 1, "gap"),  # read, but not yet stored
        (2, 1, 5, "bracketed"),
        (5, 1, 5, "bracketed"),
        (6, 5, 8, "gap"),
        (8.5, 5, 8, "gap"),
        (9, 8, 20, "gap"),
        (50, 20, None, "open"),
    ]:
        (row,) = frames.holdings(build.path, as_of=at(then)).to_dict("records")
        around = [pd.NaT if each is None else pd.Timestamp(at(each)) for each in (before, after)]
        assert [row["confirmed_before"], row["confirmed_after"]] == around
        assert row["certainty"] == certainty
        assert row["wallet_synced_at"] == around[0] or before is None


def test_a_broken_undo_is_an_error(build: Builder) -> None:
    build.token(1)
    change = build.token_change(1, '{"name": []}', "{}", 5)
    with pytest.raises(StoreError, match=f"token change {change}"):
        frames.tokens(build.path, as_of=at(1))
