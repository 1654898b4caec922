"""Exports of all tables at one moment: exact, private, and complete or absent."""

import base64
import csv
import gc
import hashlib
import io
import json
import os
import re
import sqlite3
import stat
import warnings
from contextlib import closing
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.utils import range_boundaries
from openpyxl.utils.datetime import from_excel, to_excel
from openpyxl.utils.escape import unescape
from xlsxwriter.worksheet import Worksheet

from nftsync import __version__, frames
from nftsync.errors import InputError, NftsyncWarning, StoreError
from nftsync.export import formats
from nftsync.export.formats import neutralized, write_csv, write_rows
from nftsync.reports import export
from nftsync.reports.export import write_export
from nftsync.store.catalog import TABLES
from nftsync.times import format_time, now
from tests.kit.mirrored_site import Site, run
from tests.kit.readers import ENTRIES

LONG_AGO = "2000-01-01T00:00:00.000000Z"
NASTY = '=HYPERLINK("http://x", "a")\r\n;\t\'quoted\', \x00 \x1b[2J 𝔊 \u202e'


#: The types of pandas and of DuckDB for each kind of column in Parquet files.
READ_TYPES = {
    "text": ("str", "VARCHAR"),
    "amount": ("str", "VARCHAR"),
    "time": ("datetime64[us, UTC]", "TIMESTAMP WITH TIME ZONE"),
    "integer": ("Int64", "BIGINT"),
    "flag": ("bool", "BOOLEAN"),
    "real": ("float64", "DOUBLE"),
    "bytes": ("object", "BLOB"),
}


def table_rows(database: Path, name: str, *without: str) -> list[dict[str, Any]]:
    """Return the rows of a table's public columns in SQLite."""
    columns = [column for column in TABLES[name].columns if column not in without]
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def parquet_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a file, with times and flags in SQLite's form."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return format_time(value)
        return int(value) if isinstance(value, bool) else value

    rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
    return [{column: plain(value) for column, value in row.items()} for row in rows]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_any_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


@pytest.fixture
def busy(site: Site) -> Site:
    """Return a mirror with rows in every table, and hostile texts and amounts."""
    first, second = site.ids[:2]
    site.world.set_amount(first, site.held(first)[0], str(2**256 - 1))
    site.world.edit_metadata(site.held(second)[0], {"name": NASTY, "x": "@SUM(1)"})
    site.world.remove(second, site.held(second)[1])
    site.sync()
    run(site.database, "UPDATE wallets SET label = '-1+1', tracked = 0 WHERE wallet_no = 3")
    body = b"\xff\x00=1"
    for table, row in {
        "webhooks": {"webhook_id": "q-1", "received_at": now(), "state": "quarantined"},
        "messages": {"message_id": "=m", "rule": "r", "destination": "d", "created_at": now()},
        "hidden": {"contract": "=1", "reason": "x", "source": "given", "hidden_at": now()},
    }.items():
        if table == "webhooks":
            row |= {"body": body, "created_at_utc": "yesterday"}
        elif table == "messages":
            row |= {"body": body, "keys": "[]", "state": "pending"}
        marks = ", ".join("?" * len(row))
        run(
            site.database, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values()
        )
    keep(site.database, "y")
    return site


def keep(database: Path, resource_id: str) -> None:
    run(
        database,
        "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
        " VALUES ('X', ?, '{}', ?)",
        *(resource_id, now()),
    )


def test_parquet_has_the_rows_of_each_table_in_chunks_of_any_size(busy, tmp_path, monkeypatch):
    for name, most in (("whole", 50_000), ("chunks", 3)):
        monkeypatch.setattr(export, "CHUNK", most)
        write_export(busy.database, tmp_path / name)
        for table in TABLES:
            exported = parquet_rows(tmp_path / name, table)
            assert exported
            assert in_any_order(exported) == in_any_order(table_rows(busy.database, table)), table
            if "change_id" in exported[0]:
                assert exported == sorted(exported, key=itemgetter("change_id"))


