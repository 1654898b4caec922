"""What exact columns are: `Int64` where no sum can wrap, else Python integers; exact in both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from nftsync import frames
from nftsync.errors import InputError
from nftsync.exact_sum import exact
from tests.kit.database import Builder, at, wallet_id

#: Spans begin before the first read, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")

GREATEST = 2**63 - 1

#: How each frame is read of a database, by the function's name, and its exact columns.
READ: dict[str, tuple[Callable[..., pd.DataFrame], list[str]]] = {
    "holdings": (frames.holdings, ["amount"]),
    "holdings as of": (lambda db, **how: frames.holdings(db, as_of=at(9), **how), ["amount"]),
    "changes": (frames.changes, ["old_amount", "new_amount"]),
    "diff": (lambda db, **how: frames.diff(db, at(0), **how), ["before", "after"]),
    "holdings_over_time": (frames.holdings_over_time, ["amount"]),
    "collections": (frames.collections, ["amount"]),
    "concentration": (frames.concentration, ["amount"]),
    "editions": (frames.editions, ["held"]),
    "holding_ages": (lambda db, **how: frames.holding_ages(db, at=at(9), **how), ["amount"]),
}


def database(path: Path, amounts: list[tuple[int, str]]) -> Path:
    """A wallet's number and an amount for each of its tokens, all found by a read after START."""
    build = Builder(path)
    for wallet in {wallet for wallet, _ in amounts}:
        build.wallet(wallet)
    for token, (wallet, amount) in enumerate(amounts, start=1):
        build.token(token, contract_address=f"KT{token}", total_edition=1, name="A")
        build.balance(wallet, token, amount, 1)
        build.change(wallet, token, None, amount, 1)
    return build.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("amounts") / "nftsync.db"


def python_sum(values: pd.Series) -> int:
    return sum(int(value) for value in values if not pd.isna(value))


AMOUNT = st.one_of(
    st.integers(0, 9).map(str),
    st.integers(2**61, 2**63).map(str),
    st.integers(2**63, 2**256 - 1).map(str),
    st.sampled_from(["", "1.5", "-1", "000", "0007", "1" + "0" * 100, "9" * 100]),
)


@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2]), AMOUNT), min_size=1, max_size=6))
@example([(1, str(GREATEST)), (2, "0"), (2, "x")])
@example([(1, str(GREATEST)), (2, "1")])
@example([(1, str(2**62)), (1, str(2**62))])
@example([(1, "")])
def test_the_sum_of_all_decides_and_every_sum_is_exact(
    path: Path, amounts: list[tuple[int, str]]
) -> None:
    """Of each frame: what it is by itself, and in either kind that was asked for."""
    database(path, amounts)
    total = sum(exact(amount) or 0 for _, amount in amounts)
    for read, names in READ.values():
        frame, objects = read(path), read(path, amounts="exact")
        assert list(map(str, frame[names].dtypes.unique())) == [
            "Int64" if total <= GREATEST else "object"
        ]
        assert set(objects[names].dtypes) == {np.dtype(object)}
        assert sum(python_sum(objects[name]) for name in names) == total
        for name in names:
            assert objects[name].map(type).isin([int, type(None)]).all()
            assert frame[name].sum() == python_sum(objects[name])
            assert frame[name].isna().tolist() == objects[name].isna().tolist()
            assert frame[name].dropna().tolist() == objects[name].dropna().tolist()
        if total <= GREATEST:
            assert_frame_equal(read(path, amounts="int64"), frame)
        else:
            assert_frame_equal(frame, objects)
            with pytest.raises(InputError, match=rf"the sum of .*{names[-1]} is {total:,}, above"):
                read(path, amounts="int64")
    held = frames.holdings(path)
    for wallet, group in held.groupby("wallet_id")["amount"]:
        of_wallet = [exact(text) or 0 for number, text in amounts if wallet_id(number) == wallet]
        assert group.sum() == sum(of_wallet)


def test_what_is_left_of_a_frame_decides(path: Path) -> None:
    database(path, [(1, str(2**256 - 1)), (2, "7"), (2, "1.5")])
    for as_of in (None, at(9)):
        one = frames.holdings(path, wallet=wallet_id(2), as_of=as_of)
        assert (str(one["amount"].dtype), one["amount"].tolist()) == ("Int64", [7, pd.NA])
    diff = frames.diff(path, at(0), contract="KT2", amounts="int64")
    assert diff["after"].tolist() == [7]


def test_other_kinds_are_refused(path: Path) -> None:
    database(path, [(1, "1")])
    for read, _ in READ.values():
        with pytest.raises(InputError, match="amounts='Int64' is unknown; use 'exact', 'int64'"):
            read(path, amounts="Int64")


def test_files_keep_the_kind(path: Path, tmp_path: Path) -> None:
    for amounts in ([(1, str(GREATEST)), (1, "")], [(1, str(GREATEST)), (2, "1"), (2, "")]):
        database(path, amounts)
        for how in ({}, {"amounts": "exact"}):
            for name in ("holdings", "changes", "editions"):
                frame = READ[name][0](path, **how)
                saved = frames.save(frame, tmp_path / f"{name}.parquet")
                assert_frame_equal(frames.load(saved), frame)
        saved = frames.save(frames.holdings(path)[["amount"]], tmp_path / "amounts.csv")
        assert saved.read_text().split()[1:] == [text or '""' for _, text in amounts]
