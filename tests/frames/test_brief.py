"""Frames for display, and explanations of their columns."""

import unicodedata
from datetime import UTC, date
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import at, wallet_id
from tests.kit.readers import READERS

TREASURY = "8d1cc10a-7fbf-42e7-b58d-5110899866aa"
ADDRESS = "0x8f4f" + "0" * 32 + "8e63"
#: Spans may begin before the first read, and frames may be empty.
pytestmark = pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")


def test_names_are_first_and_missing_values_a_dash(small_database):
    shown = frames.brief(frames.holdings(small_database), all=True)
    assert list(shown.columns[:5]) == ["wallet", "wallet_label", "collection", "nft", "name"]
    assert {"amount_float", "description", "image"}.isdisjoint(shown.columns)
    columns = ["wallet_label", "name", "amount", "held_since"]
    assert shown[columns].iloc[0].tolist() == ["Vault", "One", 2**256 - 1, "2026-03-01 00:00:01"]
    assert shown["wallet_group"].tolist() == ["cold", "cold", "–", "–"]
    assert shown["wallet"].iloc[2] == shown["wallet_id"].iloc[2]
    diff = frames.brief(frames.diff(small_database, at(0)), all=True)
    assert diff[["after", "after_text"]].iloc[-1].tolist() == ["–", "1.5"]


def test_a_wide_frame_keeps_the_columns_that_people_read(small_database):
    held = frames.holdings(small_database)
    shown = frames.brief(held.assign(collection="Salt", edition_id=1, total_edition=2))
    assert list(shown.columns) == [
        *("wallet", "nft", "amount", "collection", "held_since"),
        *("edition_id", "total_edition", "blockchain_token_id"),
    ]
    assert set(frames.brief(held, all=True)) > set(frames.brief(held))
    transfers = frames.brief(frames.transfers(small_database))
    assert list(transfers.columns[:2]) == ["nft", "amount"]
    assert {"from_wallet", "to_wallet"} & set(transfers)
    wide = pd.DataFrame({f"x{place}": [place] for place in range(20)} | {"name": ["a"]})
    assert list(frames.brief(wide).columns) == ["name", *wide.columns[:7]]
    assert list(frames.brief(wide, all=True).columns) == ["name", *wide.columns[:20]]


def test_ids_are_their_two_ends_the_same_in_each_column():
    frame = pd.DataFrame(
        {
            "wallet_id": [TREASURY, TREASURY.upper(), None],
            "counterparty_wallet_id": [wallet_id(7), None, TREASURY],
            "counterparty_label": ["Desk", None, None],
            "contract_address": [ADDRESS, ADDRESS.upper().replace("0X", "0x"), "KT1abc"],
            "token": [UUID(wallet_id(8)), "x", None],
        }
    )
    shown = frames.brief(frame)
    assert shown["wallet_id"].tolist() == ["8d1cc10a…66aa", "8d1cc10a…66aa", "–"]
    assert shown["contract_address"].tolist() == ["0x8f4f…8e63", "0x8f4f…8e63", "KT1abc"]
    assert shown["counterparty_label"].tolist() == ["Desk", "–", "–"]
    # Longer ends tell it from the other id.
    assert shown["token"].iloc[0] == f"{wallet_id(8)[:12]}…{wallet_id(8)[-8:]}"
    other = f"{TREASURY[:8]}-0000-4000-8000-0000000066aa"
    two = frames.brief(pd.DataFrame({"wallet_id": [TREASURY, other]}))["wallet_id"]
    assert two.tolist() == ["8d1cc10a-7fb…899866aa", "8d1cc10a-000…000066aa"]


UUIDS = st.builds("{:08x}-0000-0000-{:04x}-000000000000".format, *[st.integers(0, 3)] * 2)
CHAIN_ADDRESSES = st.sampled_from([f"0x{number:040x}" for number in (0, 1 << 60, 1 << 80)])


@settings(max_examples=50)
@given(ids=st.lists(st.text("ab0-…x", max_size=60) | UUIDS | CHAIN_ADDRESSES, max_size=12))
def test_distinct_ids_stay_distinct(ids):
    shown = frames.brief(pd.DataFrame({"token_id": ids}), width=1000)
    if shown.empty or "token_id" not in shown:
        return
    seen = {(one, text) for one, text in zip(ids, shown["token_id"], strict=True) if one.strip()}
    assert len(dict(seen)) == len({text for _, text in seen})


ACTING = "\n\r\t\x1b\u202e\u2028\x85\x00<&$"
HOSTILE = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(ACTING))
OTHERS = [pd.NaT, pd.NA, np.nan, date(2026, 1, 2), b"\x00", pd.Timedelta(days=1), None, True, [1]]
VALUES = st.one_of(
    *(HOSTILE, HOSTILE.map(lambda text: text * 2_000), st.integers(), st.floats()),
    *(st.sampled_from(OTHERS), st.datetimes(timezones=st.sampled_from([UTC, None]))),
)


