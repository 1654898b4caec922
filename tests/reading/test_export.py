"""Files of everything, of one moment: exact, private, whole or not there at all."""

from __future__ import annotations

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
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirrored_site import Site
from worlds import Outcome

from nftsync import __version__, frames
from nftsync.errors import InputError, StoreError
from nftsync.reports.export import CsvFile, ExportFormat, ParquetFile, write_export
from nftsync.store.catalog import TABLES
from nftsync.text import neutralized
from nftsync.times import format_time, now

FAR_AHEAD = "2999-01-01T00:00:00.000000Z"
LONG_AGO = "2000-01-01T00:00:00.000000Z"
NASTY = '=HYPERLINK("http://x", "a")\r\n;\t\'quoted\', \x00 \x1b[2J 𝔊 \u202e'


#: What each kind of column is to pandas and to DuckDB, which read the Parquet files.
READ_TYPES = {
    "text": ("str", "VARCHAR"),
    "amount": ("str", "VARCHAR"),
    "time": ("datetime64[us, UTC]", "TIMESTAMP WITH TIME ZONE"),
    "integer": ("Int64", "BIGINT"),
    "flag": ("bool", "BOOLEAN"),
    "real": ("float64", "DOUBLE"),
    "bytes": ("object", "BLOB"),
}


def table_rows(database: Path, name: str) -> list[dict[str, Any]]:
    """A table's public columns, as SQLite has them."""
    columns = list(TABLES[name].columns)
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """A file's rows, with times and flags as SQLite has them."""
    table = pq.read_table(path)
    rows: list[dict[str, Any]] = table.to_pylist()
    for field in table.schema:
        for row in rows:
            value = row[field.name]
            if isinstance(value, datetime):
                row[field.name] = format_time(value)
            elif isinstance(value, bool):
                row[field.name] = int(value)
    return rows


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_any_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in rows)


@pytest.fixture
def busy(site: Site) -> Site:
    """A mirror with something in every table, and text and amounts that break naive writers."""
    first, second = site.ids[:2]
    token = site.held(first)[0]
    site.world.set_amount(first, token, str(2**256 - 1))
    site.world.edit_metadata(site.held(second)[0], {"name": NASTY, "x": "@SUM(1)"})
    site.world.remove(second, site.held(second)[1])
    site.sync()
    with closing(sqlite3.connect(site.database)) as connection, connection:
        connection.execute("UPDATE wallets SET label = '-1+1', tracked = 0 WHERE wallet_no = 3")
        connection.execute(
            "INSERT INTO webhooks (webhook_id, received_at, state, body, created_at_utc)"
            " VALUES ('q-1', ?, 'quarantined', ?, 'yesterday')",
            (now(), b"\xff\x00=1"),
        )
        connection.execute(
            "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
            " VALUES ('X', 'y', '{\"a\": 1}', ?)",
            (now(),),
        )
    return site


# What is written --------------------------------------------------------------------------------


def test_parquet_says_what_each_table_says(busy: Site, tmp_path: Path) -> None:
    write_export(busy.database, tmp_path / "out")
    for name in TABLES:
        exported = parquet_rows(tmp_path / "out" / f"{name}.parquet")
        assert exported
        assert in_any_order(exported) == in_any_order(table_rows(busy.database, name)), name
        if "change_id" in exported[0]:
            assert exported == sorted(exported, key=itemgetter("change_id"))


def test_csv_says_what_each_table_says(busy: Site, tmp_path: Path) -> None:
    write_export(busy.database, tmp_path / "out", file_format="csv")

    def cell(value: Any) -> str:
        if isinstance(value, bytes):
            return neutralized(base64.b64encode(value).decode())
        return neutralized(value) if isinstance(value, str) else "" if value is None else str(value)

    for name in TABLES:
        expected = [
            {column: cell(value) for column, value in row.items()}
            for row in table_rows(busy.database, name)
        ]
        exported = csv_rows(tmp_path / "out" / f"{name}.csv")
        assert in_any_order(exported) == in_any_order(expected), name


