"""Frames as Excel workbooks, as another program reads them."""

import gc
import stat
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet

from nftsync import frames
from nftsync.errors import InputError

UINT256 = 2**256 - 1


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


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["=1+1", "+1", "@a", "{=1}", "http://x", "mailto:x", "\x00\x1b[2J", "_x001B_", "\ufffe", "1e5"]
)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-UINT256, UINT256),
            st.none() | TEXT,
            st.none() | st.datetimes(datetime(1900, 3, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        ),
        min_size=1,
        max_size=5,
    ),
    TEXT,
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
