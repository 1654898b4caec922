"""Frames in files: each is read back the same, and a spreadsheet runs no cell."""

import csv
import gc
import os
import stat
import warnings
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet
from pandas.testing import assert_frame_equal

from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.kit.database import at

UINT256 = 2**256 - 1
#: Functions that read a frame from a database.
OF_DATABASE = {name: getattr(frames, name) for name in frames.__all__} | {
    "diff": lambda database: frames.diff(database, at(2)),
    "find": lambda database: frames.find(database, "o"),
    "explain": lambda _: frames.explain("holdings"),
    "statement": lambda database: frames.statement(database, at(2)),
}


def back(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    return frames.load(frames.save(frame, folder / "frame.parquet"))


def csv_cells(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("name", sorted({*OF_DATABASE} - {"brief", "load", "save", "value"}))
def test_each_frame_of_a_database_comes_back(name, small_database, tmp_path):
    frame = pd.DataFrame(
        OF_DATABASE[name](small_database)
    )  # without the display of its own that some have
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
            "negative": pd.Series([-UINT256, 0], dtype=object),
            "nothing": pd.Series([None, None], dtype=object),
        }
    )
    frame.attrs = {"source": "a test"}
    for shown in (
        *(frame, frame.iloc[[1]], frame.rename_axis(columns="kind")),
        frame.set_index(["uint64", "nanoseconds"]),
    ):
        again = back(shown, tmp_path)
        assert_frame_equal(again, shown)
        assert again.attrs == shown.attrs
    # Categories other than text come back as their values.
    cut = pd.DataFrame({"bin": pd.cut([0.5, 2], [0, 1, 3]), "big": pd.Categorical([UINT256, 1])})
    assert_frame_equal(back(cut, tmp_path), cut.astype({"bin": "interval", "big": object}))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["=1+1", "\x00", "\u202egnp.exe", "NaN", "None", "", "nan", "<NA>", "1", "a;=1"]
)


AMOUNT = st.none() | st.integers(-UINT256, UINT256) | st.just(UINT256)
TIME = st.none() | st.datetimes(timezones=st.just(UTC))


LONG = timedelta(9e4)


@given(
    st.lists(
        st.tuples(
            *(AMOUNT, st.none() | TEXT, TIME, st.none() | st.integers(-(2**63), 2**63 - 1)),
            *(st.floats(), st.booleans(), st.none() | st.timedeltas(-LONG, LONG)),
            st.none() | st.sampled_from(["day", "week", "=more"]),
        ),
        max_size=6,
    ),
    st.none() | TEXT,
)
@settings(deadline=None, max_examples=20)
def test_any_frame_comes_back(tmp_path_factory, rows, index):
    columns = list(zip(*rows, strict=True)) or [()] * 8
    frame = pd.DataFrame(
        {
            "amount": pd.Series(columns[0], dtype=object),
            "text": pd.Series(columns[1], dtype="str"),
            "time": pd.Series(columns[2], dtype="datetime64[us, UTC]"),
            "integer": pd.Series(columns[3], dtype="Int64"),
            "real": pd.Series(columns[4], dtype="float64"),
            "flag": pd.Series(columns[5], dtype="bool"),
            "duration": pd.Series(columns[6], dtype="timedelta64[us]"),
            "bucket": pd.Categorical(columns[7], ["day", "week", "=more"], ordered=True),
        }
    )
    if index is not None:
        frame.index.name = index
    assert_frame_equal(back(frame, tmp_path_factory.getbasetemp()), frame)


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


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)}), "column 'a' has objects"),
        (pd.DataFrame({"a": pd.Series([1, True], dtype=object)}), "column 'a' has objects"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' .*names two columns"),
        (pd.DataFrame({7: [1]}), "7 is not text"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([1], name=7)), "7 is not text"),
        (pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}), "cannot be written"),
        (pd.DataFrame({"a": pd.Series([10**5000], dtype=object)}), "cannot be written"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([1])}), "cannot be written"),
        (pd.DataFrame({"a": [1j]}), "cannot be written"),
    ],
)
def test_an_unsupported_column_is_refused_by_name(frame, says, tmp_path):
    path = tmp_path / "frame.parquet"
    frames.save(pd.DataFrame({"before": [1]}), path)
    with pytest.raises(InputError, match=says) as raised:
        frames.save(frame, path)
    assert "\n" not in str(raised.value)
    assert list(frames.load(path)) == ["before"]
    assert [file.name for file in tmp_path.iterdir()] == ["frame.parquet"]


def test_other_endings_and_other_objects_are_refused(tmp_path):
    frame = pd.DataFrame({"a": [1]})
    for name in ("a.xls", "a", "nftsync.db"):
        with pytest.raises(InputError, match=r"does not end in .parquet, .csv or .xlsx"):
            frames.save(frame, tmp_path / name)
    with pytest.raises(InputError, match="Series is not a DataFrame"):
        frames.save(frame["a"], tmp_path / "a.csv")
    with pytest.raises(InputError, match="str is not a DataFrame; pass a frame first"):
        frames.save("a.csv", tmp_path / "a.csv")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="does not end in .parquet"):
        frames.load(tmp_path / "a.csv")
    for wrong in (frame, 5, None, b"a.parquet"):
        with pytest.raises(
            InputError, match=f"^{type(wrong).__name__} is not a path; pass the frame"
        ):
            frames.save(str(tmp_path / "a.parquet"), wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"is not a path; pass a path: frames\.load"):
            frames.load(wrong)  # type: ignore[arg-type]
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
    path = frames.save(pd.DataFrame({"a": pd.Series([1], dtype=object)}), tmp_path / "a.parquet")
    schema = pq.read_schema(path)
    for text in ("1.5", "٣", "", "0x1", "1_0", "1" * 5000):
        pq.write_table(pa.table({"a": pa.array([text], pa.large_string())}).cast(schema), path)
        with pytest.raises(InputError, match=r"a\.parquet: the column 'a' does not match"):
            frames.load(path)