def test_pandas_and_duckdb_read_declared_types_also_of_no_rows(busy: Site, tmp_path: Path) -> None:
    """Integers that may be missing do not become floats, nor amounts numbers."""
    edition = 2**53 + 1
    with closing(sqlite3.connect(busy.database)) as connection, connection:
        connection.execute("UPDATE tokens SET edition_id = NULL")
        connection.execute("UPDATE tokens SET edition_id = ? WHERE token_no = 1", (edition,))
        connection.execute("DELETE FROM resources")
    write_export(busy.database, tmp_path / "out")
    for name, table in TABLES.items():
        path = tmp_path / "out" / f"{name}.parquet"
        in_pandas, in_duckdb = pd.read_parquet(path), duckdb.read_parquet(str(path))
        assert list(in_pandas) == in_duckdb.columns == list(table.columns)
        for column, (kind, *_) in table.columns.items():
            assert str(in_pandas[column].dtype) == READ_TYPES[kind][0], (name, column)
            comment = (pq.read_schema(path).field(column).metadata or {}).get(b"comment", b"")
            assert (b"uint256 fits no machine type" in comment) == (kind == "amount")
        assert list(map(str, in_duckdb.types)) == [
            READ_TYPES[column.kind][1] for column in table.columns.values()
        ]
    tokens = pd.read_parquet(tmp_path / "out" / "tokens.parquet")
    assert set(tokens["edition_id"].dropna()) == {edition}
    balances = pd.read_parquet(tmp_path / "out" / "balances.parquet")
    assert str(2**256 - 1) in set(balances["amount"])


def test_the_manifest_names_each_file_with_its_rows_and_digest(busy: Site, tmp_path: Path) -> None:
    returned = write_export(busy.database, tmp_path / "out", file_format="csv")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["nftsync"] == __version__
    assert manifest["database"] == "mirror.db"
    assert (manifest["format"], manifest["as_of"]) == ("csv", None)
    assert manifest["exported_at"] == returned.exported_at
    assert [file["name"] for file in manifest["files"]] == [f"{name}.csv" for name in TABLES]
    for file in manifest["files"]:
        path = tmp_path / "out" / file["name"]
        assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        rows = csv_rows(path)
        assert file["rows"] == len(rows)
        assert not rows or file["columns"] == list(rows[0])
        table = TABLES[file["name"].partition(".")[0]]
        kinds = {name: column.kind for name, column in table.columns.items()}
        assert dict(zip(file["columns"], file["kinds"], strict=True)) == kinds
        # What reads keep for themselves does not leave.
        assert not {"ticket", "etag", "plan", "wallet_no", "token_no", "detailed"} & kinds.keys()


def test_small_chunks_join_without_a_seam(busy: Site, tmp_path: Path) -> None:
    for as_of in (None, FAR_AHEAD):
        out = tmp_path / f"out {as_of}"
        write_export(busy.database, out, as_of=as_of, chunk_rows=3)
        for name in ("balances", "holdings", "tokens", "balance_changes"):
            # As of a time, the time of the last read stands there for the wallet's.
            columns = [column for column in TABLES[name].columns if column != "wallet_synced_at"]
            exported = parquet_rows(out / f"{name}.parquet")
            expected = table_rows(busy.database, name)
            assert in_any_order([{c: r[c] for c in columns} for r in exported]) == in_any_order(
                [{c: r[c] for c in columns} for r in expected]
            )


