"""The wallets file in the forms in which people keep it."""

from __future__ import annotations

import io
import os
import socket
import sys
from pathlib import Path

import pytest

from nftsync.errors import InputError
from nftsync.pull.list_files import read_wallets_file
from nftsync.store.wallets import WalletLine

A = "0a9b1c2d-0000-4000-8000-00000000000a"
B = "0a9b1c2d-0000-4000-8000-00000000000b"
ENDS = ["\n", "\r\n", "\r"]
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


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (f"# ours\n\n  {A}  # the first\n   # more\n\t{B}\t\n#{C}\n", [(A,), (B,)]),
        *((f"\ufeff{A}{end}{B}{last}", [(A,), (B,)]) for end in ENDS for last in ("", end)),
        (
            f"wallet_id,label,group\r\n{A},Cold,treasury\r\n{B},,\r\n{C},Hot,",
            [(A, "Cold", "treasury"), (B,), (C, "Hot")],
        ),
        (A.upper(), [(A,)]),
        (f"Group, Wallet_ID\ng,{A.upper()}", [(A, None, "g")]),
        (f"wallet_id,label\n{A}", [(A,)]),
        (f"# now\nwallet_id,label\n# 1\n{A},x # y\n\n{B},#1\n", [(A, "x # y"), (B, "#1")]),
        (f"wallet_id,label\n{A},café \u202e\u2028\x85 😀\n", [(A, "café \u202e\u2028\x85 😀")]),
        (f"wallet_id,label\n{A},old\n{B},b\n{A.upper()},new\n", [(A, "new"), (B, "b")]),
        (f"{A}\n{A}\n", [(A,)]),
        (f'"{A}";;\r\n{B.upper()};;\r\n;;\r\n', [(A,), (B,)]),
        (f"Wallet ID;Wallet label;Group;\r\n{A};Köln;West;\r\n", [(A, "Köln", "West")]),
    ],
)
def test_what_people_write(file, content, lines):
    """Comments, blanks, byte order marks, quotes, any text; of one named twice the last counts."""
    assert read(file, content) == [WalletLine(*line) for line in lines]


@pytest.mark.parametrize("wrong", ["nonsense", A[:-1], A + "0", "{" + A + "}", A.replace("-", "")])
def test_a_bad_id_is_refused_with_its_line(file, wrong):
    assert f", line 3: {wrong!r} is not a wallet id" in refusal(file, f"{A}\n# c\n{wrong}\n")
    text = f"wallet_id,label\n\n{wrong},x\n"
    assert f", line 3: {wrong!r} is not a wallet id" in refusal(file, text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f"label,wallet_id\nx,{A}\ny,\n", ", line 3: '' is not a wallet id"),
        ("label,wallet_id\nx\n", ", line 2: '' is not a wallet id"),
        (f'# c\nwallet_id,label\n{A},"two\nlines"\nno,x\n', ", line 5: 'no' is not a wallet id"),
        (
            f"wallet_id,labels\n{A},x\n",
            "'labels'. Allowed are wallet_id, label and group, each once",
        ),
        *(
            (text, "has no wallets")
            for text in ("", "\n \n", "# a\n#b", "wallet_id,label\n", "\ufeff")
        ),
        (
            f"{A};Cold\n",
            "; a file with several columns begins with headings: wallet_id,label,group",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(file, content, problem):
    assert problem in refusal(file, content)


def test_what_cannot_be_opened_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, why in ((".", "Is a directory"), ("none", "No such file"), ("socket", r"\w")):
            with pytest.raises(InputError, match=rf"cannot read the wallets file {path}: {why}"):
                read_wallets_file(Path(path))


def test_standard_input_is_read_as_utf_8_and_named_in_a_refusal(monkeypatch):
    for content in (f"\ufeff{A}\r\n", f"wallet_id,label\n{A},\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode()), "ascii"))
        assert read_wallets_file("-") == [WalletLine(A)]
    for content, message in [
        (b"x\n", r"^standard input, line 1: 'x' is not a wallet id"),
        (b"", "standard input has no wallets"),
        (b"\xff", "standard input is not UTF-8"),
    ]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(InputError, match=message):
            read_wallets_file("-")


def test_a_file_named_like_standard_input_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-").write_text(A)
    assert read_wallets_file(Path(os.curdir, "-").absolute()) == [WalletLine(A)]
