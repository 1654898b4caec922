"""Frames in files: each is read back the same, and a spreadsheet runs no cell."""

import csv
import gc
import os
import stat
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet
from pandas.testing import assert_frame_equal

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import at
from tests.kit.readers import READERS

UINT256 = 2**256 - 1
#: Texts that programs take for a formula, a link, a missing value or an escape.
TEXTS = ["=1+1", "+1", "@a", "{=1}", "http://x", "mailto:x", "\x00\x1b[2J", "_x001B_", "\ufffe"]
TEXTS += ["\u202egnp.exe", "NaN", "None", "", "nan", "<NA>", "1", "1e5", "a;=1", " x ", "😀"]


def back(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    return frames.load(frames.save(frame, folder / "frame.parquet"))


def csv_cells(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.filterwarnings("ignore:the history begins at")
@pytest.mark.parametrize("name", READERS)
def test_each_frame_of_a_database_comes_back(name, small_database, tmp_path):
    # Without the display of its own that some have.
    frame = pd.DataFrame(READERS[name](small_database))
    assert_frame_equal(back(frame, tmp_path), frame)
    assert_frame_equal(back(frame.iloc[:0], tmp_path), frame.iloc[:0])


def test_each_kind_of_column_comes_back(tmp_path):
    times = pd.to_datetime(["2026-01-31T12:00:00", None], utc=True)
    frame = pd.DataFrame(
        {
            "nanoseconds": times.as_unit("ns").tz_convert("Europe/Berlin"),
            "without a zone": times.tz_localize(None).as_unit("ms"),
            "ordered": pd.Categorical(["x", None], ["z", "x", "y"], ordered=True),
            "Int64": pd.array([2**63 - 1, None], dtype="Int64"),
            "uint64": np.array([2**64 - 1, 0], dtype="uint64"),
            "boolean": pd.array([True, None], dtype="boolean"),
            "bytes": pd.Series([b"\xff\x00", None], dtype=object),
            "dates": pd.Series([date(2026, 1, 31), None], dtype=object),
            "decimals": pd.Series([Decimal("1.10"), None], dtype=object),
            "amounts": pd.Series([UINT256, None], dtype=object),
            "negative": pd.Series([-UINT256, 0], dtype=object),
            "nothing": pd.Series([None, None], dtype=object),
            "reals": [float("inf"), float("nan")],
            "flags": [True, False],
            "durations": pd.to_timedelta([-9e4, None], unit="s").as_unit("us"),
        }
    )
    frame.attrs = {"source": "a test"}
    for shown in (
        *(frame, frame.iloc[[1]], frame.iloc[:0], frame.rename_axis(columns="kind")),
        *(frame.set_index(["uint64", "nanoseconds"]), frame.rename_axis("\x00 =index")),
        pd.DataFrame({text: pd.Series([*TEXTS, None], dtype="str") for text in TEXTS}),
    ):
        again = back(shown, tmp_path)
        assert_frame_equal(again, shown)
        assert again.attrs == shown.attrs
    # Categories other than text come back as their values.
    cut = pd.DataFrame({"bin": pd.cut([0.5, 2], [0, 1, 3]), "big": pd.Categorical([UINT256, 1])})
    assert_frame_equal(back(cut, tmp_path), cut.astype({"bin": "interval", "big": object}))


def test_the_files_of_an_export_load_as_the_frames(small_database, tmp_path, command):
    """Only the type of integers differs; names of collections are in another file."""
    of_others = {"tokens": ["collection"]}
    command("export", "out", "-d", small_database).says()
    for name in ("holdings", "tokens", "wallets", "changes", "token_changes", "runs"):
        table = {"changes": "balance_changes", "runs": "sync_runs"}.get(name, name)
        loaded = frames.load(tmp_path / "out" / f"{table}.parquet")
        frame = getattr(frames, name)(small_database).drop(columns=of_others.get(name, []))
        counts = {column: "Int64" for column in frame if frame[column].dtype == "int64"}
        assert_frame_equal(loaded, frame.astype(counts)[list(loaded)])
    command("export", "then", "-d", small_database, "--as-of", at(3)).says()
    for name in ("holdings", "tokens"):
        frame = getattr(frames, name)(small_database, as_of=at(3))
        loaded = frames.load(tmp_path / "then" / f"{name}.parquet")
        assert_frame_equal(loaded, frame[list(loaded)])
    loaded = frames.load(tmp_path / "out" / "balances.parquet")
    assert list(loaded)[2:5] == ["amount", "amount_text", "amount_float"]
    (row,) = loaded[loaded["amount_text"] == "1.5"].itertuples()
    assert (row.amount, row.amount_float) == (None, 1.5)


def test_anyones_file_loads_as_pandas_reads_it(tmp_path):
    theirs = pd.DataFrame({"a": [1.5, None], "b": ["x", None], "c": [[1], None]}, index=[3, 4])
    theirs.to_parquet(tmp_path / "theirs.parquet")
    path = tmp_path / "theirs.parquet"
    assert_frame_equal(frames.load(path), pd.read_parquet(path))


def objects(*values: object) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(values, dtype=object)})


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of XlsxWriter, which closes late
@pytest.mark.parametrize(
    ("name", "frame", "says"),
    [
        ("a.parquet", objects(1, "x"), "column 'a' has objects"),
        ("a.parquet", objects(1, True), "column 'a' has objects"),
        ("a.parquet", pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' .*names two columns"),
        ("a.parquet", pd.DataFrame({7: [1]}), "7 is not text"),
        ("a.parquet", pd.DataFrame({"a": [1]}, index=pd.Index([1], name=7)), "7 is not text"),
        ("a.parquet", objects("\ud800"), "cannot be written"),
        ("a.parquet", objects(10**5000), "cannot be written"),
        ("a.parquet", pd.DataFrame({"a": pd.arrays.SparseArray([1])}), "cannot be written"),
        ("a.parquet", pd.DataFrame({"a": [1j]}), "cannot be written"),
        ("a sheet.xlsx", pd.DataFrame({"a": np.zeros(2**20)}), "a sheet.* 1,048,576 rows, incl"),
        ("a sheet.xlsx", pd.DataFrame(np.zeros((1, 16_385))), "sheet, which has 16,384 columns"),
        ("a sheet.xlsx", objects("\ud800"), "lone surrogate"),
    ],
)
def test_an_unsupported_frame_is_refused_and_the_older_file_stays(name, frame, says, tmp_path):
    path = frames.save(pd.DataFrame({"before": [1]}), tmp_path / name)
    before = path.read_bytes()
    with pytest.raises(InputError, match=says) as raised:
        frames.save(frame, path)
    message = str(raised.value)
    del raised  # and with it the abandoned sheet, in this test
    gc.collect()
    assert "\n" not in message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_other_endings_and_other_objects_are_refused(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    calls: list[tuple[Any, str]] = [
        (partial(frames.save, frame["a"], tmp_path / "a.csv"), "Series is not a DataFrame"),
        (partial(frames.save, "a.csv", "a.csv"), "str is not a DataFrame; pass a frame first"),
        (partial(frames.load, tmp_path / "a.csv"), "does not end in .parquet"),
    ]
    for name in ("a.xls", "a", "nftsync.db"):
        says = r"does not end in .parquet, .csv or .xlsx"
        calls.append((partial(frames.save, frame, tmp_path / name), says))
    for wrong in (frame, 5, None, b"a.parquet"):
        says = f"^{type(wrong).__name__} is not a path; pass the frame"
        calls.append((partial(frames.save, "a.parquet", wrong), says))
        calls.append((partial(frames.load, wrong), r"is not a path; pass a path: frames\.load"))
    for call, says in calls:
        with pytest.raises(InputError, match=says):
            call()
    assert not list(tmp_path.iterdir())


def test_an_unusable_parquet_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        frames.load(tmp_path / "none.parquet")
    path = frames.save(pd.DataFrame({"a": range(100)}), tmp_path / "a.parquet")
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-9], b"a,b\n1,2\n" * 20):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not a Parquet file, or it is damaged"):
            frames.load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises((InputError, StoreError), match="a.parquet"):
        frames.load(path)