def test_pandas_and_duckdb_read_declared_types_also_of_no_rows(busy, tmp_path):
    """Optional integers do not become floats, and amounts stay text."""
    edition = 2**53 + 1
    run(busy.database, "UPDATE tokens SET edition_id = iif(token_no = 1, ?, NULL)", edition)
    run(busy.database, "DELETE FROM resources")
    write_export(busy.database, tmp_path / "out")
    for name, table in TABLES.items():
        path = tmp_path / "out" / f"{name}.parquet"
        in_pandas, in_duckdb = pd.read_parquet(path), duckdb.read_parquet(str(path))
        assert list(in_pandas) == in_duckdb.columns == list(table.columns)
        kinds = [column.kind for column in table.columns.values()]
        assert [str(each) for each in in_pandas.dtypes] == [READ_TYPES[kind][0] for kind in kinds]
        assert [str(each) for each in in_duckdb.types] == [READ_TYPES[kind][1] for kind in kinds]
        for field, kind in zip(pq.read_schema(path), kinds, strict=True):
            comment = (field.metadata or {}).get(b"comment", b"")
            assert (b"uint256 fits no machine type" in comment) == (kind == "amount")
    tokens = pd.read_parquet(tmp_path / "out" / "tokens.parquet")
    assert set(tokens["edition_id"].dropna()) == {edition}
    balances = pd.read_parquet(tmp_path / "out" / "balances.parquet")
    assert str(2**256 - 1) in set(balances["amount"])


def test_the_manifest_names_each_file_with_its_rows_and_digest(busy, tmp_path):
    returned = write_export(busy.database, tmp_path / "out", file_format="csv")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    told = {name: manifest[name] for name in ("nftsync", "database", "format", "as_of")}
    assert told == {
        "nftsync": __version__, "database": "mirror.db", "format": "csv", "as_of": None,
    }  # fmt: skip
    assert manifest["exported_at"] == returned.exported_at
    assert [file["name"] for file in manifest["files"]] == [f"{name}.csv" for name in TABLES]
    for file in manifest["files"]:
        path = tmp_path / "out" / file["name"]
        assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        rows = csv_rows(path)
        assert file["rows"] == len(rows)
        kinds = {name: column.kind for name, column in TABLES[path.stem].columns.items()}
        assert dict(zip(file["columns"], file["kinds"], strict=True)) == kinds
        assert not rows or list(rows[0]) == list(kinds)
        if path.stem == "wallets":
            assert [row["tracked"] for row in rows] == ["1", "1", "0", "1"]
        # Internal columns are not exported.
        assert not {"sequence", "etag", "plan", "wallet_no", "token_no", "detailed"} & kinds.keys()


def test_all_files_show_one_moment_during_writes(site, tmp_path, monkeypatch):
    """A commit before each file adds to every log; no later file shows it."""
    before = {name: len(table_rows(site.database, name)) for name in TABLES}

    def committing(*arguments: Any) -> None:
        keep(site.database, str(arguments[0].name))
        run(site.database, "DELETE FROM balance_rows WHERE wallet_no = 1")
        insert = "INSERT INTO sync_runs (kind, status, started_at) VALUES ('sync', 'ok', ?)"
        run(site.database, insert, now())
        write_rows(*arguments)

    monkeypatch.setattr(export, "write_rows", committing)
    manifest = write_export(site.database, tmp_path / "out")
    assert {file.name.partition(".")[0]: file.rows for file in manifest.files} == before
    assert len(table_rows(site.database, "resources")) == len(TABLES)


