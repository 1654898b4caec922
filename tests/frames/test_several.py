"""Frames of several databases."""

import pickle
import shutil
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlite_utils

from nftsync import frames, gallery
from nftsync.errors import InputError, NoDatabase
from tests.gallery.gallery_frames import column
from tests.kit.database import Builder, at, small, token_id, wallet_id
from tests.kit.readers import READERS


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two databases with the same tokens, one hidden, and labels, and different wallets."""
    folder = tmp_path_factory.mktemp("several")
    builders = [small(folder / "acme.db"), small(folder / "beta.db")]
    for build in builders:
        build.insert("hidden", token_id=token_id(3), source="given", hidden_at=at(0))
    build.connection.execute("UPDATE wallets SET wallet_id = '9' || substr(wallet_id, 2)")
    return {build.path.stem: build.close() for build in builders}


@pytest.mark.filterwarnings("ignore:.*the history begins:nftsync.NftsyncWarning")
def test_the_rows_of_each_database_are_below_each_other_with_its_name(both):
    for name, read in READERS.items():
        frame = read(both)
        assert frame.columns[0] == "database"
        assert frame.index.equals(pd.RangeIndex(len(frame)))
        hidden = 0
        for database, path in both.items():
            rows = frame[frame["database"] == database].drop(columns="database")
            alone = read(path)
            if name == "freshness":  # ages last until now
                rows, alone = (one.drop(columns="age") for one in (rows, alone))
            pd.testing.assert_frame_equal(rows.reset_index(drop=True), alone)
            hidden += alone.attrs.get("hidden", 0)
        assert frame.attrs.get("hidden", 0) == hidden
    assert frames.holdings(db=both).equals(frames.holdings([*both.values()]))
    assert pickle.loads(pickle.dumps(frames.holdings)) is frames.holdings


@pytest.mark.parametrize(
    ("amounts", "kind"),
    [
        (["5", "7"], "Int64"),
        (["5", None], "Int64"),
        (["5", str(2**200)], "object"),
        ([str(2**62)] * 2, "object"),  # no sum wraps
    ],
)
def test_amounts_are_exact_and_of_one_type(tmp_path, amounts, kind):
    paths = [tmp_path / "one.db", tmp_path / "two.db"]
    for number, (path, amount) in enumerate(zip(paths, amounts, strict=True), start=1):
        build = Builder(path)
        build.wallet(number)
        build.state(number, 0, 0, 0)
        build.token(1)
        if amount is not None:
            build.balance(number, 1, amount)
        build.close()
    frame = frames.holdings(paths)
    assert frame["amount"].dtype == kind
    assert frame["amount"].tolist() == [int(amount) for amount in amounts if amount]
    if kind == "object":
        with pytest.raises(InputError, match="amount is .*, above the 64-bit limit"):
            frames.holdings(paths, amounts="int64")


def test_names_are_those_of_the_files_or_their_paths(both, tmp_path):
    acme, beta = both.values()
    twin = Path(shutil.copy(beta, tmp_path / "acme.db"))
    link = tmp_path / "ours.db"
    link.symlink_to(twin)
    with (
        closing(sqlite3.connect(acme)) as source,
        closing(sqlite3.connect(beta)) as other,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        source.backup(copy)
        for databases, names in (
            ([acme, beta], ["acme", "beta"]),
            (np.array([str(beta), str(acme)]), ["beta", "acme"]),
            (beta.parent.glob("beta.db"), ["beta"]),
            ([acme, twin], [str(acme), str(twin)]),
            ([acme, link], ["acme", "ours"]),
            ([sqlite_utils.Database(other), copy], ["beta", "database 2"]),
        ):
            assert frames.wallets(databases)["database"].unique().tolist() == names


def test_unusable_lists_are_errors_that_name_the_database(both, tmp_path):
    acme, beta = both.values()
    link = tmp_path / "link.db"
    link.symlink_to(acme)
    with closing(sqlite3.connect(acme)) as again, pytest.raises(InputError, match="given twice"):
        frames.holdings({"acme": acme, "other": again})
    for databases, text in (
        ([], "the list of databases is empty; give at least one"),
        ({"acme": acme, " ": beta}, "' ' is not a name of a database"),
        ([acme, beta, acme], "acme.db is given twice"),
        ({"acme": acme, "other": link}, "acme.db is given twice"),
        ([[acme]], "cannot read frames from type list"),
        ({acme, beta}, "cannot read frames from type set"),
    ):
        with pytest.raises(InputError, match=text):
            frames.holdings(databases)
    with pytest.raises(NoDatabase, match="^none: there is no database at .*none.db"):
        frames.holdings([acme, tmp_path / "none.db"])
    with pytest.raises(InputError, match="^beta: None of the 3 wallets is in group 'nope'"):
        frames.holdings([beta, acme], group="nope")


def test_a_wallet_in_two_databases_is_an_error_that_names_it_and_both(both, tmp_path):
    copy = shutil.copy(both["acme"], tmp_path / "copy.db")
    with pytest.raises(InputError, match=r"^wallet Vault \S+…\S+ is in acme and in copy; "):
        frames.concentration([both["acme"], both["beta"], copy])


def test_warnings_name_their_database_and_the_line_of_the_call(both):
    prices = pd.DataFrame(
        {"contract": ["KT1abc"], "date": ["2020-01-01"], "price": ["2"], "currency": ["EUR"]}
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        values = frames.value(both, prices)
        frames.find(both, "nothing like it")
        frames.holdings(both["acme"], wallet=wallet_id(99))
    texts = [str(warning.message).partition(" no ")[0] for warning in warned]
    assert [text[:5] for text in texts[:4]] == ["acme:", "beta:"] * 2
    assert values["database"].unique().tolist() == ["acme", "beta"]
    assert {warning.filename for warning in warned} == {__file__}


def test_the_column_survives_in_files_short_forms_and_the_gallery(both, tmp_path):
    held = frames.holdings(both)
    path = frames.save(held, tmp_path / "held.parquet")
    pd.testing.assert_frame_equal(frames.load(path), held)
    assert frames.brief(held).columns[0] == "database"
    assert column(gallery(held), "database") == held["database"][held["amount"] != 0].tolist()
    together = frames.concentration(held, by="database")
    assert together["database"].tolist() == ["acme", "beta"]