def test_a_comment_that_does_not_match_its_column_is_an_error(tmp_path):
    path = frames.save(objects(1), tmp_path / "a.parquet")
    schema = pq.read_schema(path)
    for text in ("1.5", "٣", "", "0x1", "1_0", "1" * 5000):
        pq.write_table(pa.table({"a": pa.array([text], pa.large_string())}).cast(schema), path)
        with pytest.raises(InputError, match=r"a\.parquet: the column 'a' does not match"):
            frames.load(path)


@pytest.mark.parametrize("name", ["A.Parquet", "B.xlsx", "C.CSV"])
def test_a_file_is_private_and_its_folders_are_made(name, tmp_path):
    before = os.umask(0)
    try:
        path = frames.save(pd.DataFrame({"a": [1]}), tmp_path / "a" / "b" / name)
    finally:
        os.umask(before)
    assert path == tmp_path / "a" / "b" / name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="cannot write"):
        frames.save(pd.DataFrame({"a": [1]}), path / name)


def test_csv_has_exact_amounts_and_runs_nothing(tmp_path):
    frame = pd.DataFrame(
        {
            "amount": pd.Series([UINT256, None], dtype=object),
            "delta": pd.Series([-1, 0], dtype=object),
            "=name": ["=HYPERLINK(1)", "a;=1+1"],
            "time": pd.to_datetime(["2026-01-31T11:00:00", None]).tz_localize("Europe/Berlin"),
            "age": pd.to_timedelta([90, None], unit="s"),
            "flag": [True, False],
            "maybe": pd.array([True, None], dtype="boolean"),
            "edition": pd.array([0, None], dtype="Int64"),
            "share": [0.1, float("nan")],
            "bucket": pd.Categorical(["@week", None]),
            "bytes": pd.Series([b"\x00", None], dtype=object),
        }
    ).set_axis(pd.Index(["-1", "b"], name="+key"))
    assert csv_cells(frames.save(frame, tmp_path / "a.csv")) == [
        ["'+key", "amount", "delta", "'=name", *frame.columns[3:]],
        [
            *("'-1", str(UINT256), "-1", "'=HYPERLINK(1)", "2026-01-31T10:00:00.000000Z", "90.0"),
            *("1", "1", "0", "0.1", "'@week", "AA=="),
        ],
        ["b", "", "0", "a;'=1+1", "", "", "0", "", "", "", "", ""],
    ]


