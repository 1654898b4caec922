"""Exact amounts, texts and times of columns, and the columns that analyses take."""

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import Builder, at, token_id, wallet_id
from tests.kit.held_frames import exact_amount

#: Spans may begin before the first read.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
#: As sent, exactly, and approximately.
SENT = [
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


def test_amounts(build):
    build.wallet(1)
    for number, (text, *_) in enumerate(SENT, start=1):
        build.token(number)
        build.balance(1, number, text)
        build.change(1, number, None, text, 1)
    texts, exact, about = map(list, zip(*SENT, strict=True))
    for frame in (frames.holdings(build.path), frames.holdings(build.path, as_of=at(1))):
        assert frame["amount_text"].tolist() == texts
        assert frame["amount"].tolist() == exact
        assert [*map(type, frame["amount"])] == [*map(type, exact)]
        assert frame["amount_float"].tolist() == pytest.approx(about, nan_ok=True)
    changes = frames.changes(build.path)
    assert (changes["new_amount"].tolist(), changes["new_amount_text"].tolist()) == (exact, texts)
    assert changes[["old_amount", "old_amount_text"]].isna().all(axis=None)


HOSTILE = "a\x00b \U0001f409\u200d é \u202eGNP.exe מזל\r\n<script>'\";--\ufffe"


def test_text_survives_exactly(build):
    build.wallet(1, label=HOSTILE, error=HOSTILE)
    build.token(1, name=HOSTILE, contract_address=HOSTILE, extra=HOSTILE)
    build.token(2, name="", contract_address="a")
    build.balance(1, 1, HOSTILE)
    build.balance(1, 2, "1")
    held = frames.holdings(build.path)
    columns = ["wallet_label", "name", "contract_address", "amount_text"]
    assert held[columns].to_numpy().tolist() == [[HOSTILE] * 4, [HOSTILE, "", "a", "1"]]
    assert frames.wallets(build.path)["error"][0] == HOSTILE
    assert frames.tokens(build.path)["extra"][0] == HOSTILE
    assert len(frames.holdings(build.path, contract=HOSTILE)) == 1
    assert set(frames.collections(build.path)["contract_address"]) == {HOSTILE, "a"}
    build.connection.execute("UPDATE tokens SET name = CAST(X'61FF' AS TEXT)")
    with pytest.raises(StoreError, match="not UTF-8"):
        frames.tokens(build.path)


def test_times_are_read_to_the_microsecond_whether_they_agree_or_not(build):
    first, last = "0001-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z"
    times = [(at(5), at(5)), (at(5), at(9)), (None, at(9)), (first, last), (last, last)]
    build.wallet(1)
    for token, (since, updated) in enumerate(times, start=1):
        build.token(token)
        build.balance(1, token, "1", held_since=since, updated_at=updated)
    found = frames.holdings(build.path)[["held_since", "balance_updated_at"]]
    expected = [(pd.Timestamp(since or "NaT"), pd.Timestamp(updated)) for since, updated in times]
    assert list(found.itertuples(index=False, name=None)) == expected
    for column in ("held_since", "updated_at"):
        for written in ("soon", f"{at(1)}|{at(2)}", f"{at(1)}|", f"|{at(1)}"):
            update = f"UPDATE balance_rows SET updated_at = ?1, {column} = ?2 WHERE token_no = 1"
            build.connection.execute(update, (at(1), written))
            with pytest.raises(StoreError, match="a time that nftsync did not write"):
                frames.holdings(build.path)


def test_tables_show_their_rows(small_database):
    wallets = frames.wallets(small_database)[["wallet_id", "tracked", "status"]]
    rows = [(1, True, "ok"), (2, False, "failed"), (3, True, "never")]
    assert wallets.to_numpy().tolist() == [[wallet_id(number), *rest] for number, *rest in rows]
    changes = frames.token_changes(small_database)[["token_id", "before"]]
    assert changes.to_numpy().tolist() == [[token_id(1), '{"name": "Uno"}']]
    assert frames.wallet_states(small_database)["last_read_at"][0] == pd.Timestamp(at(9))
    assert frames.runs(small_database)["finished_at"][0] is pd.NaT
    assert frames.webhooks(small_database)["created_at_utc"][0] == "yesterday"
    row = frames.holdings(small_database).iloc[1]
    assert row["edition_id"] is pd.NA
    assert np.isnan(row["description"])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (pd.DataFrame({"a": range(100)}), "a DataFrame"),
        *((5, "5"), (pd.NaT, "NaT"), (b"x" * 1_000, "a bytes"), ("lately", "'lately'")),
        ("x" * 1_000, f"'{'x' * 60}'..."),
    ],
    ids=repr,
)
def test_an_unusable_time_is_shortened_in_the_error(small_database, wrong, text):
    for read, name in (
        *((frames.holdings, "as_of"), (frames.tokens, "as_of")),
        *((frames.changes, "since"), (frames.holding_ages, "at")),
    ):
        with pytest.raises(InputError) as raised:
            read(small_database, **{name: wrong})
        assert str(raised.value).startswith(f"{text} is not a time; ")
        assert "\n" not in str(raised.value)


