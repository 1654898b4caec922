"""What columns mean: just the columns that there are, with their types."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from nftsync import frames
from nftsync.errors import InputError
from tests.kit.database import Builder
from tests.kit.readers import READERS

#: Fields of the provider's document, by its section.
SECTIONS = {
    "NFT token balance": {"tokenId", "amount"},
    "Token": {"id", "organizationId", "contractAddress", "blockchainTokenId"},
    "TokenMetadata": {
        "name", "description", "image", "animationUrl", "externalUrl", "backgroundColor",
        "editionId", "totalEdition", "creatorName", "creatorImageUrl", "creatorExternalPageUrl",
    },
    "Webhook": {
        "organizationId", "action", "id", "resourceId", "resourceType", "createdAtUtc", "changes",
    },
}  # fmt: skip
ALL = sorted(set(frames.__all__) - {"brief", "explain", "load", "save", "value"})


def test_every_frame_is_explained() -> None:
    assert sorted(frames.explain()["name"]) == ALL


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@pytest.mark.parametrize("name", ALL)
def test_explained_are_just_the_columns_there_are_also_of_an_empty_database(
    name: str, small_database: Path, build: Builder
) -> None:
    read = READERS["holdings_as_of" if name == "holdings" else name]
    if name == "statement":  # an empty wallet was read
        build.wallet(1)
        build.state(1, 0, 0, 0)
    full, empty = read(small_database), read(build.path)
    told = frames.explain(name)
    for real in (full, empty):
        assert list(real) == told["column"].tolist()
        for kind, types in zip(real.dtypes, told["type"], strict=True):
            assert str(kind) in types.split(" or ")
    assert len(full) > 0
    assert full.index.equals(pd.RangeIndex(len(full)))
    assert list(told.columns) == ["column", "type", "unit", "meaning", "source"]
    assert (told[["meaning", "source"]].map(len) > 3).all().all()
    pd.testing.assert_frame_equal(frames.explain(getattr(frames, name)), told)
    columns = (getattr(frames, name).__doc__ or "").partition("\nColumns:\n")[2].splitlines()
    assert [line.split(":")[0].strip() for line in columns] == told["column"].tolist()
    for column in full.columns:  # frames can be written to
        full.loc[0, column] = full.loc[len(full) - 1, column]


def test_sources_are_the_documents_fields_or_nftsync() -> None:
    for source in {source for name in ALL for source in frames.explain(name)["source"]}:
        place = source.removeprefix("sum of ")
        if place.startswith("nftsync: "):
            continue
        assert place.startswith("provider's document, ")
        for part in place.removeprefix("provider's document, ").split(", provider's document, "):
            section, _, field = part.partition(": ")
            if section in SECTIONS:
                assert field in SECTIONS[section]
            else:
                assert section in {"GET nft-balances", "Token and TokenMetadata"}


def test_an_unknown_name_gets_the_nearest_and_all_names(small_database: Path) -> None:
    with pytest.raises(InputError, match="'holding'.*'holdings'"):
        frames.explain("holding")
    frame = frames.wallets(small_database)
    for wrong in ("", "qqqq", frames.explain, pd.DataFrame, frame, 5):
        with pytest.raises(InputError, match=r"^name=.* is unknown; use one of holdings, .*"):
            frames.explain(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError) as raised:
        frames.explain("x\n" * 10_000)
    assert len(str(raised.value)) < 400
