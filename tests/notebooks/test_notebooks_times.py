"""Times as the notebooks show them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from nftsync import frames
from nftsync.lab.notebook import short_times


def test_times_are_cut_to_the_second_and_all_else_stays() -> None:
    whole = pd.DataFrame(
        {
            "at": pd.to_datetime(["2026-01-31T23:59:59.999999Z", None]),
            "name": ["a", None],
            "age": pd.to_timedelta(["1.5s", None]),
        },
        index=[7, 3],
    )
    before = whole.copy()
    assert short_times(whole.iloc[:0]).empty
    shown = short_times(whole)
    assert shown["at"].iloc[0] == pd.Timestamp("2026-01-31T23:59:59")
    assert pd.isna(shown["at"].iloc[1])
    pd.testing.assert_frame_equal(whole, before)
    pd.testing.assert_frame_equal(shown.drop(columns="at"), whole.drop(columns="at"))


def test_what_is_missing_stays_blank_where_the_frame_shows_it_so(demo: Path) -> None:
    freshness = frames.freshness(demo)
    assert type(short_times(freshness)) is type(freshness)
    assert "NaT" not in short_times(freshness)._repr_html_()
    assert "wallets never read" in repr(short_times(freshness))
