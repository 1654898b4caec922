"""Tokens, collections and wallets by name, for any text."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder, token_id, wallet_id

HARBOURS, KITES = "0x" + "aB" * 20, "KT1kites"


def short(uuid: str) -> str:
    return f"{uuid[:8]}…{uuid[-4:]}"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    build = Builder(tmp_path_factory.mktemp("find") / "nftsync.db")
    build.wallet(1, label="Salt", wallet_group="house")
    build.wallet(2, label="Desk of Salt", wallet_group="house")
    build.wallet(3)
    for number in range(1, 7):
        build.token(number, contract_address=HARBOURS, name=f"Salt Harbours #{number}")
    build.token(7, contract_address=KITES, name="Moss Kites 🪁", creator_name="Ann Salter")
    build.token(8, name='A "quoted" name AND more', description="of salt")
    build.token(9, name="Größe_mit_Strich %")
    build.token(10, name="海の塩")
    build.token(11)
    for wallet, token, amount in ((1, 1, "1"), (1, 2, "0"), (2, 1, "2"), (3, 7, "1")):
        build.balance(wallet, token, amount)
    build.index()
    return build.close()


def test_matches_of_all_kinds_are_sorted_by_relevance(path):
    found = frames.find(path, "salt")
    kinds = ["wallet", "collection", *["token"] * 6, "wallet", *["token"] * 2]
    assert found["kind"].tolist() == kinds
    last = ["Desk of Salt", "Moss Kites 🪁", 'A "quoted" name AND more']
    assert found["name"].tolist()[:2] + found["name"].tolist()[8:] == [
        "Salt",
        "Salt Harbours",
        *last,
    ]
    columns = ["id", "collection", "holders", "tokens"]
    rows = found.head(4).astype(object).where(found.head(4).notna(), None)[columns]
    assert rows.to_numpy().tolist() == [
        [wallet_id(1), None, None, 1],
        [HARBOURS.lower(), None, 2, 6],
        [token_id(1), "Salt Harbours", 2, None],
        [token_id(2), "Salt Harbours", 0, None],
    ]
    pd.testing.assert_frame_equal(frames.find(path, "SALT", limit=3), found.head(3))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("harbours 3", ("token", "Salt Harbours #3")),
        ("harb", ("collection", "Salt Harbours")),
        ("house", ("wallet", "Salt")),
        ('"quoted" name', ("token", 'A "quoted" name AND more')),
        ("AND", ("token", 'A "quoted" name AND more')),
        ("größe", ("token", "Größe_mit_Strich %")),
        ("mit_strich", ("token", "Größe_mit_Strich %")),
        ("%", ("token", "Größe_mit_Strich %")),
        ("🪁", ("token", "Moss Kites 🪁")),
        ("の塩", ("token", "海の塩")),
        ("ites", ("token", "Moss Kites 🪁")),
        (HARBOURS, ("collection", "Salt Harbours")),
        ("0xabab…abab", ("collection", "Salt Harbours")),
        (wallet_id(3).upper(), ("wallet", short(wallet_id(3)))),
        (token_id(7), ("token", "Moss Kites 🪁")),
        (token_id(11), ("token", short(token_id(11)))),
        (KITES, ("collection", "KT1kites")),
    ],
)
def test_the_best_match_is_first(path, text, first):
    assert tuple(frames.find(path, text)[["kind", "name"]].iloc[0]) == first


OPERATORS = [*"\"'*)^-+%\\", "NEAR(", "AND", "OR", "NOT", "name:", "{a}"]


def test_no_match_gives_similar_names(path, build):
    for db, text, near in (
        (path, "salt harborus", "; similar names: .*'Salt Harbours'"),
        (path, "Slat", "; similar names: .*'Salt'"),
        (build.path, "qq", "$"),
    ):
        with pytest.warns(nftsync.NftsyncWarning, match=f"no match for '{text}'{near}"):
            assert frames.find(db, text).empty
    for wrong in ("", "\n\x00", None):
        with pytest.raises(InputError, match="cannot search for"):
            frames.find(path, wrong)
    for limit in (0, True, "5"):
        with pytest.raises(InputError, match="limit="):
            frames.find(path, "x", limit=limit)


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@settings(max_examples=50)
@given(parts=st.lists(st.text(max_size=4) | st.sampled_from(OPERATORS), max_size=5))
def test_any_text_can_be_searched(path, parts):
    frames.find(path, " ".join(["x", *parts]))
