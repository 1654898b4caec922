"""Tables as spreadsheets write them: the same rows come back, or the line is named."""

from __future__ import annotations

import csv
import io
import os
import re
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nftsync.errors import InputError, NftsyncWarning
from nftsync.list_files import Cells, ListFile, read_list_file
from nftsync.pull.list_files import read_wallets_file
from nftsync.store.wallets import WalletLine

COLUMNS = {"wallet_id": (), "label": ("wallet_label",), "group": ()}
#: How people and programs write the names of these columns.
SPELLED = {
    "wallet_id": ("wallet_id", "Wallet ID", "WalletId", "WALLET-ID", " wallet.id "),
    "label": ("label", "Label", "Wallet label", "wallet_label"),
    "group": ("group", "GROUP"),
}
ENCODINGS = {
    "UTF-8": lambda text: text.encode(),
    "with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "big-endian": lambda text: ("\ufeff" + text).encode("utf-16-be"),
    "without a mark": lambda text: text.encode("utf-16-le"),
    "big-endian without a mark": lambda text: text.encode("utf-16-be"),
}

CELL = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    | st.sampled_from(",;\t\"'#\r\n ")
)


def rows_of(text: str) -> list[Cells]:
    rows = ListFile("wallets file", "w.csv", text).rows(COLUMNS)
    assert rows is not None
    return list(rows)


@given(
    st.lists(st.tuples(CELL, CELL, CELL), max_size=5),
    st.permutations(list(COLUMNS)),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(list(ENCODINGS)),
    st.integers(0, 2),
    st.data(),
)
def test_what_a_spreadsheet_wrote_is_read_whatever_its_form(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    order: list[str],
    separator: str,
    end: str,
    quoting: int,
    encoding: str,
    blank_columns: int,
    data: st.DataObject,
) -> None:
    """Separators, line ends, quotes, encodings, names of columns and their order, blank columns."""
    cells = [cell for row in rows for cell in row]
    assume(quoting == csv.QUOTE_ALL or not any(re.search("[\r\n]|^\\s*#", each) for each in cells))
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end)
    blank = [""] * blank_columns
    writer.writerow([*(data.draw(st.sampled_from(SPELLED[name])) for name in order), *blank])
    for row in rows:
        writer.writerow([*row, *blank])
    path = tmp_path_factory.getbasetemp() / "wallets.csv"
    path.write_bytes(ENCODINGS[encoding](text.getvalue()))
    found = read_list_file(path, "wallets file").rows(COLUMNS)
    assert found is not None
    kept = [[re.sub("\r\n?", "\n", cell).strip() for cell in row] for row in rows]
    expected = [{k: v for k, v in zip(order, row, strict=True) if v} for row in kept]
    assert [row.cells for row in found] == [row for row in expected if row]


@given(CELL)
def test_any_text_is_a_table_or_none_or_refused_in_one_line(text: str) -> None:
    for content in (text, f"wallet_id,label\n{text}", f"sep=;\nlabel;wallet_id\n{text}"):
        rows: list[Cells] = []
        problem = ""
        try:
            rows += ListFile("wallets file", "w.csv", content).rows(COLUMNS) or ()
        except InputError as error:
            problem = str(error)
        assert len(problem.splitlines()) <= 1
        for row in rows:
            assert row.cells.keys() <= COLUMNS.keys()
            assert 1 < row.line <= len(re.split("\r\n|\r|\n", content))