GREATEST = 2**63 - 1
#: Functions that read frames, their arguments, and the amount columns.
READ: list[tuple[Callable[..., pd.DataFrame], dict[str, Any], list[str]]] = [
    (frames.holdings, {}, ["amount"]),
    (frames.holdings, {"as_of": at(9)}, ["amount"]),
    (frames.changes, {}, ["old_amount", "new_amount"]),
    (frames.diff, {"start": at(0)}, ["before", "after"]),
    (frames.holdings_over_time, {}, ["amount"]),
    (frames.collections, {}, ["amount"]),
    (frames.concentration, {}, ["amount"]),
    (frames.editions, {}, ["held"]),
    (frames.holding_ages, {"at": at(9)}, ["amount"]),
]


def database(path: Path, amounts: list[tuple[int, str]]) -> Path:
    """Make a database of amounts, each of a wallet and a token of its own, read after START."""
    build = Builder(path)
    for wallet in {wallet for wallet, _ in amounts}:
        build.wallet(wallet)
    for token, (wallet, amount) in enumerate(amounts, start=1):
        build.token(token, contract_address=f"KT{token}", total_edition=1, name="A")
        build.balance(wallet, token, amount, 1)
        build.change(wallet, token, None, amount, 1)
    return build.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("amounts") / "nftsync.db"


def python_sum(values: pd.Series) -> int:
    return sum(int(value) for value in values if not pd.isna(value))


TEXTS = ["", "1.5", "-1", "000", "0007", "1" + "0" * 100, "9" * 100]
NUMBERS = st.integers(0, 9) | st.integers(2**61, 2**63) | st.integers(2**63, 2**256 - 1)
AMOUNT = NUMBERS.map(str) | st.sampled_from(TEXTS)


@settings(max_examples=3)
@given(st.lists(st.tuples(st.sampled_from([1, 2]), AMOUNT), min_size=1, max_size=6))
@example([(1, str(GREATEST)), (2, "0"), (2, "x")])
@example([(1, str(GREATEST)), (2, "1")])
@example([(1, str(2**62)), (1, str(2**62))])
@example([(1, "")])
def test_the_total_decides_the_kind_and_every_sum_is_exact(path, amounts):
    """Each frame has the kind that fits by default, and either kind on request."""
    database(path, amounts)
    total = sum(exact_amount(amount) or 0 for _, amount in amounts)
    for read, options, names in READ:
        frame, objects = read(path, **options), read(path, amounts="exact", **options)
        kind = "Int64" if total <= GREATEST else "object"
        assert set(map(str, frame[names].dtypes)) == {kind}
        assert set(objects[names].dtypes) == {np.dtype(object)}
        assert sum(python_sum(objects[name]) for name in names) == total
        for name in names:
            assert objects[name].map(type).isin([int, type(None)]).all()
            assert frame[name].sum() == python_sum(objects[name])
            assert frame[name].isna().tolist() == objects[name].isna().tolist()
            assert frame[name].dropna().tolist() == objects[name].dropna().tolist()
        if total <= GREATEST:
            assert_frame_equal(read(path, amounts="int64", **options), frame)
        else:
            assert_frame_equal(frame, objects)
            with pytest.raises(InputError, match=rf"the sum of .*{names[-1]} is {total:,}, above"):
                read(path, amounts="int64", **options)
        with pytest.raises(InputError, match="amounts='Int64' is unknown; use 'exact', 'int64'"):
            read(path, amounts="Int64", **options)


def test_the_filtered_rows_decide_the_kind(path):
    database(path, [(1, str(2**256 - 1)), (2, "7"), (2, "1.5")])
    for as_of in (None, at(9)):
        one = frames.holdings(path, wallet=wallet_id(2), as_of=as_of)
        assert (str(one["amount"].dtype), one["amount"].tolist()) == ("Int64", [7, pd.NA])
    diff = frames.diff(path, at(0), contract="KT2", amounts="int64")
    assert diff["after"].tolist() == [7]


MOST = 2**256 - 1


def frame_of(amounts: Any, **columns: Any) -> pd.DataFrame:
    """A wallet and a token each, of one contract."""
    count = len(amounts)
    return pd.DataFrame(
        {
            "wallet_id": [wallet_id(number) for number in range(count)],
            "token_id": [token_id(number) for number in range(count)],
            "contract_address": "KT1",
            "amount": amounts,
            **columns,
        }
    )


def objects(*amounts: object) -> pd.Series:
    return pd.Series(amounts, dtype=object)


def amounts_of(frame: pd.DataFrame, **options: Any) -> list[tuple[int, int]]:
    """Return the amount and the number of unknown amounts of each wallet, in order of ids."""
    found = frames.concentration(frame, by="wallet_id", amounts="exact", **options)
    found = found.sort_values("wallet_id")
    assert {type(amount) for amount in found["amount"]} <= {int}
    return list(zip(found["amount"], found["unknown_amounts"], strict=True))


