"""Parser of the user's lists (wallets, collection names, hidden tokens): text, CSV, Excel's CSV."""

from __future__ import annotations

import csv
import re
import sys
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from nftsync.errors import InputError
from nftsync.records import is_uuid, normalize_uuid
from nftsync.store.contracts import contract_key
from nftsync.store.hidden import Hidden
from nftsync.store.wallets import WalletLine
from nftsync.text import counted, quoted

#: The columns of a wallets file with their other names, as in the tables.
_WALLET = {"wallet_id": (), "label": ("wallet_label",), "group": ("wallet_group",)}
#: The columns of a collections file with their other names.
_COLLECTION = {"contract_address": ("contract", "address"), "name": ("collection", "label")}
#: The columns of a hidden file with their other names; it needs one of the first two.
_HIDDEN = {"contract_address": ("contract", "address"), "token_id": ("token",), "reason": ()}


class Row(NamedTuple):
    """A row of a table: its first line, from 1, and its stripped, nonblank cells by column."""

    line: int
    cells: dict[str, str]


class ListFile(NamedTuple):
    """A text file.

    Attributes:
        kind: for messages, such as `wallets file`.
        name: its path, or `standard input`.
        text: its decoded content.
    """

    kind: str
    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The lines, with any kind of line end."""
        return re.split("\r\n|\r|\n", self.text)

    def rows(self, columns: Mapping[str, Sequence[str]], *, keys: int = 1) -> Iterator[Row] | None:
        """Parse a table whose first line names columns.

        The separator is a comma, semicolon or tab. Case and punctuation do not matter in headings:
        `Wallet ID` is `wallet_id`. Skips blank lines, empty columns, and lines that begin with `#`.

        Args:
            columns: the columns with their other names.
            keys: the table needs one of this number of first columns.

        Returns:
            The rows, or None if the first line names no column.

        Raises:
            InputError: a heading is unknown, missing or repeated; during iteration also if a row is
                not CSV or has a value without a heading.
        """
        aliases = {_key(name): column for column in columns for name in (column, *columns[column])}
        lines = self.lines
        separator_line = _SEPARATOR.fullmatch(lines[0])
        best = 0
        for separator in separator_line[1] if separator_line else ",;\t":
            rest = _records(lines, separator, 1 if separator_line else 0)
            with suppress(csv.Error):
                _, cells = next(rest, (0, []))
                count = sum(_key(name) in aliases for name in cells)
                if count > best:
                    best, records, header = count, rest, [name.strip() for name in cells]
        if not best:
            return None
        names = [aliases.get(_key(name), name) for name in header]
        self._check(header, names, columns, [*columns][:keys])
        return self._rows(records, names)

    def _check(
        self,
        header: list[str],
        names: list[str],
        columns: Mapping[str, Sequence[str]],
        keys: list[str],
    ) -> None:
        here = f"the {self.kind} {self.name} has the columns {_listed(header)}"
        wrong = [
            shown
            for shown, name in zip(header, names, strict=True)
            if name and (name not in columns or names.count(name) > 1)
        ]
        if wrong:
            allowed = " and ".join(", ".join(columns).rsplit(", ", 1))
            raise InputError(
                f"{here}. Allowed are {allowed}, each once. Rename or remove {_listed(wrong)}"
            )
        if set(keys).isdisjoint(names):
            raise InputError(f"{here}; {' or '.join(keys)} is missing")

    def _rows(self, records: Iterator[tuple[int, list[str]]], names: list[str]) -> Iterator[Row]:
        first_line = 1
        try:
            for first_line, cells in records:
                filled: dict[str, str] = {}
                for name, cell in zip_longest(names, map(str.strip, cells), fillvalue=""):
                    if cell and not name:
                        raise InputError(
                            f"{self.name}, line {first_line}: {cell[:80]!r} has no heading; the"
                            f" first line has {counted(len(names), 'heading')}. Put double quotes"
                            " around text that contains the separator"
                        )
                    if cell:
                        filled[name] = cell
                if filled:
                    yield Row(first_line, filled)
        except csv.Error as error:
            raise InputError(
                f"the {self.kind} {self.name} is not CSV after line {first_line}: {error}"
            ) from error


def read_list_file(source: Path | Literal["-"], kind: str) -> ListFile:
    """Read a UTF-8 or UTF-16 file, or `-` for standard input; other encodings are refused.

    Raises:
        InputError: the file is unreadable or not text.
    """
    name = "standard input" if source == "-" else str(source)
    try:
        # Bytes, whatever the terminal's encoding; a pipe may begin with a byte order mark.
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {kind} {name}: {error.strerror}") from error
    return ListFile(kind, name, _decoded(content, f"the {kind} {name}"))


#: The first bytes of Excel's workbooks: the current format (zip), and the one before 2007.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_ADVICE = 'in Excel, save it as "CSV UTF-8 (Comma delimited)"'


def _decoded(content: bytes, file: str) -> str:
    if content.startswith(_WORKBOOKS):
        raise InputError(f"{file} is an Excel workbook, not a text file; {_ADVICE}")
    try:
        return content.removeprefix(BOM_UTF8).decode(_encoding(content))
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise InputError(f"{file} is not valid UTF-16 text; {_ADVICE}") from None
        before = error.object[: error.start]
        number = len(re.split(b"\r\n|\r|\n", before))
        line = re.split(b"[\r\n]", before)[-1] + re.split(b"[\r\n]", error.object[error.start :])[0]
        raise InputError(
            f"{file} is not UTF-8 text: in Windows-1252, line {number} would be"
            f" {line.decode('cp1252', 'replace')[:80]!r}; {_ADVICE}, or convert it:"
            " iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


def _encoding(content: bytes) -> str:
    """Detect UTF-16 by its mark, or by a zero in the first two bytes."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    zeros = content[:2].find(0)
    return ("utf-8", "utf-16-be", "utf-16-le")[zeros + 1]


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name[:80]) for name in names if name)


