"""Lists in text files and spreadsheets: all rows are read, or an error names the line."""

import csv
import io
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
#: Spellings of their headings.
SPELLED = {
    "wallet_id": ("wallet_id", "Wallet ID", "WalletId", "WALLET-ID", " wallet.id "),
    "label": ("label", "Label", "Wallet label", "wallet_label"),
    "group": ("group", "GROUP"),
}
#: Byte order marks and encodings.
ENCODINGS = [(mark, f"utf-{name}") for mark in ("", "\ufeff") for name in ("8", "16-be", "16-le")]
CELL = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    | st.sampled_from(",;\t\"'#\r\n ")
)
A, B, C = (f"0a9b1c2d-0000-4000-8000-00000000000{digit}" for digit in "abc")
FILE = Path("wallets.csv")  # in a working directory of the test


@given(
    st.lists(st.tuples(CELL, CELL, CELL), max_size=5),
    st.permutations(list(COLUMNS)),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(ENCODINGS),
    st.integers(0, 2),
    st.data(),
)
def test_a_spreadsheet_is_read_in_any_format(
    rows, order, separator, end, quoting, encoding, blank_columns, data
):
    """With any separator, line ends, quotes, encoding, headings, order and blank columns."""
    cells = [cell for row in rows for cell in row]
    assume(quoting == csv.QUOTE_ALL or not any(re.search("[\r\n]|^\\s*#", each) for each in cells))
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end)
    blank = [""] * blank_columns
    writer.writerow([*(data.draw(st.sampled_from(SPELLED[name])) for name in order), *blank])
    for row in rows:
        writer.writerow([*row, *blank])
    mark, name = encoding
    FILE.write_bytes((mark + text.getvalue()).encode(name))
    found = read_list_file(FILE, "wallets file").rows(COLUMNS)
    kept = [[re.sub("\r\n?", "\n", cell).strip() for cell in row] for row in rows]
    expected = [{k: v for k, v in zip(order, row, strict=True) if v} for row in kept]
    assert [row.cells for row in found] == [row for row in expected if row]


@given(CELL)
def test_any_text_is_a_table_or_none_or_refused_in_one_line(text):
    for content in (text, f"wallet_id,label\n{text}", f"sep=;\nlabel;wallet_id\n{text}"):
        problem, rows = "", []
        try:
            rows = [*(ListFile("wallets file", "w.csv", content).rows(COLUMNS) or ())]
        except InputError as error:
            problem = str(error)
        assert len(problem.splitlines()) <= 1
        for row in rows:
            assert row.cells.keys() <= COLUMNS.keys()
            assert 1 < row.line <= len(re.split("\r\n|\r|\n", content))


def test_rows_have_their_line_and_a_comment_ends_before_quotes():
    text = '# ours\nwallet_id;label;;\n\n1;"two\n# lines\n\nmore";;\n;;;\n2;x;;\n#3;y\n'
    cells = {"wallet_id": "1", "label": "two\n# lines\n\nmore"}
    for content, rows in (
        (text, [Cells(4, cells), Cells(9, {"wallet_id": "2", "label": "x"})]),
        ("sep=;\r\nWallet ID;Label\r\n1;a,b\r\n", [Cells(3, {"wallet_id": "1", "label": "a,b"})]),
        ("1;2\n", None),
    ):
        found = ListFile("wallets file", "w.csv", content).rows(COLUMNS)
        assert (found if rows is None else [*found]) == rows


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
def test_a_wallets_file_may_have_comments_marks_and_quotes(content, lines):
    """Of a repeated wallet, the last line counts."""
    FILE.write_bytes(content.encode())
    assert read_wallets_file(FILE) == [WalletLine(*line) for line in lines]


def test_windows_1252_is_read_with_a_warning_that_quotes_its_first_line():
    for label in ("Köln", "Müller & Söhne {0}", "Société – “Été” 50 €", "Ñandú"):
        FILE.write_bytes(f"wallet_id;label\r\n{A};{label}".encode("cp1252"))
        note = re.escape(f"line 2 would be {f'{A};{label}'!r}, and was read so")
        with pytest.warns(NftsyncWarning, match=note):
            assert read_wallets_file(FILE) == [WalletLine(A, label)]


