"""Each row of a frame names its wallet and its NFT, and no name is missing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from nftsync import frames
from tests.kit.database import Builder, at, wallet_id
from tests.kit.readers import READERS

# The differences begin before the first read.
pytestmark = pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")

ADDRESS = "0x" + "cd" * 20
#: Frames with a row per wallet, per NFT, or both.
WITH_WALLETS = ["holdings", "holdings_as_of", "changes", "diff", "holding_ages", "wallets"]
WITH_NFTS = ["holdings", "holdings_as_of", "changes", "diff", "holding_ages", "tokens"]
WITH_NFTS += ["tokens_as_of", "token_changes", "quality", "traits", "transfers"]


@pytest.fixture
def nameless(build: Builder) -> Path:
    """Wallets with and without a label, two with the same one; NFTs with and without a name."""
    for number, label in enumerate(("Treasury", "Treasury", None, "Sales"), 1):
        group = "house" if number == 1 else None
        build.wallet(number, label=label, wallet_group=group, synced_at=at(9), status="ok")
    extra = '{"metadata":{"attributes":[{"trait_type":"Place","value":"bay"}]}}'
    for number, name in enumerate(("Atlas", None, " ", None), 1):
        contract = {"contract_address": ADDRESS, "blockchain_token_id": str(number)}
        build.token(number, name=name, extra=extra, **(contract if number < 4 else {}))
        build.balance(number, number, "2", 1)
        build.change(number, number, None, "2", 1, baseline=1)
    for number in range(1, 5):
        build.change(number, number, "2", "1", 5)
        build.change(number % 4 + 1, number, None, "1", 5)
        build.balance(number % 4 + 1, number, "1", 5)
        build.insert(
            "token_change_rows",
            token_no=number,
            before="{}",
            after="{}",
            observed_at=at(6),
        )
    build.connection.execute("UPDATE balance_rows SET amount = '1'")
    return build.close()


@pytest.mark.parametrize("name", WITH_WALLETS)
def test_grouping_by_wallet_equals_grouping_by_its_id(name: str, nameless: Path) -> None:
    frame = READERS[name](nameless)
    assert frame["wallet"].notna().all()
    by_name, by_id = (
        frame.groupby(column, sort=False).size() for column in ("wallet", "wallet_id")
    )
    assert by_name.tolist() == by_id.tolist()
    assert len(by_id) == 4
    assert set(frame["wallet"]) >= {"Sales"}
    assert not set(frame["wallet"]) & {"Treasury"}


@pytest.mark.parametrize("name", WITH_NFTS)
def test_each_nft_has_a_name(name: str, nameless: Path) -> None:
    names = READERS[name](nameless)["nft"]
    assert names.notna().all()
    assert {"Atlas", "0xcdcd…cdcd #2", "0xcdcd…cdcd #3"} <= {"Atlas", *names}
    assert len(set(names)) >= 3


def test_both_sides_of_a_transfer_have_names_and_groups(nameless: Path) -> None:
    frame = frames.transfers(nameless)
    wallets = frames.wallets(nameless).set_index("wallet_id")
    for side in ("from", "to"):
        known = frame[frame[f"{side}_wallet_id"].notna()]
        assert len(known) == 4
        assert frame[f"{side}_wallet"].notna().equals(frame[f"{side}_wallet_id"].notna())
        named = wallets.loc[known[f"{side}_wallet_id"]]
        assert known[f"{side}_wallet"].tolist() == named["wallet"].tolist()
        assert (
            known[f"{side}_group"].fillna("").tolist() == named["wallet_group"].fillna("").tolist()
        )


def test_a_side_is_missing_only_if_it_is_unknown(build: Builder) -> None:
    build.wallet(1)
    build.token(1)
    build.balance(1, 1, "1", 1)
    build.change(1, 1, None, "1", 1)
    (row,) = frames.transfers(build.close()).to_dict("records")
    assert row["to_wallet"] == frames.wallets(build.path)["wallet"][0]
    assert pd.isna(row["from_wallet"])


@pytest.mark.parametrize("short", ["wallet", "group"])
def test_a_statement_takes_the_names_that_the_command_takes(short: str, nameless: Path) -> None:
    column = {"wallet": "wallet_id", "group": "wallet_group"}[short]
    for read in (frames.statement, frames.holdings_over_time):
        about = {"start": at(2)} if read is frames.statement else {}
        frame = read(nameless, by=short, **about)
        pd.testing.assert_frame_equal(frame, read(nameless, by=column, **about))
        if short == "wallet":
            assert frame["wallet"].notna().all()
            assert frame["wallet"].nunique() == frame["wallet_id"].nunique()


def test_names_are_saved_and_loaded(nameless: Path, tmp_path: Path) -> None:
    frame = frames.holdings(nameless)
    frames.save(frame, tmp_path / "holdings.parquet")
    pd.testing.assert_frame_equal(frames.load(tmp_path / "holdings.parquet"), frame)


def test_a_filter_changes_no_name(nameless: Path) -> None:
    whole = frames.holdings(nameless)
    one = frames.holdings(nameless, wallet=wallet_id(1))
    assert set(one["wallet"]) == set(whole.loc[whole["wallet_id"] == wallet_id(1), "wallet"])
