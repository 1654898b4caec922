"""The wallets file in the forms in which people keep it."""

from __future__ import annotations

import io
import os
import socket
import sys
from pathlib import Path

import pytest

from nftsync.errors import InputError
from nftsync.pull.plan import read_wallets_file
from nftsync.store.wallets import WalletLine

A = "0a9b1c2d-0000-4000-8000-00000000000a"
B = "0a9b1c2d-0000-4000-8000-00000000000b"
C = "0a9b1c2d-0000-4000-8000-00000000000c"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wallets.csv"


def read(file: Path, content: str | bytes) -> list[WalletLine]:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_wallets_file(file)


def refusal(file: Path, content: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(file, content)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_a_plain_file_has_a_wallet_a_line(file: Path, end: str, last: bool) -> None:
    text = end.join([A, B]) + end * last
    assert read(file, text) == [WalletLine(A), WalletLine(B)]


def test_comments_blank_lines_and_blanks_are_passed_over(file: Path) -> None:
    text = f"# ours\n\n  {A}  # the first\n   # more\n\t{B}\t\n#{C}\n"
    assert read(file, text) == [WalletLine(A), WalletLine(B)]


def test_a_byte_order_mark_is_passed_over(file: Path) -> None:
    assert read(file, b"\xef\xbb\xbf" + A.encode()) == [WalletLine(A)]
    assert read(file, b"\xef\xbb\xbfwallet_id\n" + A.encode()) == [WalletLine(A)]


def test_ids_are_lower_cased(file: Path) -> None:
    assert read(file, A.upper()) == [WalletLine(A)]
    assert read(file, f"wallet_id,label\n{A.upper()},UP") == [WalletLine(A, "UP")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_has_labels_and_groups(file: Path, end: str) -> None:
    text = end.join(["wallet_id,label,group", f"{A},Cold,treasury", f"{B},,", f"{C},Hot,"])
    assert read(file, text) == [
        WalletLine(A, "Cold", "treasury"),
        WalletLine(B),
        WalletLine(C, "Hot"),
    ]


def test_csv_columns_may_come_in_any_order_and_be_missing(file: Path) -> None:
    assert read(file, f"Group, Wallet_ID\ng,{A}") == [WalletLine(A, None, "g")]
    assert read(file, f"wallet_id\n{A}") == [WalletLine(A)]
    assert read(file, f"wallet_id,label\n{A}") == [WalletLine(A)]


def test_csv_may_have_everything_quoted(file: Path) -> None:
    text = f'"wallet_id","label"\r\n"{A}","Cold, ""deep"""\r\n'
    assert read(file, text) == [WalletLine(A, 'Cold, "deep"')]


def test_csv_may_have_comments_before_the_header_and_between_rows(file: Path) -> None:
    text = f"# exported today\nwallet_id,label\n# first\n{A},x # not a comment\n\n{B},#1\n"
    assert read(file, text) == [WalletLine(A, "x # not a comment"), WalletLine(B, "#1")]


def test_a_label_may_span_lines_and_line_numbers_still_hold(file: Path) -> None:
    assert read(file, f'wallet_id,label\n{A},"two\nlines"\n') == [WalletLine(A, "two\nlines")]
    text = f'# c\nwallet_id,label\n{A},"two\nlines"\nnonsense,x\n'
    assert ", line 5: 'nonsense' is not a wallet id" in refusal(file, text)


def test_a_label_may_hold_any_text(file: Path) -> None:
    label = "caf\u00e9 \u202e\u2028\x85 \U0001f600"
    assert read(file, f"wallet_id,label\n{A},{label}\n") == [WalletLine(A, label)]


def test_of_a_wallet_named_twice_the_last_line_counts(file: Path) -> None:
    text = f"wallet_id,label\n{A},old\n{B},b\n{A.upper()},new\n"
    assert read(file, text) == [WalletLine(A, "new"), WalletLine(B, "b")]
    assert read(file, f"{A}\n{A}\n") == [WalletLine(A)]


@pytest.mark.parametrize("wrong", ["nonsense", A[:-1], A + "0", "{" + A + "}", A.replace("-", "")])
def test_a_bad_id_is_refused_with_its_line(file: Path, wrong: str) -> None:
    assert f", line 3: {wrong!r} is not a wallet id" in refusal(file, f"{A}\n# c\n{wrong}\n")
    text = f"wallet_id,label\n\n{wrong},x\n"
    assert f", line 3: {wrong!r} is not a wallet id" in refusal(file, text)


def test_csv_without_an_id_is_refused_with_its_line(file: Path) -> None:
    assert ", line 3: '' is not a wallet id" in refusal(file, f"label,wallet_id\nx,{A}\ny,\n")
    assert ", line 2: '' is not a wallet id" in refusal(file, "label,wallet_id\nx\n")


def test_an_unknown_column_is_named(file: Path) -> None:
    text = refusal(file, f"wallet_id,labels\n{A},x\n")
    assert "unknown column 'labels'; known are wallet_id, label and group" in text


def test_a_column_given_twice_is_refused(file: Path) -> None:
    assert "a column twice" in refusal(file, f"wallet_id,label,label\n{A},x,y\n")


def test_more_values_than_columns_are_refused_with_the_line(file: Path) -> None:
    assert ", line 2: 3 values for 2 columns" in refusal(file, f"wallet_id,label\n{A},x,y\n")


def test_an_open_quote_is_refused(file: Path) -> None:
    assert "is not CSV" in refusal(file, f'wallet_id,label\n{A},"x\n')


@pytest.mark.parametrize("text", ["", "\n \n", "# a\n#b", "wallet_id,label\n", "\ufeff"])
def test_a_file_that_names_no_wallet_is_refused(file: Path, text: str) -> None:
    assert "names no wallet" in refusal(file, text)


@pytest.mark.parametrize("content", [b"\xff\xfea\x00", b"wallet_id,label\n" + b"\xe9", b"\x80"])
def test_a_file_that_is_not_utf_8_is_refused(file: Path, content: bytes) -> None:
    assert "is not UTF-8" in refusal(file, content)


def test_a_directory_or_missing_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the wallets file .*: Is a directory"):
        read_wallets_file(tmp_path)
    with pytest.raises(InputError, match=r"cannot read the wallets file .*: No such file"):
        read_wallets_file(tmp_path / "none.txt")


def test_a_file_that_cannot_be_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("unreadable")
        with pytest.raises(InputError, match=r"^cannot read the wallets file unreadable: \w"):
            read_wallets_file(Path("unreadable"))


@pytest.mark.parametrize(
    "content", [f"\ufeff{A}\r\n".encode(), f"wallet_id,label\n{A},\n".encode()]
)
def test_standard_input_is_read_as_utf_8(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
    assert read_wallets_file("-") == [WalletLine(A)]


def test_standard_input_is_named_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, message in [
        (b"x\n", r"^standard input, line 1: 'x' is not a wallet id"),
        (b"", "standard input names no wallet"),
        (b"\xff", "standard input is not UTF-8"),
    ]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(InputError, match=message):
            read_wallets_file("-")


def test_a_file_named_like_standard_input_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_text(A)
    assert read_wallets_file(Path(os.curdir, "-").absolute()) == [WalletLine(A)]