def sheet_of(frame: pd.DataFrame, path: Path) -> Worksheet:
    frames.save(frame, path)
    (sheet,) = openpyxl.load_workbook(path).worksheets
    return sheet


def cells(sheet: Worksheet) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def test_amounts_are_exact_times_are_dates_and_texts_are_texts(tmp_path):
    frame = pd.DataFrame(
        {
            "amount": pd.Series([UINT256, None, 5], dtype=object),
            "tokens": pd.array([7, 10**15 - 1, None], dtype="Int64"),
            "number": np.array([2**64 - 1, 1, 2], dtype="uint64"),
            "name": ['=HYPERLINK("http://x")', "https://x.example", None],
            "time": pd.to_datetime(
                ["2026-01-31T11:00:00.123456", None, "1815-12-10T00:00:00.0"]
            ).tz_localize("UTC"),
            "local": pd.to_datetime(["2026-01-31T11:00:00", None, None]),
            "age": pd.to_timedelta([90_000, None, -60], unit="s"),
            "flag": [True, False, True],
            "share": [0.1, float("nan"), float("inf")],
            "bucket": pd.Categorical(["day", None, "day"]),
            "bytes": pd.Series([b"\x00", None, b""], dtype=object),
            "mixed": pd.Series([1, "x", None], dtype=object),
        }
    ).set_axis(pd.Index(["a", "b", "c"], name="key"))
    sheet = sheet_of(frame, tmp_path / "mine.xlsx")
    held = datetime(2026, 1, 31, 11, 0, 0, 123_000)  # noqa: DTZ001
    assert cells(sheet) == [
        ["key", *frame.columns],
        [
            *("a", str(UINT256), 7, str(2**64 - 1), '=HYPERLINK("http://x")'),
            *(held, held.replace(microsecond=0), pd.Timedelta("1D1h"), True, 0.1),
            *("day", "AA==", "1"),
        ],
        ["b", None, 10**15 - 1, 1, "https://x.example", *[None] * 3, False, *[None] * 3, "x"],
        [
            *("c", 5, None, 2, None, "1815-12-10T00:00:00.000000Z", None),
            *(f"{-60 / 86_400} days", True, "inf", "day", "", None),
        ],
    ]
    formats = {cell.value: sheet.cell(2, cell.column).number_format for cell in sheet[1]}
    assert formats["time"] == 'yyyy-mm-dd hh:mm:ss" UTC"'
    assert formats["local"] == "yyyy-mm-dd hh:mm:ss"
    assert formats["amount"] == formats["name"] == "@"
    assert (sheet.title, sheet.freeze_panes, sheet.auto_filter.ref) == ("mine", "A2", "A1:M4")
    assert sheet.column_dimensions["B"].width > 48
    assert not any(cell.data_type == "f" or cell.hyperlink for row in sheet for cell in row)