#: A first line that names the separator for Excel.
_SEPARATOR = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)


def _records(lines: list[str], separator: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with their first lines; skip blank lines and comments, except in quotes."""
    first_line: int | None = None

    def fed() -> Iterator[str]:
        nonlocal first_line
        for number, line in enumerate(lines[first:], start=first + 1):
            if first_line is None:
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                first_line = number
            yield line + "\n"

    for cells in csv.reader(fed(), delimiter=separator, skipinitialspace=True, strict=True):
        yield first_line or 0, cells
        first_line = None


def read_wallets_file(source: Path | Literal["-"]) -> list[WalletLine]:
    """Read a wallets file, or `-` for standard input; a repeated wallet's last line counts.

    Raises:
        InputError: the file is unreadable or has no wallets, or a line is unusable.
    """
    file = read_list_file(source, "wallets file")
    rows = file.rows(_WALLET)
    lines = _plain(file) if rows is None else rows
    wallet_lines = (
        WalletLine(
            _wallet_id(cells.get("wallet_id", ""), file.name, line),
            cells.get("label"),
            cells.get("group"),
        )
        for line, cells in lines
    )
    wallets = {wallet.wallet_id: wallet for wallet in wallet_lines}
    if not wallets:
        raise InputError(f"the wallets file {file.name} has no wallets; add one id per line")
    return list(wallets.values())


def _plain(file: ListFile) -> Iterator[Row]:
    """Yield one id per line, without quotes and separators."""
    for number, line in enumerate(file.lines, start=1):
        wallet_id = line.partition("#")[0].strip(' \t\xa0",;')
        if wallet_id:
            yield Row(number, {"wallet_id": wallet_id})


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

    Raises:
        InputError: the file or a line is unusable.
    """
    name, rows = _table(path, "collections file", _COLLECTION)
    names: dict[str, str] = {}
    line = 0
    for line, cells in rows:
        if "contract_address" not in cells:
            raise InputError(f"{name}, line {line}: a name without a contract_address; fill it in")
        if "name" in cells:
            names[contract_key(cells["contract_address"])] = cells["name"]
    if line and not names:
        raise InputError(f"the collections file {name} names no collection; add a line for each")
    return names


def read_hidden_file(path: Path) -> dict[Hidden, str | None]:
    """Return the entries of a CSV file with `contract_address` or `token_id`, and their reasons.

    If a row has both, the token counts. A repeated entry's last line counts.

    Raises:
        InputError: the file or a line is unusable.
    """
    name, rows = _table(path, "hidden file", _HIDDEN, keys=2)
    entries: dict[Hidden, str | None] = {}
    for line, cells in rows:
        address, token = cells.get("contract_address"), cells.get("token_id")
        if token is not None:
            if not is_uuid(token):
                raise InputError(f"{name}, line {line}: {quoted(token)} is not a token id (a UUID)")
            entry = Hidden(None, token.lower())
        elif address is not None:
            entry = Hidden(contract_key(address), None)
        else:
            raise InputError(
                f"{name}, line {line}: neither a contract_address nor a token_id; fill in one"
            )
        entries[entry] = cells.get("reason")
    return entries


def _table(
    path: Path, kind: str, columns: Mapping[str, Sequence[str]], keys: int = 1
) -> tuple[str, Iterator[Row]]:
    """Return the name and the rows of a file with headings; see `ListFile.rows`."""
    file = read_list_file(path, kind)
    rows = file.rows(columns, keys=keys)
    if rows is None:
        raise InputError(
            f"the first line of the {kind} {file.name} must be headings: {','.join(columns)}"
        )
    return file.name, rows