def test_a_file_is_private_and_its_folders_are_made(tmp_path):
    before = os.umask(0)
    try:
        path = frames.save(pd.DataFrame({"a": [1]}), tmp_path / "a" / "b" / "C.CSV")
    finally:
        os.umask(before)
    assert path == tmp_path / "a" / "b" / "C.CSV"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="cannot write"):
        frames.save(pd.DataFrame({"a": [1]}), path / "a.csv")


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


# Workbooks ----------------------------------------------------------------------------------------


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


CELL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["=1+1", "+1", "@a", "{=1}", "http://x", "mailto:x", "\x00\x1b[2J", "_x001B_", "\ufffe", "1e5"]
)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-UINT256, UINT256),
            st.none() | CELL_TEXT,
            st.none() | st.datetimes(datetime(1900, 3, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        ),
        min_size=1,
        max_size=5,
    ),
    CELL_TEXT,
)
@settings(deadline=None, max_examples=30)
def test_any_frame_is_read_as_it_was(tmp_path_factory, rows, heading):
    """Text stays text; times are exact to the millisecond, integers to the digit."""
    amounts, texts, times = zip(*rows, strict=True)
    frame = pd.DataFrame(
        {
            "amount": pd.Series(amounts, dtype=object),
            "time": pd.Series(times, dtype="datetime64[us, UTC]"),
        }
    ).assign(**{heading: pd.Series(texts, dtype=object)})
    sheet = sheet_of(frame, tmp_path_factory.getbasetemp() / "frame.xlsx")
    known = [value for value in amounts if value is not None]
    if heading != "amount":
        texts_of_numbers = sum(abs(value) >= 10**15 for value in known)
        notes = [(str(note.sqref), note.prompt) for note in sheet.data_validations.dataValidation]
        assert [place for place, _ in notes] == ["A1"] * (texts_of_numbers > 0)
        assert all(f" {texts_of_numbers} of these numbers are text" in note for _, note in notes)
    for row, (amount, text, time) in zip(
        sheet.iter_rows(min_row=2, max_row=1 + len(rows), max_col=3), rows, strict=True
    ):
        shown = [cell.value for cell in row]
        assert shown[0] == (amount if amount is None or abs(amount) < 10**15 else str(amount))
        if time is None:
            assert shown[1] is None
        else:
            assert abs((shown[1] - time.replace(tzinfo=None)).total_seconds()) < 0.001
        if heading not in {"amount", "time"}:
            assert unescape(shown[2] or "") == (text or "")
        assert all(cell.data_type != "f" for cell in row)


def test_a_text_beyond_the_limit_of_a_cell_is_cut_with_a_note(tmp_path):
    texts = ["x" * 32_767, "x" * 32_768, "😀" * 16_383, "😀" * 20_000]
    sheet = sheet_of(pd.DataFrame({"a": texts}), tmp_path / "a.xlsx")
    shown = [row[0] for row in cells(sheet)[1:]]
    assert shown[0] == texts[0]
    assert shown[2] == texts[2]
    for short, text in ((shown[1], texts[1]), (shown[3], texts[3])):
        assert len(short.encode("utf-16-le")) <= 2 * 32_767
        kept, _, note = short.partition("…")
        assert text.startswith(kept)
        assert note == f" (cut from {len(text):,} characters)"


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (
            pd.DataFrame({"a": np.zeros(1_048_576)}),
            "a sheet.* 1,048,576 rows, including the heading",
        ),
        (pd.DataFrame(np.zeros((1, 16_385))), "sheet, which has 16,384 columns"),
        (pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}), "lone surrogate"),
    ],
)
def test_an_oversized_frame_is_refused_and_the_older_file_stays(frame, says, tmp_path):
    path = frames.save(pd.DataFrame({"before": [1]}), tmp_path / "a sheet.xlsx")
    before = path.read_bytes()
    with warnings.catch_warnings():
        # XlsxWriter leaves the closing of an abandoned sheet's rows to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        with pytest.raises(InputError, match=says):
            frames.save(frame, path)
        gc.collect()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_private_and_its_sheet_has_a_name_that_excel_takes(tmp_path):
    path = tmp_path / ("'[2026] a:b " + "x" * 40 + ".XLSX")
    sheet = sheet_of(pd.DataFrame({"a": []}), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sheet.title == "_2026_ a_b " + "x" * 19
    assert cells(sheet) == [["a"]]
    assert sheet_of(pd.DataFrame({"a": [1]}), tmp_path / "History.xlsx").title == "data"
    with ZipFile(path) as package:
        assert not any("rels" in name and "sheet" in name for name in package.namelist())
    with pytest.raises(InputError, match=r"does not end in \.parquet"):
        frames.load(path)
