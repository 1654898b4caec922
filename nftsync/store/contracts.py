"""Contracts of tokens, and their names.

A label precedes a name from the collections file, which precedes a name guessed from the names of
the contract's tokens.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

import msgspec

from nftsync.errors import InputError
from nftsync.store.database import over_keys
from nftsync.text import without_controls

HEX_ADDRESS = "0[xX][0-9a-fA-F]{40}"
_HEX_ADDRESS = re.compile(HEX_ADDRESS)
_LONGEST_WHOLE = 20


def is_hex_address(address: str) -> bool:
    """Return whether an address is `0x` and 40 hex digits, whose case is only a checksum."""
    return _HEX_ADDRESS.fullmatch(address) is not None


def contract_key(address: str) -> str:
    """Return one spelling for all spellings of a contract's address."""
    return address.lower() if is_hex_address(address) else address


def short_address(contract: str) -> str:
    """Shorten an address of more than 20 characters to its ends: `0x8f4f…8e63`."""
    if len(contract) <= _LONGEST_WHOLE:
        return contract
    return f"{contract[:6]}…{contract[-4:]}"


# Both patterns work in RE2 and `re`. They match only at the start of a run of digits or separators,
# so that untrusted names take linear time.
#: A number at the end of a name: `12`, `12/100`, `12 of 100)`.
NUMBER = (
    r"(?i)(?P<before>^|[^0-9])0*(?P<number>0|[1-9][0-9]{0,18})(?:\s*(?:/|of)\s*[0-9]+)?[\s)\]]*$"
)
#: The separator between series and number: ` #`, ` (`, ` No. `, ` - Edition `; empty if the name is
#: only a number.
BETWEEN = (
    r"(?is)^(?P<series>(?:.*?[^\s(\[#№,:;|_–—-])??)(?:^|[\s(\[#№,:;|_–—-]+)"
    r"(?:(?:no|nr|number|edition|ed)(?:\.|\s)[\s#]*)?$"
)
_NUMBER, _BETWEEN = re.compile(NUMBER, re.ASCII), re.compile(BETWEEN, re.ASCII)


def series_of(name: str) -> str | None:
    """Return a token's name without the number at its end, or None without such a number."""
    number = _NUMBER.search(name)
    between = number and _BETWEEN.match(name[: number.end("before")])
    return between["series"] if between else None


#: The sample of a contract's tokens: the first 200, and every 16th of the others, so that other
#: wallets than the first count, too.
_SAMPLE, _ONE_OF = 200, 16
#: Series remembered per contract; the series of nearly all tokens always stays.
_REMEMBERED = 8
#: Minimum number and share of tokens for a guess.
_FEWEST, _SHARE = 5, 0.8
_LONGEST_NAME = 100


class _Series(msgspec.Struct, array_like=True):
    """Tokens with the same name except for its number; `whole` is their name if all share it."""

    count: int
    whole: str | None


class NamesSeen(msgspec.Struct):
    """A summary of the names of a contract's tokens, to guess the collection's name.

    It counts the most frequent series in constant memory (Misra and Gries, 1982).

    Attributes:
        came: the number of tokens.
        looked_at: the size of the sample, including tokens without a name.
        series: the most frequent series.
    """

    came: int = 0
    looked_at: int = 0
    series: dict[str, _Series] = {}

    def add(self, name: str | None) -> None:
        """Add a token's name."""
        self.came += 1
        if self.came > _SAMPLE and self.came % _ONE_OF:
            return
        self.looked_at += 1
        whole, series = _parts(name)
        if series:
            self._count(series, 1, whole)
            self._forget_the_rarest()

    def remove(self, name: str | None) -> None:
        """Remove the former name of a token, if it is remembered."""
        _, series = _parts(name)
        if series in self.series:
            self._forget_one(series)
            self.looked_at -= 1
        elif not series:
            remembered = sum(one.count for one in self.series.values())
            self.looked_at = max(self.looked_at - 1, remembered)

    def merge(self, other: NamesSeen) -> None:
        """Add the summary of other tokens of the contract."""
        self.came += other.came
        self.looked_at += other.looked_at
        for series, theirs in other.series.items():
            self._count(series, theirs.count, theirs.whole)
        self._forget_the_rarest()

    def _count(self, series: str, count: int, whole: str | None) -> None:
        entry = self.series.setdefault(series, _Series(0, whole))
        entry.count += count
        if entry.whole != whole:
            entry.whole = None

    def _forget_the_rarest(self) -> None:
        while len(self.series) > _REMEMBERED:
            for series in list(self.series):
                self._forget_one(series)

    def _forget_one(self, series: str) -> None:
        entry = self.series[series]
        entry.count -= 1
        if not entry.count:
            del self.series[series]

    def guess(self) -> str | None:
        """Return the series of nearly all tokens as the collection's name, or None."""
        for series, entry in self.series.items():
            if entry.count >= max(_FEWEST, _SHARE * self.looked_at):
                return entry.whole or series
        return None


def _parts(name: str | None) -> tuple[str, str]:
    """Return a name as one line, and its series; both blank if it is missing or too long."""
    whole = "" if name is None or len(name) > _LONGEST_NAME else without_controls(name)
    series = series_of(whole)
    return whole, whole if series is None else series


#: A token's contract, if it has one, and its name.
Named: TypeAlias = tuple[str | None, str | None]

_decode = msgspec.json.Decoder(NamesSeen).decode