def test_rows_know_their_line_and_comments_end_where_quotes_begin() -> None:
    text = '# ours\nwallet_id;label;;\n\n1;"two\n# lines\n\nmore";;\n;;;\n2;x;;\n#3;y\n'
    assert rows_of(text) == [
        Cells(4, {"wallet_id": "1", "label": "two\n# lines\n\nmore"}),
        Cells(9, {"wallet_id": "2", "label": "x"}),
    ]
    assert rows_of("sep=;\r\nWallet ID;Label\r\n1;a,b\r\n") == [
        Cells(3, {"wallet_id": "1", "label": "a,b"})
    ]
    assert ListFile("wallets file", "w.csv", "1;2\n").rows(COLUMNS) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "Wallet ID;Note;Owner\n1;2;3\n",
            ("the wallets file w.csv has the columns 'Wallet ID', 'Note', 'Owner'. Allowed are"
            " wallet_id, label and group, each once. Rename or remove 'Note', 'Owner'"),
        ),
        (
            "Wallet ID,Label,Wallet label\n",
            ("the wallets file w.csv has the columns 'Wallet ID', 'Label', 'Wallet label'. Allowed"
            " are wallet_id, label and group, each once. Rename or remove 'Label', 'Wallet label'"),
        ),
        ("Label;Group\n", ("the wallets file w.csv has the columns 'Label', 'Group'; wallet_id is"
         " missing")),
        ("wallet_id,label\n1,a\n2,Smith, Inc.\n", ("w.csv, line 3: 'Inc.' has no heading;"
         " the first line has 2 headings. Put double quotes around text that contains the"
         " separator")),
        ('wallet_id\n1\n"2\n', ("the wallets file w.csv is not CSV after line 2: unexpected end of"
         " data")),
    ],
)  # fmt: skip
def test_what_must_change_is_said(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(problem)}$"):
        rows_of(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *(
            (
                f"wallet_id;label\r\n1;{label}\r\n".encode(encoding),
                "is not UTF-8 text: in Windows-1252, line 2 would be '1;",
            )
            for label, encoding in {"Кошелёк": "cp1251", "東京": "cp932", "金库": "gbk"}.items()
        ),
        (
            "wallet_id,label\n1,Käse".encode() + b"\n2,\xe4",
            "is not UTF-8 text: in Windows-1252, line 3",
        ),
        (
            b"wallet_id\r\n1\0\r\n",
            "has a character with the code 0 in line 2; in Excel, save it as",
        ),
        (b"PK\x03\x04rest", "is an Excel workbook, not a text file; in Excel, save it as"),
        (b"\xd0\xcf\x11\xe0", "is an Excel workbook, not a text file; in Excel, save it as"),
        (b"\xff\xfea\x00b", "is not valid UTF-16 text"),
    ],
)
def test_what_is_no_such_text_is_said_with_what_to_do(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_list_file(path, "wallets file")
    assert str(raised.value).startswith(f"the wallets file {path} {problem}")
    assert ("iconv -f ENCODING -t UTF-8" in str(raised.value)) == ("UTF-8 text" in problem)


def test_windows_1252_is_read_with_a_note_that_shows_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    for label in ("Köln", "Müller & Söhne {0}", "Société – “Été” 50 €", "Ñandú"):
        path.write_bytes(f"wallet_id;label\r\n{A};{label}".encode("cp1252"))
        with pytest.warns(
            NftsyncWarning, match=re.escape(f"line 2 would be {f'{A};{label}'!r}, and was read so")
        ):
            assert read_wallets_file(path) == [WalletLine(A, label)]


# The wallets file -------------------------------------------------------------------------------

A, B, C = (f"0a9b1c2d-0000-4000-8000-00000000000{digit}" for digit in "abc")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (f"# ours\n\n  {A}  # the first\n   # more\n\t{B}\t\n#{C}\n", [(A,), (B,)]),
        *((f"\ufeff{A}{end}{B}{end}", [(A,), (B,)]) for end in ("\n", "\r\n", "\r")),
        (f'"{A.upper()}";;\r\n{B};;\r\n;;\r\n{A}', [(A,), (B,)]),
        (f"Group, Wallet_ID\ng,{A.upper()}\n,{B}", [(A, None, "g"), (B,)]),
        (f"# now\nwallet_id,label\n# 1\n{A},x # y\n\n{B},#1\n", [(A, "x # y"), (B, "#1")]),
        (f"wallet_id,label\n{A},old\n{B},b\n{A.upper()},\u202e\u2028\x85\n",
         [(A, "\u202e"), (B, "b")]),
    ],
)  # fmt: skip
def test_what_people_write(tmp_path: Path, content: str, lines: list[tuple[str, ...]]) -> None:
    """Comments, blanks, byte order marks, quotes, any text; of one named twice the last counts."""
    path = tmp_path / "wallets.csv"
    path.write_bytes(content.encode())
    assert read_wallets_file(path) == [WalletLine(*line) for line in lines]


WRONG = ["nonsense", A[:-1], A + "0", "{" + A + "}", A.replace("-", "")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        *((f"{A}\n# c\n{wrong}\n", f", line 3: {wrong!r} is not a wallet id") for wrong in WRONG),
        (f'# c\nwallet_id,label\n{A},"two\nlines"\nno,x\n', ", line 5: 'no' is not a wallet id"),
        ("label,wallet_id\nx\n", ", line 2: '' is not a wallet id"),
        *((text, "has no wallets") for text in ("", "\n \n", "# a\n#b", "wallet_id,label\n")),
        (
            f"{A};Cold\n",
            "; a file with several columns begins with headings: wallet_id,label,group",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "wallets.csv"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_wallets_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert problem in str(caught.value)


def test_what_cannot_be_opened_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, why in ((".", "Is a directory"), ("none", "No such file"), ("socket", r"\w")):
            with pytest.raises(InputError, match=rf"cannot read the wallets file {path}: {why}"):
                read_wallets_file(Path(path))


def test_standard_input_is_read_as_utf_8_and_named_in_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stdin(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))

    for content in (f"\ufeff{A}\r\n", f"wallet_id,label\n{A},\n"):
        stdin(content.encode())
        assert read_wallets_file("-") == [WalletLine(A)]
    for wrong, message in [
        (b"x\n", r"^standard input, line 1: 'x' is not a wallet id"),
        (b"", "standard input has no wallets"),
        (b"\xff\xff\xff", "standard input is not UTF-8"),
    ]:
        stdin(wrong)
        with pytest.raises(InputError, match=message):
            read_wallets_file("-")
    monkeypatch.chdir(tmp_path)
    Path("-").write_text(A)  # a file of that name can be read, too
    assert read_wallets_file(Path(os.curdir, "-").absolute()) == [WalletLine(A)]