HEADINGS = "wallet_id, label and group, each at most once. Rename or remove"
WRONG = ["nonsense", A[:-1], A + "0", "{" + A + "}", A.replace("-", "")]
QUOTE = """has no heading; the first line has 2 headings. Put double quotes around text that \
contains the separator"""
EXCEL = " is an Excel workbook, not a text file; in Excel, save it as"
UNKNOWN = " is not UTF-8 text: in Windows-1252, line 2 would be '1;"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("Wallet ID;Note;Owner\n1;2;3\n",
         f" has the columns 'Wallet ID', 'Note', 'Owner'; allowed are {HEADINGS} 'Note', 'Owner'"),
        ("Wallet ID,Label,Wallet label\n", f"allowed are {HEADINGS} 'Label', 'Wallet label'"),
        ("Label;Group\n", " has the columns 'Label', 'Group'; wallet_id is missing"),
        (f"wallet_id,label\n{A},a\n{B},Smith, Inc.\n", f", line 3: 'Inc.' {QUOTE}"),
        (f'wallet_id\n{A}\n"2\n', " is not CSV after line 2: unexpected end of data"),
        *((f"{A}\n# c\n{wrong}\n", f", line 3: {wrong!r} is not a wallet id") for wrong in WRONG),
        (f'# c\nwallet_id,label\n{A},"two\nlines"\nno,x\n', ", line 5: 'no' is not a wallet id"),
        ("label,wallet_id\nx\n", ", line 2: '' is not a wallet id"),
        *((text, " has no wallets") for text in ("", "\n \n", "# a\n#b", "wallet_id,label\n")),
        (f"{A};Cold\n",
         "; a file with several columns begins with headings: wallet_id,label,group"),
        *((f"wallet_id;label\r\n1;{label}\r\n".encode(encoding), UNKNOWN)
          for label, encoding in {"Кошелёк": "cp1251", "東京": "cp932", "金库": "gbk"}.items()),
        ("wallet_id,label\n1,Käse".encode() + b"\n2,\xe4",
         " is not UTF-8 text: in Windows-1252, line 3"),
        (b"wallet_id\r\n1\0\r\n",
         " has a character with the code 0 in line 2; in Excel, save it as"),
        *((content, EXCEL) for content in (b"PK\x03\x04rest", b"\xd0\xcf\x11\xe0")),
        (b"\xff\xfea\x00b", " is not valid UTF-16 text"),
    ],
)  # fmt: skip
def test_an_unusable_file_is_refused_with_its_line_and_advice(content, problem):
    FILE.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_wallets_file(FILE)
    message = str(caught.value)
    assert str(FILE) in message
    assert "\n" not in message
    assert problem in message
    assert ("iconv -f ENCODING -t UTF-8" in message) == ("UTF-8 text" in problem)


def test_a_file_that_cannot_be_opened_is_refused_with_the_reason():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, why in ((".", "Is a directory"), ("none", "No such file"), ("socket", r"\w")):
            with pytest.raises(InputError, match=rf"cannot read the wallets file {path}: {why}"):
                read_wallets_file(Path(path))


def test_standard_input_is_read_as_utf_8_and_named_in_an_error(monkeypatch):
    def read(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
        return read_wallets_file("-")

    for content in (f"\ufeff{A}\r\n", f"wallet_id,label\n{A},\n"):
        assert read(content.encode()) == [WalletLine(A)]
    for wrong, message in [
        (b"x\n", r"^standard input, line 1: 'x' is not a wallet id"),
        (b"", "standard input has no wallets"),
        (b"\xff\xff\xff", "standard input is not UTF-8"),
    ]:
        with pytest.raises(InputError, match=message):
            read(wrong)
    Path("-").write_text(A)  # its absolute path is a file
    assert read_wallets_file(Path("-").absolute()) == [WalletLine(A)]