def take_in_contracts(connection: sqlite3.Connection, after: int, until: int) -> None:
    """Add the contracts of new tokens, and the tokens' names.

    Args:
        after: the number of the last token that was added before.
        until: the number of the last token to add.
    """
    count_names(
        connection,
        connection.execute(
            "SELECT contract_address, name FROM tokens WHERE token_no > ? AND token_no <= ?"
            " ORDER BY token_no",
            (after, until),
        ),
    )


def count_names(
    connection: sqlite3.Connection, come: Iterable[Named], gone: Iterable[Named] = ()
) -> None:
    """Update the summaries of contracts for new and changed tokens.

    Args:
        come: the new contract and name of tokens.
        gone: the former contract and name of changed tokens.
    """
    names: dict[str, tuple[list[str | None], list[str | None]]] = {}
    for place, tokens in enumerate((come, gone)):
        for address, name in tokens:
            if address is not None:
                names.setdefault(address, ([], []))[place].append(name)
    contracts = _load(connection, ((contract_key(address), address) for address in names))
    for address, (added, removed) in names.items():
        _, summary = contracts[contract_key(address)]
        for name in removed:
            summary.remove(name)
        for name in added:
            summary.add(name)
    _store(connection, contracts)


def merge_names(connection: sqlite3.Connection, rows: Iterable[tuple[str, str, str]]) -> None:
    """Add summaries of other tokens.

    Args:
        rows: `contract`, `contract_address` and `names_seen`; a contract may occur repeatedly.
    """
    summaries = list(rows)
    contracts = _load(connection, ((contract, address) for contract, address, _ in summaries))
    for contract, _, packed in summaries:
        contracts[contract][1].merge(_decode(packed))
    _store(connection, contracts)


#: By contract: its first spelling, and the summary of its tokens' names.
_Contracts: TypeAlias = dict[str, tuple[str, NamesSeen]]


def _load(connection: sqlite3.Connection, named: Iterable[tuple[str, str]]) -> _Contracts:
    """Look up contracts; a new contract gets the first of its addresses."""
    spelled: dict[str, str] = {}
    for key, address in named:
        spelled.setdefault(key, address)
    rows = over_keys(
        connection,
        "SELECT contract, contract_address, names_seen FROM json_each(?) k"
        " JOIN contracts c ON c.contract = k.value WHERE names_seen IS NOT NULL",
        spelled,
    )
    stored = {key: (address, _decode(packed)) for key, address, packed in rows}
    return {key: stored.get(key) or (address, NamesSeen()) for key, address in spelled.items()}


def _store(connection: sqlite3.Connection, contracts: _Contracts) -> None:
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, guessed_name, names_seen)"
        " VALUES (?, ?, ?, ?) ON CONFLICT (contract) DO UPDATE SET"
        " contract_address = excluded.contract_address, guessed_name = excluded.guessed_name,"
        " names_seen = excluded.names_seen",
        [
            (key, address, summary.guess(), msgspec.json.encode(summary).decode())
            for key, (address, summary) in contracts.items()
        ],
    )


#: A contract, its address, and its name in the collections file, or None to remove it.
FileName: TypeAlias = tuple[str, str, str | None]


def names_that_differ(connection: sqlite3.Connection, names: Mapping[str, str]) -> list[FileName]:
    """Return the names that the collections file adds, changes or removes, for `store_file_names`.

    Args:
        names: the file's names by address; contracts without tokens are stored, too.
    """
    file = {contract_key(address): (address, name) for address, name in names.items()}
    rows = connection.execute(
        "SELECT contract, contract_address, file_name FROM contracts WHERE file_name IS NOT NULL"
    ).fetchall()
    before = {key: name for key, _, name in rows}
    new: list[FileName] = [(key, *x) for key, x in file.items() if before.get(key) != x[1]]
    return new + [(key, address, None) for key, address, _ in rows if key not in file]


def store_file_names(connection: sqlite3.Connection, names: Iterable[FileName]) -> None:
    """Store names from the collections file, in a write transaction."""
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, file_name) VALUES (?, ?, ?)"
        " ON CONFLICT (contract) DO UPDATE SET file_name = excluded.file_name",
        names,
    )


def label_contract(connection: sqlite3.Connection, address: str, name: str) -> None:
    """Set a contract's label; an empty one removes it.

    Raises:
        InputError: the contract is not in the database.
    """
    done = connection.execute(
        "UPDATE contracts SET given_name = nullif(?, '') WHERE contract = ?",
        (name, contract_key(address)),
    )
    if not done.rowcount:
        raise InputError(
            f"contract {address!r} is not in the database"
            f"{near_contracts(connection.execute(_ADDRESSES), address)};"
            " to list contracts: `nftsync collections`"
        )


_ADDRESSES = "SELECT contract, contract_address, NULL FROM contracts"


def near_contracts(rows: Iterable[tuple[str, str, str | None]], wanted: str) -> str:
    """Return similar contracts for an error about an unknown address or name.

    Args:
        rows: the contract, address and name of each contract in the database.
        wanted: the unknown address or name.
    """
    shown: dict[str, str] = {}
    for contract, address, name in rows:
        shown |= {contract.lower(): address} if name is None else {name.lower(): name}
    near = get_close_matches(wanted.lower(), shown, n=3)
    return f"; similar: {', '.join(repr(shown[key]) for key in near)}" if near else ""
