"""The collections file: what contracts are called, kept by people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nftsync.contracts import contract_key
from nftsync.errors import InputError
from nftsync.sent_files import read_sent_file
from nftsync.store.contracts import names_that_differ, store_file_names
from nftsync.store.mirror import Mirror

__all__ = ["name_collections", "read_collections_file"]

#: Its columns, and what else they may be called.
_COLUMNS = {"contract_address": ("contract", "address"), "name": ("collection", "label")}
#: Names that one transaction stores; more would keep the inbox waiting.
_AT_ONCE = 2_000


def read_collections_file(path: Path) -> dict[str, str]:
    """Read a collections file.

    Args:
        path: CSV with the columns `contract_address` and `name`.

    Returns:
        Names by address, each contract once: of one that is named twice the last line counts. A
        contract whose name is blank has none.

    Raises:
        InputError: it cannot be read, is no such table, or a line is unusable; the text says which.
    """
    file = read_sent_file(path, "collections file")
    rows = file.rows(_COLUMNS)
    if rows is None:
        raise InputError(
            f"the first line of the collections file {file.name} must name its columns:"
            " contract_address,name"
        )
    names: dict[str, str] = {}
    line = 0
    for line, cells in rows:
        if "contract_address" not in cells:
            raise InputError(f"{file.name}, line {line}: a name without a contract_address")
        if "name" in cells:
            names[contract_key(cells["contract_address"])] = cells["name"]
    if line and not names:
        raise InputError(f"the collections file {file.name} names no collection")
    return names


def name_collections(mirror: Mirror, names: Mapping[str, str]) -> None:
    """Call contracts what the file calls them, in short transactions; the others lose its names."""
    changes = names_that_differ(mirror.connection, names)
    for start in range(0, len(changes), _AT_ONCE):
        with mirror.transaction() as transaction:
            store_file_names(transaction.connection, changes[start : start + _AT_ONCE])