def test_texts_and_headings_stay_texts(tmp_path):
    """The sheet counts the numbers that are text."""
    amounts = pd.Series([10**15, -(10**15), 10**15 - 1, *[None] * 17], dtype=object)
    texts = pd.DataFrame(dict.fromkeys(TEXTS, TEXTS))
    texts.insert(0, "amount", amounts)
    sheet = sheet_of(texts, tmp_path / "a.xlsx")
    header, *rows = cells(sheet)
    assert [row[0] for row in rows[:3]] == [str(10**15), str(-(10**15)), 10**15 - 1]
    assert [unescape(heading or "") for heading in header[1:]] == TEXTS
    for text, row in zip(TEXTS, rows, strict=True):
        assert {unescape(cell or "") for cell in row[1:]} == {text}
    assert {cell.data_type for row in sheet.iter_rows() for cell in row} <= {"s", "n"}
    (note,) = sheet.data_validations.dataValidation
    assert (str(note.sqref), " 2 of these numbers are text" in note.prompt) == ("A1", True)


def test_a_text_beyond_the_limit_of_a_cell_is_cut_with_a_note(tmp_path):
    texts = ["x" * 32_767, "x" * 32_768, "😀" * 16_383, "😀" * 20_000]
    sheet = sheet_of(pd.DataFrame({"a": texts}), tmp_path / "a.xlsx")
    shown = [row[0] for row in cells(sheet)[1:]]
    assert shown[::2] == texts[::2]
    for short, text in ((shown[1], texts[1]), (shown[3], texts[3])):
        assert len(short.encode("utf-16-le")) <= 2 * 32_767
        kept, _, note = short.partition("…")
        assert text.startswith(kept)
        assert note == f" (cut from {len(text):,} characters)"


def test_a_sheet_has_a_name_that_excel_takes_and_no_links(tmp_path):
    path = tmp_path / ("'[2026] a:b " + "x" * 40 + ".XLSX")
    sheet = sheet_of(pd.DataFrame({"a": []}), path)
    assert (sheet.title, cells(sheet)) == ("_2026_ a_b " + "x" * 19, [["a"]])
    assert sheet_of(pd.DataFrame({"a": [1]}), tmp_path / "History.xlsx").title == "data"
    with ZipFile(path) as package:
        assert not any("rels" in name and "sheet" in name for name in package.namelist())
    with pytest.raises(InputError, match=r"does not end in \.parquet"):
        frames.load(path)
