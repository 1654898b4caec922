"""Files of wallets and collections that people maintain: text, CSV, and CSV from Excel."""

from __future__ import annotations

import csv
import re
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from nftsync.errors import InputError
from nftsync.records import normalize_uuid
from nftsync.store.contracts import contract_key
from nftsync.store.wallets import WalletLine

#: A wallets file's columns, and what else they may be called: as in the tables.
_WALLET = {"wallet_id": (), "label": ("wallet_label",), "group": ("wallet_group",)}
#: Those of a collections file.
_COLLECTION = {"contract_address": ("contract", "address"), "name": ("collection", "label")}


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        line: the line of the file on which it begins, from 1.
        cells: its values by column, without white space around them; blank ones are missing.
    """

    line: int
    cells: dict[str, str]


class ListFile(NamedTuple):
    """A file of text.

    Attributes:
        what: what it is, for messages: `wallets file`.
        name: its path, or `standard input`.
        text: its content, whatever encoding it was in.
    """

    what: str
    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its lines, however they end."""
        return re.split("\r\n|\r|\n", self.text)

    def rows(self, columns: Mapping[str, Sequence[str]]) -> Iterator[Row] | None:
        """Read it as a table whose first line names columns.

        Cells are separated by commas, semicolons or tabs. Blank lines and rows, columns without a
        name or a value, and lines that begin with `#` are left out. Column names are known
        whatever their case and whatever stands between their words: `Wallet ID` is `wallet_id`.

        Args:
            columns: the known columns, and what else each may be called. The first must be there.

        Returns:
            Its rows; None: the first line names no known column, so there is no table.

        Raises:
            InputError: a column is unknown, missing or there twice; while the rows are read: one
                is no CSV, or has a value without a column.
        """
        known = {_key(name): column for column in columns for name in (column, *columns[column])}
        lines = self.lines
        named = _SEPARATOR.fullmatch(lines[0])
        best, chosen = 0, None
        for separator in named[1] if named else ",;\t":
            records = _records(lines, separator, 1 if named else 0)
            try:
                _, header = next(records, (0, []))
            except csv.Error:
                continue
            count = sum(_key(name) in known for name in header)
            if count > best:
                best, chosen = count, (records, [name.strip() for name in header])
        if chosen is None:
            return None
        records, header = chosen
        names = [known.get(_key(name), name) for name in header]
        self._check(header, names, columns)
        return self._rows(records, names)

    def _check(
        self, header: list[str], names: list[str], columns: Mapping[str, Sequence[str]]
    ) -> None:
        first, *_ = columns
        here = f"the {self.what} {self.name} has the columns {_listed(header)}"
        twice = {name for name in names if names.count(name) > 1}
        wrong = [
            shown
            for shown, name in zip(header, names, strict=True)
            if name and (name not in columns or name in twice)
        ]
        if wrong:
            known = " and ".join(", ".join(columns).rsplit(", ", 1))
            raise InputError(
                f"{here}; known are {known}, each once: rename or remove {_listed(wrong)}"
            )
        if first not in names:
            raise InputError(f"{here}; {first} is missing")

    def _rows(self, records: Iterator[tuple[int, list[str]]], names: list[str]) -> Iterator[Row]:
        begun = 1
        try:
            for begun, cells in records:
                values = [cell.strip() for cell in cells]
                nameless = [
                    value
                    for place, value in enumerate(values)
                    if value and (place >= len(names) or not names[place])
                ]
                if nameless:
                    raise InputError(
                        f"{self.name}, line {begun}: {nameless[0][:80]!r} stands in a column"
                        f" without a name ({len(names)} columns are named); text that holds the"
                        " separator stands in double quotes"
                    )
                filled = {name: value for name, value in zip(names, values, strict=False) if value}
                if filled:
                    yield Row(begun, filled)
        except csv.Error as error:
            raise InputError(
                f"the {self.what} {self.name} is not CSV after line {begun}: {error}"
            ) from error


