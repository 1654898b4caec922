"""Real collections carry the names of a list, in frames, charts, the gallery and the export."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from html import escape
from pathlib import Path

import pandas as pd
import pytest

import nftsync
from nftsync import charts, frames
from nftsync.export.tables import write_export
from nftsync.pull.list_files import read_collections_file
from nftsync.pull.run import name_collections
from nftsync.store.mirror import Mirror
from tests.real.real_data import DATA, Slice, needs_data

pytestmark = needs_data


@pytest.fixture(scope="module")
def labels() -> dict[str, str]:
    with (DATA / "contracts.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["contract"].lower(), row["label"].strip()) for row in csv.DictReader(file)]
    return {contract: label for contract, label in rows if label}


@pytest.fixture(scope="module")
def named(
    real_slice: Slice, labels: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of the mirror, with the names of a file whose addresses are spelled as they come."""
    folder = tmp_path_factory.mktemp("named")
    database, file = folder / "named.db", folder / "collections.csv"
    with (
        closing(sqlite3.connect(real_slice.database)) as source,
        closing(sqlite3.connect(database)) as target,
    ):
        source.backup(target)
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["contract_address", "name"])
        for number, (contract, label) in enumerate(labels.items()):
            writer.writerow([contract.upper() if number % 2 else contract, label])
    with Mirror(database) as mirror:
        name_collections(mirror, read_collections_file(file))
    return database


def test_each_collection_carries_its_name_in_frames(named: Path, labels: dict[str, str]) -> None:
    held = frames.holdings(named)
    assert (held["contract"] == held["contract_address"].str.lower()).all()
    shown = held.drop_duplicates("contract").set_index("contract")["collection"]
    assert len(shown) > 100
    unnamed = set(shown.index) - set(labels)
    assert {key: name for key, name in shown.items() if key not in unnamed} == {
        key: labels[key] for key in set(shown.index) - unnamed
    }
    by_name = frames.concentration(held).set_index("contract")["collection"]
    assert by_name.to_dict() == shown.to_dict()


def test_charts_the_gallery_and_the_export_show_them(
    named: Path, labels: dict[str, str], tmp_path: Path
) -> None:
    held = frames.holdings(named)
    figure = charts.holdings_by_collection(held, top=5)
    largest = held.groupby("contract")["token_id"].nunique().nlargest(5).index
    for contract, label in zip(largest, figure.layout.yaxis.ticktext[:5], strict=True):
        name = labels[contract]
        assert label == name or label.removesuffix("…") == name[: len(label) - 1].rstrip()
    some = held[held["contract"] == largest[0]].head(20)
    assert escape(labels[largest[0]]) in nftsync.gallery(some)._repr_html_()
    write_export(named, tmp_path / "out", progress=False)
    exported = pd.read_parquet(tmp_path / "out" / "holdings.parquet")
    assert exported["collection"].tolist() == held["collection"].tolist()
    assert exported["contract"].tolist() == held["contract"].tolist()