def test_balances_of_zero_are_dropped_by_amount_or_by_text():
    texts = ["0", str(MOST), "0" * 101, "1.5", "", None, "0"]
    frame = frame_of(objects(0, MOST, None, None, None, None, 5), amount_text=texts)
    assert amounts_of(frame) == [(MOST, 0), (0, 1), (0, 1), (0, 1), (5, 0)]


TAKEN = [
    (np.array([1, 0, 3]), [(1, 0), (3, 0)]),
    (np.array([1, 2**63], dtype=np.uint64), [(1, 0), (2**63, 0)]),
    (pd.array([1, None, 0], dtype="Int64"), [(1, 0), (0, 1)]),
    (pd.array([1, None], dtype=pd.ArrowDtype(pa.int64())), [(1, 0), (0, 1)]),
    (objects(MOST, np.int64(2), np.uint8(0)), [(MOST, 0), (2, 0)]),
    (objects(MOST, float("nan"), pd.NA, pd.NaT), [(MOST, 0), *[(0, 1)] * 3]),
    (objects(10**100 - 1), [(10**100 - 1, 0)]),
    (pd.Series([], dtype=float), []),
]
REFUSED = [
    *(([1.0, None], "float64"), (["1", "2"], "str"), ([True, False], "bool")),
    *((objects(1, other), "mixed") for other in (2.0, Decimal(2), True, "2", np.True_)),
    (np.array([1, -1]), "negative"),
    (objects(10**100), "more than 100 digits"),
]


@pytest.mark.parametrize(("given", "exact"), TAKEN)
def test_integers_of_every_kind_are_taken_exactly(given, exact):
    assert amounts_of(frame_of(given)) == exact


@pytest.mark.parametrize(("given", "names"), REFUSED)
def test_inexact_amounts_are_refused(given, names):
    with pytest.raises(InputError, match=rf"column 'amount'.*{names}.*whole numbers"):
        frames.concentration(frame_of(given))


@pytest.mark.parametrize("name", ["wallet_id", "token_id", "amount", "contract_address"])
def test_columns_and_ids_that_are_missing_or_stand_twice_are_named(name):
    frame = frame_of(objects(1, 2))
    wrong = {rf"is named '{name}'.*frames\.holdings": frame.drop(columns=name)}
    wrong[f"2 columns named '{name}'"] = pd.concat([frame, frame[[name]]], axis=1)
    if name.endswith("id"):
        wrong[f"a row of the frame has no {name}"] = frame.assign(**{name: ["a", None]})
    for text, each in wrong.items():
        with pytest.raises(InputError, match=text):
            frames.concentration(each)


@pytest.mark.parametrize(
    "kind", ["str", object, "category", pd.StringDtype("python"), pd.ArrowDtype(pa.string())]
)
def test_text_of_every_kind_and_nothing_else(kind):
    frame = frame_of([1, 1], contract_address=pd.Series(["a", None], dtype=kind))
    found = frames.concentration(frame)["contract_address"]
    assert (found.dropna().tolist(), len(found)) == (["a"], 2)
    for wrong in ([1, 2], [b"a", b"b"], ["a", 1], [["a"], ["b"]]):
        with pytest.raises(InputError, match="'contract_address' has values other than text"):
            frames.concentration(frame_of([1, 1], contract_address=wrong))


def test_integers_that_may_be_missing_and_nothing_else():
    values = [5, None]
    columns = [pd.array(values, dtype=kind) for kind in ("Int64", pd.ArrowDtype(pa.int64()))]
    columns += [pd.Series(values, dtype=kind) for kind in (object, float)]
    for column in (*columns, pd.Series([5.0, None], dtype=object)):
        frame = frame_of([1, 1], name="A", edition_id=column, total_edition=[7, 7])
        found = frames.editions(frame).set_index("numbered")["lowest"]
        assert found[True] == 5
        assert found[False] is pd.NA
    for wrong in ("5", 5.5, True, 2**63, float("inf"), Decimal(5), pd.Timestamp(0)):
        frame = frame_of([1], name="A", edition_id=[wrong], total_edition=[7])
        with pytest.raises(InputError, match="'edition_id' has values other than 64-bit"):
            frames.editions(frame)


def test_the_frame_is_not_changed_and_its_index_and_other_columns_do_not_matter():
    for amounts in (objects(1, 2, 0), np.array([1, 2, 0]), objects(1, 2, 3)):
        frame = frame_of(amounts, more=[1.5, 2.5, 3.5]).iloc[[1, 0, 2]]
        frame.index = pd.Index([7, 7, 1])
        before = frame.copy(deep=True)
        assert amounts_of(frame, exclude=wallet_id(2).upper()) == [(1, 0), (2, 0)]
        assert_frame_equal(frame, before)


def test_each_analysis_refuses_another_frame(small_database):
    for measure in (frames.concentration, frames.overlap, frames.editions):
        with pytest.raises(InputError, match=r"use a frame from frames\.holdings"):
            measure(frames.wallets(small_database))
