"""Hidden contracts and tokens: frames with and without them, and the number left out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames, gallery
from nftsync.errors import InputError
from tests.kit.database import Builder, at, token_id, wallet_id
from tests.kit.histories import READS, TOKENS, Histories, Read, moment
from tests.kit.readers import ENTRIES


class Hidden(NamedTuple):
    """A row of the table `hidden`: a contract or the id of a token."""

    contract: str | None
    token_id: str | None


def hide(connection: sqlite3.Connection, *entries: Hidden) -> None:
    connection.executemany(
        "INSERT INTO hidden (contract, token_id, source, hidden_at) VALUES (?, ?, 'given', ?)",
        [(*entry, at(2)) for entry in entries],
    )


SOME = st.sets(
    st.sampled_from([Hidden("a", None), Hidden("b", None)])
    | st.sampled_from([Hidden(None, token_id(number)) for number in TOKENS])
)
EXACT: dict[str, Any] = {"amounts": "exact"}
#: Frames in which each row is of one token, as calls with two times.
BY_TOKEN: dict[str, Callable[..., pd.DataFrame]] = {
    "holdings": lambda db, _start, _end, **hidden: frames.holdings(db, **EXACT, **hidden),
    "as_of": lambda db, _start, end, **hidden: frames.holdings(db, as_of=end, **EXACT, **hidden),
    "diff": lambda db, start, end, **hidden: frames.diff(db, start, end, **EXACT, **hidden),
    "transfers": lambda db, *times, **hidden: frames.transfers(db, *times, **EXACT, **hidden),
    "ages": lambda db, _start, end, **hidden: frames.holding_ages(db, at=end, **EXACT, **hidden),
    "quality": lambda db, _start, _end, **hidden: frames.quality(db, **hidden),
}


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other.reset_index(drop=True))


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@settings(max_examples=12)
@given(reads=READS, entries=SOME, times=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_frames_leave_out_exactly_the_rows_of_hidden_tokens_and_count_them(
    histories: Histories, reads: list[Read], entries: set[Hidden], times: tuple[int, int]
) -> None:
    histories.play(reads)
    db, begin = histories.path, histories.begin()
    start, end = (max(moment(time), begin) for time in sorted(times))
    whole = {name: read(db, start, end) for name, read in BY_TOKEN.items()}
    statement = frames.statement(db, start, end, "wallet_id", **EXACT)
    tokens = frames.tokens(db)
    assert not any("hidden" in frame.attrs for frame in whole.values())
    with closing(sqlite3.connect(db)) as connection, connection:
        hide(connection, *entries)
    is_hidden = tokens["contract"].isin([x.contract for x in entries if x.contract])
    is_hidden |= tokens["token_id"].isin([x.token_id for x in entries if x.token_id])
    hidden = tokens["token_id"][is_hidden]
    for name, read in BY_TOKEN.items():
        assert_same(read(db, start, end, hidden=True), whole[name])
        visible = read(db, start, end)
        left_out = whole[name][whole[name]["token_id"].isin(hidden)]
        assert_same(visible, whole[name].drop(index=left_out.index))
        if name in {"holdings", "as_of"}:
            left_out = left_out[left_out["held_since"].notna()]
        assert visible.attrs.get("hidden", 0) == len(left_out)
    assert_same(frames.statement(db, start, end, "wallet_id", hidden=True, **EXACT), statement)
    visible = frames.statement(db, start, end, "wallet_id", **EXACT)
    for name in (*ENTRIES, *(f"{name}_amount" for name in ENTRIES)):
        assert sum(visible[name][:-1]) == visible[name].iloc[-1] == statement[name].iloc[-1]
    names = visible["wallet_id"].tolist()
    assert "hidden" not in names or names[-2:] == ["hidden", "total"]
    last = frames.holdings_over_time(db).tail(1)
    assert last["holdings"].sum() == frames.holdings(db)["held_since"].notna().sum()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Return three wallets that hold a cat and a hidden token of spam each."""
    build = Builder(tmp_path / "hidden.db")
    build.insert("contracts", contract="KTspam", contract_address="KTspam", given_name="Spam")
    build.state(1, 1, 1, 1)
    extra = '{"metadata": {"attributes": [{"trait_type": "hat", "value": "red"}]}}'
    for number in (1, 2, 3):
        build.wallet(number, synced_at=at(50))
        build.token(number, contract_address="KTcats", name=f"Cat #{number}", edition_id=number)
        build.token(10 + number, contract_address="KTspam", name="Claim", extra=extra)
        for token in (number, 10 + number):
            build.balance(number, token, "1", 1, held_since=at(1))
            build.change(number, token, None, "1", 1, baseline=1)
    hide(build.connection, Hidden("KTspam", None))
    return build.close()


