"""Exports of all tables at one moment: exact, private, and complete or absent."""

import base64
import csv
import gc
import hashlib
import json
import os
import re
import stat
import warnings
from collections.abc import Callable
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pandas as pd
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
from nftsync.export.formats import neutralized, write_rows
from nftsync.reports import export
from nftsync.reports.export import write_export
from nftsync.store.catalog import TABLES
from nftsync.times import format_time, now
from tests.kit.mirrored_site import Site
from tests.kit.serve_process import query

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
    rows = query(database, f"SELECT {', '.join(columns)} FROM {name}")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def from_parquet(_: str, value: Any) -> Any:
    """Return a time or a flag in SQLite's form."""
    if isinstance(value, datetime):
        return format_time(value)
    return int(value) if isinstance(value, bool) else value


def as_csv(kind: str, value: Any) -> str:
    value = base64.b64encode(value or b"").decode() if kind == "bytes" else value
    text = "" if value is None else str(value)
    return neutralized(text) if kind in {"text", "bytes"} else text


def as_cell(kind: str, value: Any) -> Any:
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


def alike(name: str, rows: list[Any], change: Callable[[str, Any], Any]) -> list[str]:
    """Return the rows of a table in a comparable form, in any order."""
    kinds = {column: about.kind for column, about in TABLES[name].columns.items()}
    return sorted(repr([change(kinds[x], row[x]) for x in row if x in kinds]) for row in rows)


@pytest.fixture
def busy(site: Site) -> Site:
    """Return a mirror with rows in every table, and hostile texts and amounts."""
    first, second = site.ids[:2]
    site.world.set_amount(first, site.held(first)[0], str(2**256 - 1))
    site.world.edit_metadata(site.held(second)[0], {"name": NASTY, "x": "@SUM(1)"})
    site.world.remove(second, site.held(second)[1])
    site.sync()
    query(site.database, "UPDATE wallets SET label = '-1+1', tracked = 0 WHERE wallet_no = 3")
    body = b"\xff\x00=1"
    webhook = {"webhook_id": "q-1", "received_at": now(), "state": "quarantined"}
    message = {"message_id": "=m", "rule": "r", "destination": "d", "created_at": now()}
    for table, row in {
        "webhooks": {**webhook, "body": body, "created_at_utc": "yesterday"},
        "messages": {**message, "body": body, "keys": "[]", "state": "pending"},
        "hidden": {"contract": "=1", "reason": "x", "source": "given", "hidden_at": now()},
        "resources": resource("y"),
    }.items():
        insert(site.database, table, row)
    return site


def resource(name: str) -> dict[str, str]:
    return {"resource_type": "X", "resource_id": name, "body": "{}", "fetched_at": now()}


