"""Exact texts and amounts, times, and what is missing; what is no time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import Builder, at, token_id, wallet_id

#: As sent, exactly, and approximately.
AMOUNTS = [
    (str(2**256 - 1), 2**256 - 1, float(2**256 - 1)),
    ("0", 0, 0.0),
    ("0007", 7, 7.0),
    ("9" * 100, int("9" * 100), 1e100),
    ("1" + "0" * 100, None, 1e100),
    ("9" * 400, None, math.nan),
    ("1.5", None, 1.5),
    ("-3", None, -3.0),
    *((text, None, math.nan) for text in ("", "1e3", " 1", "1_000", "٣", "1\n", "1\x00", "NaN")),
]


def test_amounts(build: Builder) -> None:
    build.wallet(1)
    for number, (text, *_) in enumerate(AMOUNTS, start=1):
        build.token(number)
        build.balance(1, number, text)
        build.change(1, number, None, text, 1)
    texts, exact, about = map(list, zip(*AMOUNTS, strict=True))
    for frame in (frames.holdings(build.path), frames.holdings(build.path, as_of=at(1))):
        assert frame["amount_text"].tolist() == texts
        assert frame["amount"].tolist() == exact
        assert [*map(type, frame["amount"])] == [*map(type, exact)]
        assert frame["amount_float"].tolist() == pytest.approx(about, nan_ok=True)
    changes = frames.changes(build.path)
    assert (changes["new_amount"].tolist(), changes["new_amount_text"].tolist()) == (exact, texts)
    assert changes["old_amount"].tolist() == [None] * len(texts)
    assert changes["old_amount_text"].isna().all()


HOSTILE = "a\x00b \U0001f409\u200d é \u202eGNP.exe מזל\r\n<script>'\";--\ufffe"


def test_text_survives_exactly(build: Builder) -> None:
    build.wallet(1, label=HOSTILE, error=HOSTILE)
    build.token(1, name=HOSTILE, contract_address=HOSTILE, extra=HOSTILE)
    build.token(2, name="", contract_address="a")
    build.balance(1, 1, HOSTILE)
    build.balance(1, 2, "1")
    holding, other = frames.holdings(build.path).to_dict("records")
    for name in ("wallet_label", "name", "contract_address", "amount_text"):
        assert holding[name] == HOSTILE
    assert other["name"] == ""
    assert frames.wallets(build.path)["error"][0] == HOSTILE
    assert frames.tokens(build.path)["extra"][0] == HOSTILE
    assert len(frames.holdings(build.path, contract=HOSTILE)) == 1
    assert set(frames.collections(build.path)["contract_address"]) == {HOSTILE, "a"}
    build.connection.execute("UPDATE tokens SET name = CAST(X'61FF' AS TEXT)")
    with pytest.raises(StoreError, match="not UTF-8"):
        frames.tokens(build.path)


def test_tables_show_their_rows(small_database: Path) -> None:
    wallets = frames.wallets(small_database)
    assert list(wallets["wallet_id"]) == [wallet_id(1), wallet_id(2), wallet_id(3)]
    assert list(wallets["tracked"]) == [True, False, True]
    assert list(wallets["status"]) == ["ok", "failed", "never"]
    token_changes = frames.token_changes(small_database)
    assert token_changes["token_id"][0] == token_id(1)
    assert token_changes["before"][0] == '{"name": "Uno"}'
    states = frames.wallet_states(small_database)
    assert states["last_read_at"][0] == pd.Timestamp(at(9))
    assert frames.runs(small_database)["finished_at"][0] is pd.NaT
    row = frames.holdings(small_database).iloc[1]
    assert row["edition_id"] is pd.NA
    assert np.isnan(row["description"])
    assert frames.webhooks(small_database)["created_at_utc"][0] == "yesterday"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (pd.DataFrame({"a": range(100)}), "a DataFrame"),
        (5, "5"),
        (pd.NaT, "NaT"),
        (b"x" * 1_000, "a bytes"),
        ("lately", "'lately'"),
        ("x" * 1_000, f"'{'x' * 60}'..."),
    ],
    ids=repr,
)
def test_what_is_no_time_is_named_shortly(small_database: Path, wrong: Any, said: str) -> None:
    for read, name in (
        *((frames.holdings, "as_of"), (frames.tokens, "as_of")),
        *((frames.changes, "since"), (frames.holding_ages, "at")),
    ):
        with pytest.raises(InputError) as raised:
            read(small_database, **{name: wrong})
        assert str(raised.value).startswith(f"{said} is not a time; ")
        assert "\n" not in str(raised.value)


def test_times_are_read_to_the_microsecond_whether_they_agree_or_not(build: Builder) -> None:
    first, last = "0001-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z"
    times = [(at(5), at(5)), (at(5), at(9)), (None, at(9)), (first, last), (last, last)]
    build.wallet(1)
    for token, (since, updated) in enumerate(times, start=1):
        build.token(token)
        build.balance(1, token, "1", held_since=since, updated_at=updated)
    found = frames.holdings(build.close())[["held_since", "balance_updated_at"]]
    expected = [
        (pd.NaT if since is None else pd.Timestamp(since), pd.Timestamp(updated))
        for since, updated in times
    ]
    assert list(found.itertuples(index=False, name=None)) == expected

    for column in ("held_since", "updated_at"):
        for written in ("soon", f"{at(1)}|{at(2)}", f"{at(1)}|", f"|{at(1)}"):
            build = Builder(build.path)
            build.wallet(1)
            build.token(1)
            build.balance(1, 1, "1", **{column: written})
            with pytest.raises(StoreError, match="a time that nftsync did not write"):
                frames.holdings(build.close())
