"""Cases of other projects' test suites: see README.md for their sources and licenses."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile


def read_suite(name: str) -> dict[str, bytes]:
    """Return the files of a suite by name, without its license."""
    with ZipFile(Path(__file__).with_name(f"{name}.zip")) as archive:
        names = [file for file in sorted(archive.namelist()) if file != "LICENSE"]
        return {file: archive.read(file) for file in names}