def test_a_workbook_has_the_rows_of_each_table_holdings_first_and_names_before_ids(
    busy, tmp_path, monkeypatch
):
    """Another program reads the tables, amounts to the digit, and finds no formula."""
    monkeypatch.setattr(export, "CHUNK", 3)
    manifest = write_export(busy.database, tmp_path / "out", file_format="xlsx")
    path = tmp_path / "out" / "nftsync.xlsx"
    assert sorted(path.parent.iterdir()) == [path.parent / "manifest.json", path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert {(file.name, file.sha256) for file in manifest.files} == {(path.name, digest)}
    book = openpyxl.load_workbook(path)
    first = ["holdings", "statement", "transfers"]
    others = [name for name in TABLES if name != "holdings"]
    assert book.sheetnames == [*first, "about", *others]
    assert [file.sheet for file in manifest.files] == [*first, *others]
    listed = json.loads((path.parent / "manifest.json").read_bytes())["files"]
    rows_of = {file["sheet"]: file["rows"] for file in listed}
    assert {name: rows_of[name] for name in TABLES} == {
        name: len(table_rows(busy.database, name)) for name in TABLES
    }
    explained = {row[:2] for row in book["about"].iter_rows(values_only=True)}
    for file in manifest.files:
        assert {(file.sheet, column) for column in file.columns} <= explained
    for name, table in TABLES.items():
        sheet = book[name]
        assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", sheet.dimensions)
        header, *rows = sheet.iter_rows()
        headings = [cell.value for cell in header]
        assert headings == next(file.columns for file in manifest.files if file.sheet == name)
        if name == "holdings":
            assert headings[:4] == ["nft", "wallet", "wallet_group", "collection"]
            assert {*headings} == {*table.columns, "nft", "wallet"}
        else:
            assert headings == [*table.columns]
        assert not any(cell.data_type == "f" or cell.hyperlink for row in rows for cell in row)
        kinds = {name: column.kind for name, column in table.columns.items()}
        values = [dict(zip(headings, (cell.value for cell in row), strict=True)) for row in rows]
        shown = [{name: _alike(kinds[name], row[name]) for name in kinds} for row in values]
        expected = [
            {name: _alike(kinds[name], row[name]) for name in kinds}
            for row in table_rows(busy.database, name)
        ]
        assert in_any_order(shown) == in_any_order(expected), name
    header, *rows = book["tokens"].iter_rows(values_only=True)
    assert NASTY in {unescape(row[header.index("name")] or "") for row in rows}


def _alike(kind: str, value: Any) -> Any:
    """Return a value of a table or of a cell in a common form."""
    if kind == "time" and value is not None:
        if isinstance(value, datetime):
            return value.replace(tzinfo=None)
        return from_excel(to_excel(datetime.fromisoformat(value).replace(tzinfo=None)))
    if kind == "flag":
        return bool(value)
    if kind == "amount" and isinstance(value, int):
        return str(value)
    if kind == "bytes":
        return base64.b64decode(value) if isinstance(value, str) else value
    return unescape(value) if isinstance(value, str) else value


#: Amounts that a number would change, and amounts that are numbers.
TEXTS = ("1000000000000000", str(2**256 - 1), "0012", "-0", "-5", "1.5", "1e3", "abc", "", "٣")
NUMBERS = ("999999999999999", "0", "7")


@pytest.fixture
def amounts(site: Site, tmp_path: Path) -> Path:
    """A workbook of holdings with amounts of all kinds."""
    wallet = site.ids[0]
    while len(site.held(wallet)) < len(TEXTS + NUMBERS):
        site.world.mint(wallet, "1", {"name": "More"})
    for token, amount in zip(site.held(wallet), TEXTS + NUMBERS, strict=False):
        site.world.set_amount(wallet, token, amount)
    site.sync()
    with pytest.warns(NftsyncWarning, match="an amount is not a whole number"):
        write_export(site.database, tmp_path / "out.xlsx")
    return tmp_path / "out.xlsx"


def amount_cells(sheet: Any) -> list[Any]:
    (place,) = (cell.column for cell in sheet[1] if cell.value == "amount")
    return [row[place - 1] for row in sheet.iter_rows(min_row=2)]


def test_amounts_of_up_to_15_digits_are_numbers_and_all_others_text_as_sent(amounts):
    book = openpyxl.load_workbook(amounts)
    for name in ("holdings", "balances"):
        cells = amount_cells(book[name])
        texts = [cell for cell in cells if cell.data_type == "s"]
        assert sorted(cell.value or "" for cell in texts) == sorted(TEXTS)
        assert {cell.fill.fgColor.rgb for cell in texts} == {"FFFFF2CC"}
        numbers = [cell for cell in cells if cell.data_type == "n"]
        assert {int(amount) for amount in NUMBERS} <= {cell.value for cell in numbers}
        assert {(type(cell.value), cell.number_format) for cell in numbers} == {(int, "#,##0")}
        assert len(numbers) + len(texts) == len(cells)
        (note,) = book[name].data_validations.dataValidation
        assert f"{len(TEXTS)} of these numbers are text" in note.prompt
    assert not book["wallets"].data_validations.dataValidation


def test_the_statement_is_of_the_history_and_ends_with_the_holdings(busy, tmp_path):
    """As of any time, the rows add up, and the transfers have the same span."""
    moments = [row["observed_at"] for row in table_rows(busy.database, "balance_changes")]
    token = busy.held(busy.ids[0])[1]
    busy.world.transfer(busy.ids[0], busy.ids[1], token, "1")
    busy.sync()
    run(
        busy.database,
        "INSERT INTO hidden (token_id, source, hidden_at) VALUES (?, 'given', ?)",
        *(busy.held(busy.ids[2])[0], now()),
    )
    for number, as_of in enumerate((None, moments[-1], moments[0])):
        path = tmp_path / f"{number}.xlsx"
        with warnings.catch_warnings():  # a time within a sync shows the state before it
            warnings.simplefilter("ignore", NftsyncWarning)
            write_export(busy.database, path, as_of=as_of)
        book = openpyxl.load_workbook(path)
        rows = [*book["statement"].iter_rows(values_only=True)]
        header = next(row for row in rows if "opening" in row)
        entries = [dict(zip(header, row, strict=True)) for row in rows[rows.index(header) + 1 :]]
        for end in ("", "_amount"):
            for row in entries:
                values = [int(row[f"{name}{end}"]) for name in ENTRIES]
                assert values[0] + values[1] + values[2] - values[3] == values[4]
            closing = [int(row[f"closing{end}"]) for row in entries]
            assert sum(closing[:-1]) == closing[-1]
        amounts = [int(cell.value) for cell in amount_cells(book["holdings"])]
        assert entries[-1]["closing_amount"] in {sum(amounts), str(sum(amounts))}
        assert entries[-1]["closing"] == sum(amount > 0 for amount in amounts)
        transfers = [*book["transfers"].iter_rows(values_only=True)]
        top = next(place for place, row in enumerate(transfers) if "observed_at" in row)
        moved = [row for row in transfers[top + 1 :] if token in row]
        assert len(moved) == (as_of is None)
        if as_of is None:
            assert [row[0] for row in rows if row[0]][-2:] == ["hidden", "total"]
            assert any("the end of the first sync" in str(row[0]) for row in rows[:top])


def test_each_sheet_prints_one_page_wide_with_its_header_on_each_page(busy, tmp_path):
    write_export(busy.database, tmp_path / "out.xlsx")
    for sheet in openpyxl.load_workbook(tmp_path / "out.xlsx"):
        header = sheet.auto_filter.ref.partition(":")[0].removeprefix("A")
        assert sheet.page_setup.orientation == "landscape"
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        assert (sheet.page_setup.fitToWidth, sheet.page_setup.fitToHeight) == (None, 0)
        assert sheet.print_title_rows == f"${header}:${header}"
        assert sheet.freeze_panes == f"A{int(header) + 1}"
        assert sheet.oddFooter.right.text == "Page &P of &N"
        area = sheet.print_area.partition("!")[2].replace("$", "")
        first, top, printed, last = range_boundaries(area)
        assert (first, top, last) == (1, 1, sheet.max_row)
        groups = sheet.column_dimensions.values()
        widths = [group.width for group in groups for _ in range(group.min, group.max + 1)]
        assert sum(widths[:printed]) < 180
        assert printed == len(widths) or sum(widths[: printed + 1]) > 170
        assert sheet[int(header)][0].font.bold


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of XlsxWriter, which closes late
def test_a_file_is_one_workbook_whole_private_and_replaced(site, tmp_path):
    path = tmp_path / "folder" / "Out.XLSX"
    write_export(site.database, path)
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*path.parent.iterdir()] == [path]
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], "77")
    site.sync()
    manifest = write_export(site.database, path)
    assert path.read_bytes() != first
    assert {file.sha256 for file in manifest.files} == {
        hashlib.sha256(path.read_bytes()).hexdigest()
    }
    second = path.read_bytes()
    run(site.database, "DROP TABLE resources")  # and rows that fail when they are read
    run(
        site.database,
        "CREATE VIEW resources AS SELECT abs(-9223372036854775807 - wallet_no) AS rowid,"
        " '' AS resource_type, '' AS resource_id, '' AS body, '' AS fetched_at FROM wallets",
    )
    with pytest.raises(StoreError, match="integer overflow"):
        write_export(site.database, path)
    gc.collect()
    assert path.read_bytes() == second
    assert [*path.parent.iterdir()] == [path]
    with pytest.raises(InputError, match=r"Out.XLSX is the name of a workbook; name a directory"):
        write_export(site.database, path, file_format="csv")
    (tmp_path / "old.xlsx").mkdir()
    with pytest.raises(InputError, match=r"old.xlsx is a directory; name a file"):
        write_export(site.database, tmp_path / "old.xlsx")
    assert not [*(tmp_path / "old.xlsx").iterdir()]