def test_all_files_are_of_one_moment_whatever_is_written_between_them(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each file a commit adds to every log; none of it shows in one that comes after."""
    before = {name: len(table_rows(site.database, name)) for name in TABLES}
    made = 0

    class Committing(ParquetFile):
        def __init__(self, *arguments: Any) -> None:
            nonlocal made
            made += 1
            super().__init__(*arguments)
            with closing(sqlite3.connect(site.database)) as writer, writer:
                writer.execute(
                    "INSERT INTO resources (resource_type, resource_id, body, fetched_at)"
                    " VALUES ('X', ?, '{}', ?)",
                    (str(made), now()),
                )
                writer.execute("DELETE FROM balance_rows WHERE wallet_no = 1")
                writer.execute(
                    "INSERT INTO sync_runs (kind, status, started_at) VALUES ('sync', 'ok', ?)",
                    (now(),),
                )

    monkeypatch.setattr("nftsync.reports.export.ParquetFile", Committing)
    manifest = write_export(site.database, tmp_path / "out")
    assert {file.name.partition(".")[0]: file.rows for file in manifest.files} == before
    assert len(table_rows(site.database, "resources")) == len(TABLES)


# As of a time -----------------------------------------------------------------------------------


def test_as_of_shows_balances_tokens_and_logs_as_they_were(busy: Site, tmp_path: Path) -> None:
    then = table_rows(busy.database, "wallet_states")[-1]["first_read_at"]
    first_run = {row["observed_at"] for row in table_rows(busy.database, "balance_changes")[:20]}
    between = max(first_run)
    assert between < then
    manifest = write_export(busy.database, tmp_path / "out", as_of=between)
    rows = {file.name.partition(".")[0]: file.rows for file in manifest.files}
    assert rows["balances"] == rows["holdings"] == rows["balance_changes"] == 20
    assert rows["token_changes"] == rows["webhooks"] == rows["resources"] == 0
    assert (rows["sync_runs"], rows["wallets"], rows["wallet_states"]) == (1, 4, 4)
    holdings = parquet_rows(tmp_path / "out" / "holdings.parquet")
    assert str(2**256 - 1) not in {row["amount"] for row in holdings}
    assert NASTY not in {row["name"] for row in holdings}
    assert {row["certainty"] for row in holdings} <= {"bracketed", "gap"}
    names = {row["name"] for row in parquet_rows(tmp_path / "out" / "tokens.parquet")}
    assert NASTY not in names


def test_balances_as_of_a_time_are_the_holdings_as_of_then(busy: Site, tmp_path: Path) -> None:
    moments = sorted({row["observed_at"] for row in table_rows(busy.database, "balance_changes")})
    for number, moment in enumerate([LONG_AGO, *moments, FAR_AHEAD]):
        out = tmp_path / str(number)
        write_export(busy.database, out, as_of=moment)
        frame = frames.holdings(busy.database, as_of=moment)
        expected = {
            (row.wallet_id, row.token_id, row.amount_text) for row in frame.itertuples(index=False)
        }
        rows = parquet_rows(out / "balances.parquet")
        assert {(r["wallet_id"], r["token_id"], r["amount"]) for r in rows} == expected
        assert len(rows) == len(frame)


def test_balances_as_of_now_are_the_balances_down_to_their_times(
    busy: Site, tmp_path: Path
) -> None:
    """`first_seen_at` of a token that left and came back is when it came back."""
    wallet, token = busy.ids[0], busy.held(busy.ids[0])[0]
    amount = "7"
    busy.world.remove(wallet, token)
    busy.sync(wallet)
    busy.world.set_amount(wallet, token, amount)
    busy.sync(wallet)
    write_export(busy.database, tmp_path / "out", as_of=FAR_AHEAD)
    rows = parquet_rows(tmp_path / "out" / "balances.parquet")
    assert in_any_order(rows) == in_any_order(table_rows(busy.database, "balances"))


def test_as_of_before_everything_has_wallets_only(site: Site, tmp_path: Path) -> None:
    manifest = write_export(site.database, tmp_path / "out", as_of=LONG_AGO)
    assert {file.name: file.rows for file in manifest.files if file.rows} == {"wallets.parquet": 4}
    assert manifest.as_of == LONG_AGO


# CSV cells --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    [
        *("=1+1", "+1", "-1", "@SUM(1)", "\tx", "\rx", "  =1", " \u3000=1"),
        *("＝1+1", "＋1", "－1", "＠SUM(1)", "\ufeff=1", "\u200b=1", "\xa0-2", "\x00=1", "'=1"),
    ],
)
def test_a_cell_that_a_spreadsheet_could_run_is_quoted(cell: str) -> None:
    assert neutralized(cell) == f"'{cell}"


def test_a_place_within_a_cell_that_a_spreadsheet_could_begin_a_cell_at_is_quoted() -> None:
    """Where a semicolon separates cells, the file is split there, quoted or not."""
    assert neutralized("a;=1+1") == "a;'=1+1"
    assert neutralized("\t=1") == "'\t'=1"
    assert neutralized("a; -b\n@c\t =d;'=e") == "a;' -b\n'@c\t' =d;''=e"


@pytest.mark.parametrize(
    "cell", ["", "1", "a=1", "x-y", "'Twas", "me@example.com", "{}", " 12", "0x", "a; b\nc"]
)
def test_other_cells_stay_as_they_are(cell: str) -> None:
    assert neutralized(cell) == cell


#: Texts near the border: made of what matters to the rule.
BORDERLINE = st.text(
    st.sampled_from("=+-@＝＋－＠' \t\r\n\x00\u200b\ufeff\u3000a1\"',;"), max_size=8
)


FORMULA = set("=+-@＝＋－＠﹦﹢﹣﹫")


@given(BORDERLINE | st.text(max_size=20))
def test_no_cell_begins_with_a_formula_and_only_quotes_are_added(text: str) -> None:
    """Nor does what a spreadsheet makes of a cell that splits it at semicolons or line breaks."""
    cell = neutralized(text)
    assert cell[:1] not in {"\t", "\r", "\n"}
    assert not any(part.lstrip()[:1] in FORMULA for part in re.split("[;\t\r\n]", cell) if part)
    rest = iter(cell)
    assert all(character in rest for character in text)
    assert cell.replace("'", "") == text.replace("'", "")


@given(
    st.lists(
        st.tuples(
            st.none() | BORDERLINE, st.none() | st.text(max_size=20), st.none() | st.binary()
        ),
        min_size=1,
        max_size=5,
    )
)
def test_csv_keeps_each_text_in_its_cell(rows: list[tuple[Any, ...]]) -> None:
    file = io.BytesIO()
    out = CsvFile(file, {"a": "text", "b": "amount", "c": "bytes"})
    out.write(rows)
    out.close()
    read = list(csv.reader(io.StringIO(file.getvalue().decode(), newline="")))
    assert read[0] == ["a", "b", "c"]
    assert read[1:] == [
        [
            neutralized(a or ""),
            neutralized(b or ""),
            neutralized(base64.b64encode(c or b"").decode()),
        ]
        for a, b, c in rows
    ]


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(),
            st.none() | st.integers(0, 2**256 - 1).map(str),
            st.none() | st.datetimes(timezones=st.just(UTC)).map(format_time),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.binary(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_parquet_keeps_each_value(rows: list[tuple[Any, ...]]) -> None:
    file = io.BytesIO()
    out = ParquetFile(file, {"a": "text", "b": "amount", "c": "time", "d": "integer", "e": "bytes"})
    out.write(rows)
    out.close()
    read = pq.read_table(pa.BufferReader(file.getvalue())).to_pylist()
    assert [
        (row["a"], row["b"], row["c"] and format_time(row["c"]), row["d"], row["e"]) for row in read
    ] == rows


# Where it is written ----------------------------------------------------------------------------


def test_only_its_owner_may_read_it(site: Site, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_export(site.database, tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()} == {0o600}


def test_what_is_in_use_is_left_alone_and_what_is_empty_or_missing_is_taken(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(InputError, match="is not empty"):
        write_export(site.database, tmp_path / "full")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="no directory"):
        write_export(site.database, tmp_path / "file")
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="working directory"):
        write_export(site.database, Path())
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        write_export(site.database, out)
        assert len(list(out.iterdir())) == 11


def test_a_directory_that_fills_meanwhile_is_left_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").touch()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(InputError, match="is not empty"):
        write_export(site.database, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["theirs"]
    assert not list(tmp_path.glob(".out*"))


def test_what_is_interrupted_leaves_nothing_behind(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Any, rows: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ParquetFile, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_export(site.database, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_a_full_disk_is_one_error_and_no_noise(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: ExportFormat
) -> None:
    """Nothing is left open that would complain once more when it is collected."""
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda _, *mode: opened(Path("/dev/full"), *mode))
    with pytest.raises(StoreError, match=r"cannot write .*/out: No space left"):
        write_export(site.database, tmp_path / "out", file_format=file_format)
    gc.collect()
    assert not list(tmp_path.glob("*out*"))


def test_a_time_that_something_else_wrote_is_said(site: Site, tmp_path: Path) -> None:
    with closing(sqlite3.connect(site.database)) as connection, connection:
        connection.execute("UPDATE wallets SET first_seen_at = 'yesterday' WHERE wallet_no = 1")
    with pytest.raises(StoreError, match="nftsync did not write"):
        write_export(site.database, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_writes_files_and_says_so(
    site: Site, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    done = command("export", "out", "--format", "csv", "--as-of", "2999-01-01", "-d", site.database)
    assert (done.code, done.out) == (0, "")
    assert "10 files" in done.err
    assert (tmp_path / "out" / "holdings.csv").is_file()
    again = command("export", "out", "-d", site.database)
    assert again.code == 2
    assert "is not empty" in again.err
    assert command("export", "out2", "--format", "xlsx", "-d", site.database).code == 2
    assert not (tmp_path / "out2").exists()