def read_list_file(source: Path | Literal["-"], what: str) -> ListFile:
    """Read a file that somebody made with an editor or a spreadsheet.

    UTF-8 and UTF-16 are read, with a byte order mark or without. Other encodings cannot be told
    from each other, and a wrong guess would change names without a word, so they are refused.

    Args:
        source: the file, or `-` for standard input.
        what: what it is, for messages: `wallets file`.

    Raises:
        InputError: it cannot be read, or is not text; the message says what to do.
    """
    name = "standard input" if source == "-" else str(source)
    try:
        # Bytes: the terminal's encoding may be any, and a pipe may begin with a byte order mark.
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {what} {name}: {error.strerror}") from error
    return ListFile(what, name, _decoded(content, f"the {what} {name}"))


#: What Excel's own files begin with: those of today (zip), and those of before 2007.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_ADVICE = 'in Excel, save it as "CSV UTF-8 (Comma delimited)"'


def _decoded(content: bytes, which: str) -> str:
    if content.startswith(_WORKBOOKS):
        raise InputError(f"{which} is an Excel workbook, not a text file; {_ADVICE}")
    try:
        return content.removeprefix(BOM_UTF8).decode(_encoding(content))
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise InputError(f"{which} is not whole UTF-16 text; {_ADVICE}") from None
        before = error.object[: error.start]
        number = len(re.split(b"\r\n|\r|\n", before))
        line = re.split(b"[\r\n]", before)[-1] + re.split(b"[\r\n]", error.object[error.start :])[0]
        raise InputError(
            f"{which} is not UTF-8 text: line {number}, which in Windows-1252 would be"
            f" {line.decode('cp1252', 'replace')[:80]!r}; {_ADVICE}, or convert it:"
            " iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


def _encoding(content: bytes) -> str:
    """UTF-16 shows by its mark, or by every other byte of its ASCII being zero."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    zeros = content[:2].find(0)
    return ("utf-8", "utf-16-be", "utf-16-le")[zeros + 1]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name[:80]) for name in names if name)


#: A first line that tells Excel how cells are separated; it is no row.
_SEPARATOR = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)


def _records(lines: list[str], separator: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """The rows as lists of cells, each with the line on which it begins.

    Blank lines and comments are left out between rows only: in quotes they are text.
    """
    begins: int | None = None

    def fed() -> Iterator[str]:
        nonlocal begins
        for number, line in enumerate(lines[first:], start=first + 1):
            if begins is None:
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                begins = number
            yield line + "\n"

    for cells in csv.reader(fed(), delimiter=separator, skipinitialspace=True, strict=True):
        yield begins or 0, cells
        begins = None


def read_wallets_file(source: Path | Literal["-"]) -> list[WalletLine]:
    """Read a wallets file.

    Args:
        source: the file, or `-` for standard input.

    Returns:
        Its wallets in their order, each once; of a wallet named twice the last line counts.

    Raises:
        InputError: it cannot be read, names no wallet, or a line is unusable; the text says which.
    """
    file = read_list_file(source, "wallets file")
    rows = file.rows(_WALLET)
    lines = _plain(file) if rows is None else rows
    found = (
        WalletLine(
            _wallet_id(cells.get("wallet_id", ""), file.name, line),
            cells.get("label"),
            cells.get("group"),
        )
        for line, cells in lines
    )
    wallets = {wallet.wallet_id: wallet for wallet in found}
    if not wallets:
        raise InputError(f"the wallets file {file.name} names no wallet")
    return list(wallets.values())


def _plain(file: ListFile) -> Iterator[Row]:
    """One id a line; a spreadsheet may have put quotes around it and separators behind it."""
    for number, line in enumerate(file.lines, start=1):
        wallet_id = line.partition("#")[0].strip(' \t\xa0",;')
        if wallet_id:
            yield Row(number, {"wallet_id": wallet_id})


def _wallet_id(text: str, name: str, line: int) -> str:
    try:
        return normalize_uuid(text, "wallet id")
    except InputError as error:
        more = re.search("[,;\t]", text) or line == 1
        advice = "; if lines have more than ids, the first names them: wallet_id,label,group"
        raise InputError(f"{name}, line {line}: {error}{advice if more else ''}") from None


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
    file = read_list_file(path, "collections file")
    rows = file.rows(_COLLECTION)
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