def insert(database: Path, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    query(database, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())


@pytest.mark.parametrize("file_format", ["parquet", "csv", "xlsx"])
def test_a_format_has_the_exact_rows_of_each_table(busy, tmp_path, monkeypatch, file_format):
    """In chunks; of a CSV file, cells that a spreadsheet could run are quoted."""
    monkeypatch.setattr(export, "CHUNK", 3)
    out = tmp_path / "out"
    write_export(busy.database, out, file_format=file_format)
    book = openpyxl.load_workbook(out / "nftsync.xlsx") if file_format == "xlsx" else {}
    for table in TABLES:
        expected = table_rows(busy.database, table)
        assert expected
        if file_format == "parquet":
            rows = pq.read_table(out / f"{table}.parquet").to_pylist()
            assert alike(table, rows, from_parquet) == alike(table, expected, lambda _, x: x), table
            if "change_id" in rows[0]:
                assert rows == sorted(rows, key=itemgetter("change_id"))
        elif file_format == "csv":
            rows = csv_rows(out / f"{table}.csv")
            assert alike(table, rows, lambda _, x: x) == alike(table, expected, as_csv), table
        else:
            header, *cells = book[table].iter_rows(values_only=True)
            rows = [dict(zip(header, row, strict=True)) for row in cells]
            rows = [{name: row[name] for name in expected[0]} for row in rows]
            assert alike(table, rows, as_cell) == alike(table, expected, as_cell), table
            cells = [cell for row in book[table] for cell in row]
            assert not any(cell.data_type == "f" or cell.hyperlink for cell in cells)


def test_pandas_and_duckdb_read_declared_types_also_of_no_rows(busy, tmp_path):
    """Optional integers do not become floats, and amounts stay text."""
    edition = 2**53 + 1
    query(busy.database, "UPDATE tokens SET edition_id = iif(token_no = 1, ?, NULL)", edition)
    query(busy.database, "DELETE FROM resources")
    write_export(busy.database, tmp_path / "out")
    for name, table in TABLES.items():
        path = tmp_path / "out" / f"{name}.parquet"
        in_pandas, in_duckdb = pd.read_parquet(path), duckdb.read_parquet(str(path))
        assert list(in_pandas) == in_duckdb.columns == list(table.columns)
        kinds = [column.kind for column in table.columns.values()]
        types = zip(map(str, in_pandas.dtypes), map(str, in_duckdb.types), strict=True)
        assert [*types] == [READ_TYPES[kind] for kind in kinds]
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
    files = manifest.pop("files")
    expected = {"nftsync": __version__, "database": "mirror.db", "format": "csv", "as_of": None}
    assert manifest == expected | {"exported_at": returned.exported_at}
    assert [file["name"] for file in files] == [f"{name}.csv" for name in TABLES]
    for file in files:
        path = tmp_path / "out" / file["name"]
        assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        rows = csv_rows(path)
        assert file["rows"] == len(rows)
        kinds = {name: column.kind for name, column in TABLES[path.stem].columns.items()}
        assert dict(zip(file["columns"], file["kinds"], strict=True)) == kinds
        # Internal columns are not exported.
        assert not {"sequence", "etag", "plan", "wallet_no", "token_no", "detailed"} & kinds.keys()


def test_all_files_show_one_moment_during_writes(site, tmp_path, monkeypatch):
    """A commit before each file adds to every log; no later file shows it."""
    before = {name: len(table_rows(site.database, name)) for name in TABLES}

    def committing(*arguments: Any) -> None:
        insert(site.database, "resources", resource(str(arguments[0].name)))
        query(site.database, "DELETE FROM balance_rows WHERE wallet_no = 1")
        started = {"kind": "sync", "status": "ok", "started_at": now()}
        insert(site.database, "sync_runs", started)
        write_rows(*arguments)

    monkeypatch.setattr(export, "write_rows", committing)
    manifest = write_export(site.database, tmp_path / "out")
    assert {file.name.partition(".")[0]: file.rows for file in manifest.files} == before
    assert len(table_rows(site.database, "resources")) == len(TABLES)


def test_a_workbook_has_holdings_and_names_first_and_explains_its_columns(busy, tmp_path):
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
    explained = {row[:2] for row in book["about"].iter_rows(values_only=True)}
    for file in manifest.files:
        assert {(file.sheet, column) for column in file.columns} <= explained
        if file.sheet in TABLES:
            sheet, columns = book[file.sheet], [*TABLES[file.sheet].columns]
            assert (sheet.freeze_panes, sheet.auto_filter.ref) == ("A2", sheet.dimensions)
            assert file.rows == len(table_rows(busy.database, file.sheet)) == sheet.max_row - 1
            headings = [cell.value for cell in sheet[1]]
            assert headings == list(file.columns)
            if file.sheet == "holdings":
                assert headings[:4] == ["nft", "wallet", "wallet_group", "collection"]
                assert {*headings} == {*columns, "nft", "wallet"}
            else:
                assert headings == columns


#: Amounts that a number would change, and amounts that are numbers.
TEXTS = ("1000000000000000", str(2**256 - 1), "0012", "-0", "-5", "1.5", "1e3", "abc", "", "٣")
NUMBERS = ("999999999999999", "0", "7")


def amount_cells(sheet: Any) -> list[Any]:
    (place,) = (cell.column for cell in sheet[1] if cell.value == "amount")
    return [row[place - 1] for row in sheet.iter_rows(min_row=2)]


def test_amounts_of_up_to_15_digits_are_numbers_and_all_others_text_as_sent(site, tmp_path):
    wallet = site.ids[0]
    while len(site.held(wallet)) < len(TEXTS + NUMBERS):
        site.world.mint(wallet, "1", {"name": "More"})
    for token, amount in zip(site.held(wallet), TEXTS + NUMBERS, strict=False):
        site.world.set_amount(wallet, token, amount)
    site.sync()
    with pytest.warns(NftsyncWarning, match="an amount is not a whole number"):
        write_export(site.database, tmp_path / "out.xlsx")
    book = openpyxl.load_workbook(tmp_path / "out.xlsx")
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
    """As of any time; the transfers have the same span."""
    moments = [row["observed_at"] for row in table_rows(busy.database, "balance_changes")]
    token = busy.held(busy.ids[0])[1]
    busy.world.transfer(busy.ids[0], busy.ids[1], token, "1")
    busy.sync()
    hidden = {"token_id": busy.held(busy.ids[2])[0], "source": "given", "hidden_at": now()}
    insert(busy.database, "hidden", hidden)
    for number, as_of in enumerate((None, moments[-1], moments[0])):
        path = tmp_path / f"{number}.xlsx"
        with warnings.catch_warnings():  # a time within a sync shows the state before it
            warnings.simplefilter("ignore", NftsyncWarning)
            write_export(busy.database, path, as_of=as_of)
        book = openpyxl.load_workbook(path)
        rows = [*book["statement"].iter_rows(values_only=True)]
        header = next(row for row in rows if "opening" in row)
        entries = [dict(zip(header, row, strict=True)) for row in rows[rows.index(header) + 1 :]]
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


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of XlsxWriter, which closes late
def test_a_file_is_one_workbook_whole_private_and_replaced(site, tmp_path, monkeypatch):
    path = tmp_path / "folder" / "Out.XLSX"
    write_export(site.database, path)
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*path.parent.iterdir()] == [path]
    site.world.set_amount(site.ids[0], site.held(site.ids[0])[0], "77")
    site.sync()
    manifest = write_export(site.database, path)
    second = path.read_bytes()
    assert second != first
    assert {file.sha256 for file in manifest.files} == {hashlib.sha256(second).hexdigest()}
    with monkeypatch.context() as patched:
        patched.setattr(Worksheet, "write_string", interrupt)
        with pytest.raises(KeyboardInterrupt):
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
    query(site.database, "DROP TABLE resources")  # so many would take long to write
    query(
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
    wallet, token = busy.ids[0], busy.held(busy.ids[0])[0]
    busy.world.remove(wallet, token)
    busy.sync(wallet)
    busy.world.set_amount(wallet, token, "7")
    busy.sync(wallet)
    changes = table_rows(busy.database, "balance_changes")
    first, *moments = sorted({row["observed_at"] for row in changes})
    with pytest.warns(NftsyncWarning, match="no data at 2000-01-01"):
        manifest = write_export(busy.database, tmp_path / "before", as_of="2000-01-01T00:00:00Z")
    rows = {file.name: file.rows for file in manifest.files if file.rows}
    assert set(rows) == {"wallets.parquet", "contracts.parquet", "hidden.parquet"}
    for number, moment in enumerate([first, *moments, now()]):
        out = tmp_path / str(number)
        with warnings.catch_warnings():  # a time within a sync shows the state before it
            warnings.simplefilter("ignore", NftsyncWarning)
            manifest = write_export(busy.database, out, as_of=moment)
            frame = frames.holdings(busy.database, as_of=moment)
        assert manifest.as_of == frame.attrs["as_of"] <= moment
        columns = ["wallet_id", "token_id", "amount_text"]
        found = pq.read_table(out / "balances.parquet").to_pandas()
        expected = frame[columns].to_numpy().tolist()
        assert sorted(found[[*columns[:2], "amount"]].to_numpy().tolist()) == sorted(expected)
        rows = {Path(file.name).stem: file.rows for file in manifest.files}
        until = [row for row in changes if row["observed_at"] <= manifest.as_of]
        assert (rows["balance_changes"], rows["balances"]) == (len(until), rows["holdings"])
        if len(until) == 20:
            assert rows["token_changes"] == rows["webhooks"] == rows["resources"] == 0
            names = pq.read_table(out / "tokens.parquet")["name"].to_pylist()
            assert NASTY not in names
    for name in ("balances", "holdings", "tokens", "balance_changes"):
        # As of a time, the time of the last read stands there for the wallet's.
        expected = table_rows(busy.database, name, "wallet_synced_at")
        found = pq.read_table(out / f"{name}.parquet").select([*expected[0]]).to_pylist()
        assert alike(name, found, from_parquet) == alike(name, expected, lambda _, x: x)


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


def test_files_are_written_only_into_new_or_empty_directories(site, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused = {"../full": "is not empty", "../file": "not a directory", ".": "working directory"}
    for out, problem in refused.items():
        with pytest.raises(InputError, match=problem):
            write_export(site.database, Path(out))
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
        patched.setattr(formats, "neutralized", interrupt)
        patched.setattr(pq.ParquetWriter, "write_table", interrupt)
        patched.setattr(Worksheet, "write_string", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_export(site.database, tmp_path / "out", file_format=file_format)
    query(site.database, "UPDATE wallets SET first_seen_at = 'yesterday' WHERE wallet_no = 1")
    if file_format == "parquet":
        with pytest.raises(StoreError, match="nftsync did not write"):
            write_export(site.database, tmp_path / "out")
    gc.collect()
    assert not list(tmp_path.glob("*out*"))


def test_the_command_names_the_written_files(site, tmp_path, command):
    done = command("export", "out", "--format", "csv", "--as-of", "today")
    done.tells(f"{len(TABLES)} files", code=0)
    assert (tmp_path / "out" / "holdings.csv").is_file()
    early = command("export", "early", "--as-of", "2000-01-01").says()
    assert re.search("^no data at the end of 2000-01-01.*$", early.err, re.M | re.I)
    command("export", "out").says("is not empty", code=2)
    command("export", "out2", "--format", "xlsx").says("nftsync.xlsx with")
    command("export", "out4.xlsx").says("Wrote out4.xlsx with")
    assert (tmp_path / "out4.xlsx").is_file()
    assert command("export", "out3", "--format", "ods").code == 2
    assert not (tmp_path / "out3").exists()
