"""csv-spectrum: lists of all forms have the cells that the suite expects."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nftsync.list_files import read_list_file
from tests.foreign.suites import read_suite

SUITE = read_suite("csv_spectrum")
NAMES = [Path(name).stem for name in SUITE if name.startswith("csvs/")]


@pytest.mark.parametrize("name", NAMES)
def test_a_list_has_the_expected_cells(name: str, tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_bytes(SUITE[f"csvs/{name}.csv"])
    expected = json.loads(SUITE[f"json/{name}.json"])
    if name == "location_coordinates":  # an object, with another number than its table
        expected = [expected | {"Contact Phone Number": "2095257564"}]
    rows = read_list_file(file, "list").rows(dict.fromkeys(expected[0], ()))
    assert rows is not None
    # Empty cells are left out, and the cells' own line ends are those of Unix.
    assert [row.cells for row in rows] == [
        {column: re.sub("\r\n?", "\n", cell) for column, cell in row.items() if cell}
        for row in expected
    ]


def test_the_suite_is_whole() -> None:
    assert len(NAMES) == 12
