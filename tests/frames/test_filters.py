"""Wallets, contracts and places in the logs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, at, token_id, wallet_id

#: Here, what there is counts, not why there is nothing.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


def pairs(frame: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(frame["wallet_id"], frame["token_id"], strict=True))


def test_wallets_in_any_form(small_database: Path) -> None:
    one = wallet_id(2)
    for wallet in (UUID(one), one.upper(), pd.Series([one]), iter([one]), (one,)):
        assert set(frames.holdings(small_database, wallet=wallet)["wallet_id"]) == {one}
    wrong: Any
    for wrong in ("", "x", [wallet_id(1), "x"], [None], 7):
        for read in (frames.holdings, frames.wallet_states):
            with pytest.raises(InputError):
                read(small_database, wallet=wrong)


def test_changes_since_a_time_and_after_a_change(small_database: Path) -> None:
    def ids(after: int | None, since: str | None = None) -> list[int]:
        return list(frames.changes(small_database, since=since, after=after)["change_id"])

    # Those of the same moment are there.
    assert ids(None, at(4)) == [5, 6, 7]
    assert ids(None, at(4.5)) == [7]
    assert ids(None, at(6)) == ids(7) == ids(2**70) == []
    assert ids(5) == [6, 7]
    assert ids(0) == ids(-(2**70)) == list(range(1, 8))
    assert ids(np.int64(6)) == ids(5, at(5)) == ids(6, at(1)) == [7]  # type: ignore[arg-type]
    with pytest.raises(InputError):
        frames.changes(small_database, after="5")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given_time",
    [
        at(4),
        "2026-03-01T00:00:04",
        "2026-03-01T01:00:04+01:00",
        datetime(2026, 3, 1, 0, 0, 4, tzinfo=UTC),
        pd.Timestamp(at(4)),
        np.datetime64("2026-03-01T00:00:04"),
    ],
)
def test_forms_of_a_time_of_which_a_date_is_its_end(
    small_database: Path, given_time: object
) -> None:
    since = frames.changes(small_database, since=given_time)  # type: ignore[arg-type]
    assert list(since["change_id"]) == [5, 6, 7]
    then = frames.holdings(small_database, as_of=given_time)  # type: ignore[arg-type]
    assert (wallet_id(2), token_id(4)) in pairs(then)
    assert len(frames.holdings(small_database, as_of=date(2026, 3, 1))) == 4
    assert len(frames.holdings(small_database, as_of="2026-02-28")) == 0


@settings(max_examples=25)
@given(
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2)), max_size=30),
    seek=st.integers(-1, 70),
)
def test_a_time_is_found_in_a_log_with_gaps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], seek: int
) -> None:
    build = Builder(tmp_path_factory.getbasetemp() / "gaps.db")
    build.wallet(1)
    change, seen, rows = 0, 0, []
    for token, (gap, wait) in enumerate(steps, start=1):
        change, seen = change + gap, seen + wait
        build.token(token)
        build.change(1, token, None, "1", seen, change_id=change)
        rows.append((change, seen))
    path = build.close()
    found = frames.changes(path, since=at(seek))["change_id"].tolist()
    assert found == [number for number, when in rows if when >= seek]
    assert len(frames.holdings(path, as_of=at(seek))) == sum(when <= seek for _, when in rows)