def test_more_rows_than_a_sheet_has_are_refused_before_anything_is_written(site, tmp_path):
    run(site.database, "DROP TABLE resources")  # so many would take long to write
    run(
        site.database,
        "CREATE VIEW resources AS WITH RECURSIVE numbers(n) AS"
        " (VALUES (1) UNION ALL SELECT n + 1 FROM numbers LIMIT 1048576)"
        " SELECT n AS rowid, n AS resource_type, n AS resource_id, n AS body, n AS fetched_at"
        " FROM numbers",
    )
    with pytest.raises(InputError, match="resources does not fit an Excel sheet, which has 1,048,"):
        write_export(site.database, tmp_path / "out", file_format="xlsx")
    assert not list(tmp_path.glob("*out*"))


def test_as_of_any_time_balances_are_the_holdings_and_of_now_the_balances(busy, tmp_path):
    """`first_seen_at` of a token that left and came back is when it came back."""
    between = max(row["observed_at"] for row in table_rows(busy.database, "balance_changes")[:20])
    manifest = write_export(busy.database, tmp_path / "out", as_of=between)
    rows = {file.name.partition(".")[0]: file.rows for file in manifest.files}
    assert rows["balances"] == rows["holdings"] == rows["balance_changes"] == 20
    assert rows["token_changes"] == rows["webhooks"] == rows["resources"] == 0
    assert NASTY not in {row["name"] for row in parquet_rows(tmp_path / "out", "tokens")}
    wallet, token = busy.ids[0], busy.held(busy.ids[0])[0]
    busy.world.remove(wallet, token)
    busy.sync(wallet)
    busy.world.set_amount(wallet, token, "7")
    busy.sync(wallet)
    moments = sorted({row["observed_at"] for row in table_rows(busy.database, "balance_changes")})
    with pytest.warns(NftsyncWarning, match="no data at 2000-01-01"):
        manifest = write_export(busy.database, tmp_path / "before", as_of=LONG_AGO)
    rows = {file.name: file.rows for file in manifest.files if file.rows}
    assert set(rows) == {"wallets.parquet", "contracts.parquet", "hidden.parquet"}
    for number, moment in enumerate([*moments, now()]):
        out = tmp_path / str(number)
        with warnings.catch_warnings():  # a time within a sync shows the state before it
            warnings.simplefilter("ignore", NftsyncWarning)
            manifest = write_export(busy.database, out, as_of=moment)
            frame = frames.holdings(busy.database, as_of=moment)
        assert manifest.as_of == frame.attrs["as_of"] <= moment
        expected = frame[["wallet_id", "token_id", "amount_text"]].itertuples(index=False)
        found = parquet_rows(out, "balances")
        assert {(r["wallet_id"], r["token_id"], r["amount"]) for r in found} == set(expected)
        assert len(found) == len(frame)
    for name in ("balances", "holdings", "tokens", "balance_changes"):
        # As of a time, the time of the last read stands there for the wallet's.
        expected = table_rows(busy.database, name, "wallet_synced_at")
        found = [{name: row[name] for name in expected[0]} for row in parquet_rows(out, name)]
        assert in_any_order(found) == in_any_order(expected)