@settings(max_examples=60)
@given(values=st.lists(VALUES, max_size=8), name=st.sampled_from(["x", "name", "token_id", 7]))
def test_any_value_is_one_line_without_control_characters(values, name):
    frame = pd.DataFrame({name: pd.Series(values, dtype=object), "row": range(len(values))})
    before = frame.copy()
    shown = frames.brief(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert len(shown) == len(values)
    for value in shown.get(name, pd.Series([1])):
        assert value is not None
        assert value is not pd.NaT
        if isinstance(value, str):
            assert value.strip()
            assert len(value) <= 60
            assert not {unicodedata.category(each) for each in value} & {"Cc", "Zl", "Zp", "Cs"}


def test_frames_of_any_shape():
    held = pd.DataFrame(
        {"wallet_id": [TREASURY, wallet_id(1)], "group": ["a", None], "amount": [2**70, 1]}
    )
    by_wallet = held.groupby("wallet_id")[["amount"]].sum()
    short = f"{wallet_id(1)[:8]}…{wallet_id(1)[-4:]}"
    assert set(frames.brief(by_wallet).index) == {"8d1cc10a…66aa", short}
    two = frames.brief(held.set_index(["wallet_id", "group"]))
    assert (two.index[0], two.index.names) == (("8d1cc10a…66aa", "a"), ["wallet_id", "group"])
    double = pd.concat([held, held], axis=1)
    assert list(frames.brief(double).columns) == list(double.columns)
    pivot = held.pivot_table(values="amount", columns=["wallet_id", "group"], aggfunc="sum")
    assert frames.brief(pivot).columns.nlevels == pivot.columns.nlevels
    times = pd.DataFrame({"at": pd.to_datetime([], utc=True), "age": pd.to_timedelta([])})
    for empty in (pd.DataFrame(), held.iloc[:0], held[[]], times):
        assert frames.brief(empty).shape == empty.shape
    # Numbers stay numbers beside a dash.
    numbers = {"n": pd.array([1, None], "Int64"), "share": [0.5, np.nan], "no": [None] * 2}
    shown = frames.brief(pd.DataFrame(numbers)).to_dict("list")
    assert shown == {"n": [1, "–"], "share": [0.5, "–"]}
    assert frames.brief(held)["amount"].tolist() == [2**70, 1]
    for wrong in ("x", pd.Series([1]), None):
        with pytest.raises(InputError, match=r"^brief\(\) needs a DataFrame"):
            frames.brief(wrong)
    with pytest.raises(InputError, match="width=3"):
        frames.brief(pd.DataFrame(), width=3)


def test_times_are_utc_to_the_second():
    there = pd.to_datetime(["2026-01-31T12:00:00.9+02:00", None])
    frame = pd.DataFrame(
        {"zoned": there, "plain": pd.to_datetime(["2026-01-31", None]), "age": there - there[0]}
    )
    assert frames.brief(frame).to_numpy().tolist() == [
        ["2026-01-31 10:00:00", "2026-01-31 00:00:00", "0 days 00:00:00"],
        ["–", "–", "–"],
    ]


#: Fields of the provider's document, by its section.
SECTIONS = {
    "Webhook delivery": "request-id traceparent",
    "NFT token balance": "tokenId amount",
    "Token": "id organizationId contractAddress blockchainTokenId",
    "TokenMetadata": "name description image animationUrl externalUrl backgroundColor editionId"
    " totalEdition creatorName creatorImageUrl creatorExternalPageUrl",
    "Webhook": "organizationId action id resourceId resourceType createdAtUtc changes",
}
ALL = sorted(set(frames.__all__) - {"brief", "explain", "load", "save", "value"})


@pytest.mark.parametrize("name", sorted({*ALL} - {"compare"}))
def test_the_columns_of_a_frame_are_explained_also_of_an_empty_database(
    name, small_database, build
):
    read = READERS["holdings_as_of" if name == "holdings" else name]
    if name == "statement":  # without holdings
        build.wallet(9)
        build.state(9, 0, 0, 0)
    paths, told = [small_database, build.path], frames.explain(name)
    full, *others = (read(some) for some in (paths, paths[:1], paths[1:]))
    for real in (full, *others):
        assert list(real) == told["column"].tolist()
        for kind, types in zip(real.dtypes, told["type"], strict=True):
            assert str(kind) in types.split(" or ")
    assert len(full) > 0
    assert full.index.equals(pd.RangeIndex(len(full)))
    assert list(told.columns) == ["column", "type", "unit", "meaning", "source"]
    assert (told[["meaning", "source"]].map(len) > 3).all().all()
    pd.testing.assert_frame_equal(frames.explain(getattr(frames, name)), told)
    columns = (getattr(frames, name).__doc__ or "").partition("\nColumns:\n")[2].splitlines()
    assert [line.split(":")[0].strip() for line in columns] == list(read(small_database))
    assert ["database", *read(build.path)] == told["column"].tolist()
    for column in full.columns:  # frames can be written to
        full.loc[0, column] = full.loc[len(full) - 1, column]


def test_sources_are_the_documents_fields_or_nftsync():
    assert sorted(frames.explain()["name"]) == ALL
    for source in {source for name in ALL for source in frames.explain(name)["source"]}:
        place = source.removeprefix("sum of ")
        if place.startswith("nftsync: "):
            continue
        assert place.startswith("provider's document, ")
        for part in place.removeprefix("provider's document, ").split(", provider's document, "):
            section, _, field = part.partition(": ")
            if section in SECTIONS:
                assert field in SECTIONS[section].split()
            else:
                assert section in {"GET nft-balances", "Token and TokenMetadata"}


def test_an_unknown_name_gets_the_nearest_and_all_names(small_database):
    with pytest.raises(InputError, match="'holding'.*'holdings'"):
        frames.explain("holding")
    for wrong in ("", "qqqq", frames.explain, pd.DataFrame, frames.wallets(small_database), 5):
        with pytest.raises(InputError, match=r"^name=.* is unknown; use one of holdings, .*"):
            frames.explain(wrong)
    with pytest.raises(InputError) as raised:
        frames.explain("x\n" * 10_000)
    assert len(str(raised.value)) < 400
