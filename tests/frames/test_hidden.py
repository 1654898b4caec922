"""Hidden contracts and tokens: frames with and without them, and the number left out."""

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames, gallery
from nftsync.errors import InputError
from tests.kit.database import at, token_id, wallet_id
from tests.kit.histories import READS, TOKENS, moment
from tests.kit.readers import ENTRIES

INSERT = "INSERT INTO hidden (contract, token_id, source, hidden_at) VALUES (?, ?, 'given', '2026')"
SOME = st.sets(
    st.sampled_from([("a", None), ("b", None), *((None, token_id(number)) for number in TOKENS)])
)
EXACT = {"amounts": "exact"}
#: Frames in which each row is of one token, as calls with two times.
BY_TOKEN = {
    "holdings": lambda db, _start, _end, **hidden: frames.holdings(db, **EXACT, **hidden),
    "as_of": lambda db, _start, end, **hidden: frames.holdings(db, as_of=end, **EXACT, **hidden),
    "diff": lambda db, start, end, **hidden: frames.diff(db, start, end, **EXACT, **hidden),
    "transfers": lambda db, *times, **hidden: frames.transfers(db, *times, **EXACT, **hidden),
    "ages": lambda db, _start, end, **hidden: frames.holding_ages(db, at=end, **EXACT, **hidden),
    "quality": lambda db, _start, _end, **hidden: frames.quality(db, **hidden),
}


def assert_same(one, other):
    pd.testing.assert_frame_equal(one, other.reset_index(drop=True))


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@settings(max_examples=10)
@given(reads=READS, entries=SOME, times=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_frames_leave_out_exactly_the_rows_of_hidden_tokens_and_count_them(
    histories, reads, entries, times
):
    histories.play(reads)
    db, begin = histories.path, histories.begin()
    span = [max(moment(time), begin) for time in sorted(times)]
    whole = {name: read(db, *span) for name, read in BY_TOKEN.items()}
    statement = frames.statement(db, *span, "wallet_id", **EXACT)
    tokens = frames.tokens(db)
    assert not any("hidden" in frame.attrs for frame in whole.values())
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.executemany(INSERT, entries)
    is_hidden = [
        bool({(contract, None), (None, token)} & entries)
        for contract, token in zip(tokens["contract"], tokens["token_id"], strict=True)
    ]
    hidden = tokens["token_id"][is_hidden]
    for name, read in BY_TOKEN.items():
        assert_same(read(db, *span, hidden=True), whole[name])
        visible = read(db, *span)
        left_out = whole[name][whole[name]["token_id"].isin(hidden)]
        assert_same(visible, whole[name].drop(index=left_out.index))
        if name in {"holdings", "as_of"}:
            left_out = left_out[left_out["held_since"].notna()]
        assert visible.attrs.get("hidden", 0) == len(left_out)
    assert_same(frames.statement(db, *span, "wallet_id", hidden=True, **EXACT), statement)
    visible = frames.statement(db, *span, "wallet_id", **EXACT)
    for name in (*ENTRIES, *(f"{name}_amount" for name in ENTRIES)):
        assert sum(visible[name][:-1]) == visible[name].iloc[-1] == statement[name].iloc[-1]
    names = visible["wallet_id"].tolist()
    assert "hidden" not in names or names[-2:] == ["hidden", "total"]
    last = frames.holdings_over_time(db).tail(1)
    assert last["holdings"].sum() == frames.holdings(db)["held_since"].notna().sum()


@pytest.fixture
def spam(build):
    """Three wallets that hold a cat and a hidden token of spam each; the first cat has moved."""
    build.insert("contracts", contract="KTspam", contract_address="KTspam", given_name="Spam")
    build.state(1, 1, 1, 1)
    extra = '{"metadata": {"attributes": [{"trait_type": "hat", "value": "red"}]}}'
    for number in (1, 2, 3):
        build.wallet(number, synced_at=at(50))
        build.token(number, contract_address="KTcats", name=f"Cat #{number}", edition_id=number)
        build.token(10 + number, contract_address="KTspam", name="Claim", extra=extra)
        for token in (number, 10 + number):
            build.balance(max(number, 2) if token == 1 else number, token, "1", 1)
            build.change(number, token, None, "1", 1, baseline=1)
    build.change(1, 1, "1", None, 60)
    build.change(2, 1, None, "1", 60)
    build.connection.execute(INSERT, ("KTspam", None))
    return build


def test_measures_and_galleries_leave_hidden_tokens_out_and_tables_do_not(spam):
    db = spam.path
    measures = ["concentration", "editions", "collections", "holdings_over_time", "overlap"]
    for measure in (getattr(frames, name) for name in (*measures, "traits")):
        assert measure(db).attrs["hidden"] == 3
        assert "hidden" not in measure(db, hidden=True).attrs
    assert frames.concentration(db)["contract"].tolist() == ["KTcats"]
    assert frames.concentration(db, exclude=[wallet_id(1)]).attrs["hidden"] == 2
    assert frames.collections(db)["contract"].tolist() == ["KTcats"]
    both = frames.collections(db, hidden=True)
    assert both[["collection", "held"]].values.tolist() == [["Spam", 3], ["KTcats", 3]]
    assert frames.collections(db, contract="KTcats").attrs == {}
    assert [len(frames.traits(db)), len(frames.traits(db, hidden=True))] == [0, 3]
    assert [len(gallery(db)), len(gallery(db, hidden=True))] == [3, 6]
    for frame, rows in ((frames.tokens(db), 6), (frames.changes(db), 8)):
        assert (len(frame), frame.attrs) == (rows, {})
    held = frames.holdings(db)
    steps = (held.head(1), held[held["amount"] > 0], held.assign(x=np.int64(1)))
    of_steps = (frames.concentration(held), frames.holdings(db, contract="Spam"))
    assert {step.attrs["hidden"] for step in (*steps, *of_steps)} == {3}
    with pytest.raises(InputError, match="hidden= filters a database only; use it in frames"):
        frames.concentration(held, hidden=True)


OF_FRAMES = (charts.concentration, charts.holders, charts.holdings_by_collection, charts.overlap)
OVER_TIME = (charts.holdings_over_time, charts.arrivals_and_departures)


@pytest.mark.parametrize("draw", [*OF_FRAMES, charts.holding_ages, *OVER_TIME])
def test_charts_say_how_many_holdings_they_leave_out(draw, spam):
    db, note = spam.path, "3 hidden holdings left out"
    assert f"<br>{note}" in draw(db).layout.title.subtitle.text
    assert "hidden" not in draw(db, hidden=True).layout.title.subtitle.text
    if draw in OF_FRAMES:
        assert note in draw(frames.holdings(db)).layout.title.subtitle.text
        with pytest.raises(InputError, match="hidden= filters a database only"):
            draw(frames.holdings(db), hidden=True)
    spam.connection.execute(INSERT, ("KTcats", None))
    assert "hidden holdings left out" in draw(db).layout.annotations[0].text