def test_measures_and_galleries_leave_hidden_tokens_out_and_tables_do_not(db: Path) -> None:
    measures: Iterable[Callable[..., pd.DataFrame]] = [
        frames.concentration,
        frames.editions,
        frames.collections,
        frames.holdings_over_time,
        frames.overlap,
        frames.traits,
    ]
    for measure in measures:
        assert measure(db).attrs["hidden"] == 3
        assert "hidden" not in measure(db, hidden=True).attrs
    assert frames.concentration(db)["contract"].tolist() == ["KTcats"]
    assert frames.concentration(db, exclude=[wallet_id(1)]).attrs["hidden"] == 2
    assert frames.collections(db)["contract"].tolist() == ["KTcats"]
    both = frames.collections(db, hidden=True)
    assert both[["collection", "held"]].values.tolist() == [["KTcats", 3], ["Spam", 3]]
    assert frames.collections(db, contract="KTcats").attrs == {}
    assert frames.traits(db).empty
    assert len(frames.traits(db, hidden=True)) == 3
    assert [len(gallery(db)), len(gallery(db, hidden=True))] == [3, 6]
    for frame in (frames.tokens(db), frames.changes(db)):
        assert (len(frame), frame.attrs) == (6, {})
    held = frames.holdings(db)
    for step in (held.head(1), held[held["amount"] > 0], held.assign(x=np.int64(1))):
        assert step.attrs["hidden"] == 3
    assert frames.concentration(frames.holdings(db)).attrs["hidden"] == 3
    assert frames.holdings(db, contract="Spam").attrs["hidden"] == 3
    with pytest.raises(InputError, match="hidden= filters a database only; use it in frames"):
        frames.concentration(frames.holdings(db), hidden=True)


DRAW: list[Callable[..., Any]] = [
    charts.concentration,
    charts.holders,
    charts.holding_ages,
    charts.holdings_by_collection,
    charts.overlap,
]


@pytest.mark.parametrize("draw", DRAW)
def test_charts_say_how_many_holdings_they_leave_out(draw: Callable[..., Any], db: Path) -> None:
    note = "3 hidden holdings left out"
    assert draw(db).layout.title.subtitle.text.endswith(f"<br>{note}")
    assert "hidden" not in draw(db, hidden=True).layout.title.subtitle.text
    if draw is not charts.holding_ages:
        assert note in draw(frames.holdings(db)).layout.title.subtitle.text
        with pytest.raises(InputError, match="hidden= filters a database only"):
            draw(frames.holdings(db), hidden=True)
    with closing(sqlite3.connect(db)) as connection, connection:
        hide(connection, Hidden("KTcats", None))
    assert "6 hidden holdings left out" in draw(db).layout.annotations[0].text


def test_a_chart_over_time_says_how_many_holdings_it_leaves_out(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        for wallet, old, new in ((1, "1", None), (2, None, "1")):
            connection.execute(
                "INSERT INTO balance_change_rows"
                " (wallet_no, token_no, old_amount, new_amount, observed_at, baseline)"
                " VALUES (?, 1, ?, ?, ?, 0)",
                (wallet, old, new, at(60)),
            )
    for draw in (charts.holdings_over_time, charts.arrivals_and_departures):
        assert "<br>3 hidden holdings left out" in draw(db).layout.title.subtitle.text
        assert "hidden" not in draw(db, hidden=True).layout.title.subtitle.text
