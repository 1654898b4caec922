"""What people write into a collections file, and what is said of what cannot be used."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.errors import InputError
from nftsync.pull.list_files import read_collections_file
from nftsync.pull.plan import name_collections
from nftsync.store.mirror import Mirror

CATS, DOGS = "0x" + "ca" * 20, "0x" + "d0" * 20


def read(folder: Path, content: str | bytes) -> dict[str, str]:
    file = folder / "collections.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_collections_file(file)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (f"contract_address,name\n{CATS},Cats\n{DOGS},Dogs\n", {CATS: "Cats", DOGS: "Dogs"}),
        (f"name\tcontract\nCafé ☕\t{CATS}\n".encode("utf-16"), {CATS: "Café ☕"}),
        (f"contract_address,name\n{CATS},Old\n0x{'CA' * 20},New\n", {CATS: "New"}),
        (f"# ours\ncontract_address,name\n{CATS},\n{DOGS},Dogs\n", {DOGS: "Dogs"}),
        ("contract_address,name\nKT1Ab,Art\nkt1ab,Other\n", {"KT1Ab": "Art", "kt1ab": "Other"}),
        ("contract_address,name\n", {}),
    ],
)
def test_what_people_write(content: str | bytes, names: dict[str, str], tmp_path: Path) -> None:
    assert read(tmp_path, content) == names


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the first line of .*collections.csv must be headings: contract_address,name"),
        (f"{CATS},Cats\n", "must be headings"),
        ("name\nCats\n", "contract_address is missing"),
        (f"contract_address,name\n{CATS},Cats\n,Dogs\n", "csv, line 3: a name without"),
        (f"contract_address,name\n{CATS},\n", "csv names no collection"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    content: str | bytes, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, content)


def test_many_names_are_stored_in_short_steps(tmp_path: Path) -> None:
    names = {f"KT{number}": f"Collection {number}" for number in range(5_000)}
    with Mirror(tmp_path / "nftsync.db", write_gap=0) as mirror:
        name_collections(mirror, names)
        name_collections(mirror, names)
    with closing(sqlite3.connect(tmp_path / "nftsync.db")) as connection:
        rows = connection.execute("SELECT contract, name FROM contracts").fetchall()
    assert dict(rows) == names