def test_cells_that_a_spreadsheet_could_run_are_quoted_and_others_stay():
    for begin in ("\t", "\r", " \u3000=", "＝", "\ufeff=", "\u200b=", "\x00=", "'=", "="):
        assert neutralized(f"{begin}1+1") == f"'{begin}1+1"
    # Where a semicolon separates cells, the file is split there, quoted or not.
    assert neutralized("\t=1") == "'\t'=1"
    assert neutralized("a; -b\n@c\t =d;'=e") == "a;' -b\n'@c\t' =d;''=e"
    for cell in ("", "1", "a=1", "x-y", "'Twas", "me@example.com", "{}", " 12", "0x", "a; b\nc"):
        assert neutralized(cell) == cell


#: Texts of characters that matter to the rule.
BORDERLINE = st.text(
    st.sampled_from("=+-@＝＋－＠' \t\r\n\x00\u200b\ufeff\u3000a1\"',;"), max_size=8
)
FORMULA = set("=+-@＝＋－＠﹦﹢﹣﹫")


@given(BORDERLINE | st.text(max_size=20))
def test_no_cell_begins_with_a_formula_and_only_quotes_are_added(text):
    """Nor does a part of a cell that a spreadsheet splits at semicolons or line breaks."""
    cell = neutralized(text)
    assert cell[:1] not in {"\t", "\r", "\n"}
    assert not any(part.lstrip()[:1] in FORMULA for part in re.split("[;\t\r\n]", cell) if part)
    rest = iter(cell)
    assert all(character in rest for character in text)
    assert cell.replace("'", "") == text.replace("'", "")


