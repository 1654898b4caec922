"""Files that a person makes, such as a wallets file or prices."""

from __future__ import annotations

import csv
import re
import sys
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from nftsync.errors import InputError, NftsyncWarning
from nftsync.text import counted

#: The columns of a table with their other names.
Columns: TypeAlias = "Mapping[str, Sequence[str]]"

_LINE_END = re.compile("\r\n|\r|\n")


class Cells(NamedTuple):
    """A row: its first line, from 1, and its stripped, nonblank cells by column."""

    line: int
    cells: dict[str, str]


class ListFile(NamedTuple):
    """A decoded text file; messages call it `kind` and `name`."""

    kind: str
    name: str
    text: str

    @property
    def lines(self) -> list[str]:
        return _LINE_END.split(self.text)

    def table(self, columns: Columns, **rules: Any) -> Iterator[Cells]:
        """Parse a table as `rows` does; refuse a first line without headings."""
        if (rows := self.rows(columns, **rules)) is None:
            raise InputError(
                f"the first line of the {self.kind} {self.name} must be headings:"
                f" {','.join(columns)}"
            )
        return rows

    def rows(self, columns: Columns, **rules: Any) -> Iterator[Cells] | None:
        """Parse a table; return None if the first line names no column.

        The separator is a comma, semicolon or tab. Skips blank lines, empty columns, and lines that
        begin with `#`. For `rules`, see `named_columns`.
        """
        aliases = _aliases(columns)
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
        subject = f"the {self.kind} {self.name} has"
        return self._rows(records, header, named_columns(header, columns, subject, **rules))

    def _rows(
        self, records: Iterator[tuple[int, list[str]]], header: list[str], names: list[str]
    ) -> Iterator[Cells]:
        first_line = 1
        try:
            for first_line, cells in records:
                filled: dict[str, str] = {}
                stripped = map(str.strip, cells)
                for heading, name, cell in zip_longest(header, names, stripped, fillvalue=""):
                    if cell and not heading:
                        raise InputError(
                            f"{self.name}, line {first_line}: {cell[:80]!r} has no heading; the"
                            f" first line has {counted(len(names), 'heading')}. Put double quotes"
                            " around text that contains the separator"
                        )
                    if cell and name:
                        filled[name] = cell
                if filled:
                    yield Cells(first_line, filled)
        except csv.Error as error:
            raise InputError(
                f"the {self.kind} {self.name} is not CSV after line {first_line}: {error}"
            ) from error


def named_columns(
    header: Sequence[str],
    columns: Columns,
    subject: str,
    *,
    keys: int = 1,
    needs: Sequence[str] = (),
    others: bool = False,
) -> list[str]:
    """Return the column of each heading; empty for an empty heading and an ignored column.

    Case and punctuation do not matter: `Wallet ID` is `wallet_id`.

    `columns` come with their other names. The table needs one of its first `keys` columns, and all
    of `needs`. With `others`, unknown columns are ignored. `subject` begins a message (`the prices
    have`).
    """
    aliases = _aliases(columns)
    names = [aliases.get(_key(heading), "" if others else heading) for heading in header]
    if others:
        names = [
            name if names.count(name) == 1 or _key(heading) == _key(name) else ""
            for heading, name in zip(header, names, strict=True)
        ]
    wrong = [
        heading
        for heading, name in zip(header, names, strict=True)
        if name and (name not in columns or names.count(name) > 1)
    ]
    here = f"{subject} the columns {_listed(header)}"
    if wrong:
        allowed = " and ".join(", ".join(columns).rsplit(", ", 1))
        raise InputError(
            f"{here}; allowed are {allowed}, each at most once. Rename or remove {_listed(wrong)}"
        )
    one = [*columns][:keys]
    missing = [" or ".join(one)] * set(one).isdisjoint(names)
    if missing := [*missing, *(name for name in needs if name not in names)]:
        raise InputError(f"{here}; {' and '.join(missing)} is missing")
    return names


def read_list_file(source: Path | Literal["-"], kind: str) -> ListFile:
    """Read a file in UTF-8, UTF-16 or, with a warning, Windows-1252; `-` is standard input."""
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
#: Bytes that are not text of Western languages in Windows-1252, but of others or damaged UTF-8.
_NOT_WESTERN = re.compile(rb"[\x80-\xff]{3}|[\xc2-\xdf][\x80-\xbf]|[\x81\x8d\x8f\x90\x9d]")


def _decoded(content: bytes, file: str) -> str:
    if content.startswith(_WORKBOOKS):
        raise InputError(f"{file} is an Excel workbook, not a text file; {_ADVICE}")
    try:
        text = content.removeprefix(BOM_UTF8).decode(_encoding(content))
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise InputError(f"{file} is not valid UTF-16 text; {_ADVICE}") from None
        text = error.object.decode("cp1252", "replace")
        number = len(_LINE_END.split(text[: error.start]))
        line = _LINE_END.split(text)[number - 1][:80]
        problem = f"{file} is not UTF-8 text: in Windows-1252, line {number} would be {line!r}"
        advice = f"{_ADVICE}, or convert it: iconv -f ENCODING -t UTF-8"
        if _NOT_WESTERN.search(content):
            raise InputError(f"{problem}; {advice}") from None
        problem += f", and was read so. If this is wrong, {advice}"
        warnings.warn(problem, NftsyncWarning, stacklevel=3)
    if "\0" in text:
        number = len(_LINE_END.split(text[: text.index("\0")]))
        raise InputError(f"{file} has a character with the code 0 in line {number}; {_ADVICE}")
    return text


def _encoding(content: bytes) -> str:
    """Detect UTF-16 by its mark, or by a zero in the first two bytes."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    zeros = content[:2].find(0)
    return ("utf-8", "utf-16-be", "utf-16-le")[zeros + 1]


def _aliases(columns: Columns) -> dict[str, str]:
    return {_key(name): column for column in columns for name in (column, *columns[column])}


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name[:80]) for name in names if name)


#: A first line that names the separator for Excel.
_SEPARATOR = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)


def _records(lines: list[str], separator: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with their first lines, without blank lines and comments."""
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
