"""Wallets files, collections files and hidden files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from nftsync.errors import InputError
from nftsync.list_files import Cells, ListFile, read_list_file
from nftsync.records import normalize_uuid
from nftsync.store.contracts import contract_key
from nftsync.store.hidden import Hidden
from nftsync.store.wallets import WalletLine

#: The columns of a wallets file with their other names, as in the tables.
_WALLET = {"wallet_id": (), "label": ("wallet_label",), "group": ("wallet_group",)}
#: The columns of a collections file with their other names.
_COLLECTION = {"contract_address": ("contract", "address"), "name": ("collection", "label")}
#: The columns of a hidden file with their other names; it needs one of the first two.
_HIDDEN = {"contract_address": ("contract", "address"), "token_id": ("token",), "reason": ()}


def read_wallets_file(source: Path | Literal["-"]) -> list[WalletLine]:
    """Read a wallets file, or `-` for standard input; a repeated wallet's last line counts."""
    file = read_list_file(source, "wallets file")
    rows = file.rows(_WALLET)
    lines = _plain(file) if rows is None else rows
    wallets: dict[str, WalletLine] = {}
    for line, cells in lines:
        wallet_id = _wallet_id(cells.get("wallet_id", ""), file.name, line)
        wallets[wallet_id] = WalletLine(wallet_id, cells.get("label"), cells.get("group"))
    if not wallets:
        raise InputError(f"the wallets file {file.name} has no wallets; add one id per line")
    return list(wallets.values())


def _plain(file: ListFile) -> Iterator[Cells]:
    """Yield one id per line, without quotes and separators."""
    for number, line in enumerate(file.lines, start=1):
        wallet_id = line.partition("#")[0].strip(' \t\xa0",;')
        if wallet_id:
            yield Cells(number, {"wallet_id": wallet_id})


def _wallet_id(text: str, name: str, line: int) -> str:
    try:
        return normalize_uuid(text, "wallet id")
    except InputError as error:
        more = re.search("[,;\t]", text) or line == 1
        advice = "; a file with several columns begins with headings: wallet_id,label,group"
        raise InputError(f"{name}, line {line}: {error}{advice if more else ''}") from None


def read_collections_file(path: Path) -> dict[str, str]:
    """Return the names by address of a CSV file with `contract_address` and `name`.

    A repeated contract's last line with a name counts.
    """
    file = read_list_file(path, "collections file")
    names: dict[str, str] = {}
    line = 0
    for line, cells in file.table(_COLLECTION):
        if "contract_address" not in cells:
            raise InputError(
                f"{file.name}, line {line}: a name without a contract_address; fill it in"
            )
        if "name" in cells:
            names[contract_key(cells["contract_address"])] = cells["name"]
    if line and not names:
        raise InputError(
            f"the collections file {file.name} has no collections; add one line per collection"
        )
    return names


def read_hidden_file(path: Path) -> dict[Hidden, str | None]:
    """Return the entries of a CSV file with `contract_address` or `token_id`, and their reasons.

    If a row has both, the token counts. A repeated entry's last line counts.
    """
    file = read_list_file(path, "hidden file")
    entries: dict[Hidden, str | None] = {}
    for line, cells in file.table(_HIDDEN, keys=2):
        address, token = cells.get("contract_address"), cells.get("token_id")
        if token is not None:
            try:
                entry = Hidden(None, normalize_uuid(token, "token id"))
            except InputError as error:
                raise InputError(f"{file.name}, line {line}: {error}") from None
        elif address is not None:
            entry = Hidden(contract_key(address), None)
        else:
            raise InputError(
                f"{file.name}, line {line}: neither a contract_address nor a token_id; fill in one"
            )
        entries[entry] = cells.get("reason")
    return entries