@given(
    st.lists(
        st.tuples(
            st.none() | BORDERLINE,
            st.none() | st.integers(0, 2**256 - 1).map(str),
            st.none() | st.datetimes(timezones=st.just(UTC)).map(format_time),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.binary(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_both_formats_keep_each_value(rows):
    columns = {"a": "text", "b": "amount", "c": "time", "d": "integer", "e": "bytes"}
    file = io.BytesIO()
    write_rows(file, columns, [rows])
    read = pq.read_table(pa.BufferReader(file.getvalue())).to_pylist()
    assert [
        (*map(r.get, "ab"), r["c"] and format_time(r["c"]), r["d"], r["e"]) for r in read
    ] == rows
    file = io.BytesIO()
    write_csv(file, columns.items(), [rows])
    cells = list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))
    assert cells == [
        list(columns),
        *(
            [
                *(neutralized(a or ""), b or "", c or "", "" if d is None else str(d)),
                neutralized(base64.b64encode(e or b"").decode()),
            ]
            for a, b, c, d, e in rows
        ),
    ]


def test_files_are_written_only_into_new_or_empty_directories(site, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    for out, problem in (
        (tmp_path / "full", "is not empty"),
        (tmp_path / "file", "not a directory"),
        (Path(), "working directory"),
    ):
        with pytest.raises(InputError, match=problem):
            write_export(site.database, out)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    before = os.umask(0)
    try:
        for out in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
            write_export(site.database, out)
            assert len(list(out.iterdir())) == len(TABLES) + 1
            modes = {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
            assert (stat.S_IMODE(out.stat().st_mode), modes) == (0o700, {0o600})
    finally:
        os.umask(before)
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        target.mkdir()
        (target / "theirs").touch()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(InputError, match="is not empty"):
        write_export(site.database, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theirs"]
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("file_format", ["parquet", "csv", "xlsx"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of XlsxWriter, which closes late
def test_a_failure_is_one_error_and_leaves_nothing(site, tmp_path, monkeypatch, file_format):
    opened = Path.open
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda _, *mode: opened(Path("/dev/full"), *mode))
        with pytest.raises(StoreError, match=r"cannot write .*/out: No space left"):
            write_export(site.database, tmp_path / "out", file_format=file_format)
    with monkeypatch.context() as patched:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(formats, "neutralized", interrupt)
        patched.setattr(pq.ParquetWriter, "write_table", interrupt)
        patched.setattr(Worksheet, "write_string", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_export(site.database, tmp_path / "out", file_format=file_format)
    run(site.database, "UPDATE wallets SET first_seen_at = 'yesterday' WHERE wallet_no = 1")
    if file_format == "parquet":
        with pytest.raises(StoreError, match="nftsync did not write"):
            write_export(site.database, tmp_path / "out")
    gc.collect()
    assert not list(tmp_path.glob("*out*"))


def test_the_command_names_the_written_files(site, tmp_path, command):
    command("export", "out", "--format", "csv", "--as-of", "today").tells(
        f"{len(TABLES)} files", code=0
    )
    assert (tmp_path / "out" / "holdings.csv").is_file()
    early = command("export", "early", "--as-of", "2000-01-01")
    assert early.code == 0
    assert re.search("^no data at the end of 2000-01-01.*$", early.err, re.M | re.I)
    command("export", "out").says("is not empty", code=2)
    command("export", "out2", "--format", "xlsx").says("nftsync.xlsx with")
    command("export", "out4.xlsx").says("Wrote out4.xlsx with")
    assert (tmp_path / "out4.xlsx").is_file()
    assert command("export", "out3", "--format", "ods").code == 2
    assert not (tmp_path / "out3").exists()
