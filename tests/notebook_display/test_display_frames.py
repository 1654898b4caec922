"""Frames that are there to be read: whole, and safe to show."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from nftsync import frames
from nftsync.store.schema import open_store
from nftsync.store.wallets import WalletLine, register
from nftsync.times import now

HOSTILE = "<td><script>alert(1)</script></td>&\"'"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "nftsync.db"
    connection = open_store(path)
    wallets = [
        WalletLine(f"aaaaaaaa-0000-4000-8000-00000000000{n}", HOSTILE * (n == 1)) for n in range(3)
    ]
    register(connection, wallets, now())
    connection.close()
    return path


@pytest.mark.parametrize("name", ["holdings", "webhooks", "freshness"])
def test_explanations_are_shown_whole(name: str) -> None:
    told = frames.explain(name)
    for shown in (told._repr_html_(), repr(told)):
        plain = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        assert all(meaning in plain for meaning in told["meaning"])
        assert all(column in plain for column in told["column"])


def test_freshness_names_all_that_its_lines_hold(database: Path) -> None:
    found = frames.freshness(database)
    (detail,) = found.loc[found["what"] == "wallets never read", "detail"]
    assert len(detail) > 100
    assert detail in repr(found)
    page = found._repr_html_()
    assert "<script" not in page
    assert page.count("<td") == found.size
    assert page.count('<td style="text-align: left">') == found.size


def test_what_is_made_of_them_is_a_plain_frame(database: Path) -> None:
    for found in (frames.freshness(database), frames.explain("diff")):
        assert type(found.head(2)) is pd.DataFrame
        assert type(found.copy()) is pd.DataFrame
    assert len(repr(frames.freshness(database).iloc[:0])) > 0
