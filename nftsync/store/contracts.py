"""Contracts of tokens and their names.

A name that was given goes before one of the collections file, and that before one that is guessed
from the names of the contract's tokens.
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
    """Whether it is `0x` and 40 hex digits, whose case only carries a checksum."""
    return _HEX_ADDRESS.fullmatch(address) is not None


def contract_key(address: str) -> str:
    """The text that all spellings of one contract's address have in common."""
    return address.lower() if is_hex_address(address) else address


def short_address(contract: str) -> str:
    """A contract by its two ends, `0x8f4f…8e63`; whole where it is no longer than 20 characters."""
    if len(contract) <= _LONGEST_WHOLE:
        return contract
    return f"{contract[:6]}…{contract[-4:]}"


# For RE2 and for `re`: each begins only where a run of digits or separators does, so that its time
# grows with no more than the length of the text. Names are the provider's.
#: A number that ends a name: `12`, `12/100`, `12 of 100)`.
NUMBER = (
    r"(?i)(?P<before>^|[^0-9])0*(?P<number>0|[1-9][0-9]{0,18})(?:\s*(?:/|of)\s*[0-9]+)?[\s)\]]*$"
)
#: What stands between it and the name of the series: ` #`, ` (`, ` No. `, ` - Edition `; or nothing
#: if the number is all there is.
BETWEEN = (
    r"(?is)^(?P<series>(?:.*?[^\s(\[#№,:;|_–—-])??)(?:^|[\s(\[#№,:;|_–—-]+)"
    r"(?:(?:no|nr|number|edition|ed)(?:\.|\s)[\s#]*)?$"
)
_NUMBER, _BETWEEN = re.compile(NUMBER, re.ASCII), re.compile(BETWEEN, re.ASCII)


def series_of(name: str) -> str | None:
    """A token's name without the number at its end; None where no number ends it."""
    number = _NUMBER.search(name)
    between = number and _BETWEEN.match(name[: number.end("before")])
    return between["series"] if between else None


#: Tokens of a contract that are looked at: the first, and of the others one of so many. That is
#: enough to guess from, little work, and not only what the first wallet holds.
_SAMPLE, _ONE_OF = 200, 16
#: Names that are remembered of a contract; what nearly all tokens share is never forgotten.
_REMEMBERED = 8
#: A name is no guess from fewer tokens, nor from a smaller share of the contract's tokens.
_FEWEST, _SHARE = 5, 0.8
_LONGEST_NAME = 100


class _Series(msgspec.Struct, array_like=True):
    """Tokens whose names are the same without their numbers; `whole` is the name that all have."""

    count: int
    whole: str | None


class NamesSeen(msgspec.Struct):
    """What is remembered of the names of a contract's tokens, to guess the collection's from them.

    The most frequent series are counted in little room (Misra and Gries, 1982): a count falls short
    of the truth by at most an eighth of the tokens of other series.

    Attributes:
        came: how many tokens came.
        looked_at: the sample of them that stands, those without a name included.
        series: the most frequent series.
    """

    came: int = 0
    looked_at: int = 0
    series: dict[str, _Series] = {}

    def add(self, name: str | None) -> None:
        """Take in a token, by its name."""
        self.came += 1
        if self.came > _SAMPLE and self.came % _ONE_OF:
            return
        self.looked_at += 1
        whole, series = _parts(name)
        if series:
            self._count(series, 1, whole)
            self._forget_the_rarest()

    def remove(self, name: str | None) -> None:
        """Let go of a token that has this name no longer, as far as it is remembered."""
        _, series = _parts(name)
        if series in self.series:
            self._forget_one(series)
            self.looked_at -= 1
        elif not series:
            remembered = sum(known.count for known in self.series.values())
            self.looked_at = max(self.looked_at - 1, remembered)

    def merge(self, other: NamesSeen) -> None:
        """Take in what was remembered elsewhere of other tokens of the contract."""
        self.came += other.came
        self.looked_at += other.looked_at
        for series, theirs in other.series.items():
            self._count(series, theirs.count, theirs.whole)
        self._forget_the_rarest()

    def _count(self, series: str, count: int, whole: str | None) -> None:
        known = self.series.setdefault(series, _Series(0, whole))
        known.count += count
        if known.whole != whole:
            known.whole = None

    def _forget_the_rarest(self) -> None:
        while len(self.series) > _REMEMBERED:
            for each in list(self.series):
                self._forget_one(each)

    def _forget_one(self, series: str) -> None:
        known = self.series[series]
        known.count -= 1
        if not known.count:
            del self.series[series]

    def guess(self) -> str | None:
        """What the collection may be called: the series of nearly all tokens, if there is one."""
        for series, known in self.series.items():
            if known.count >= max(_FEWEST, _SHARE * self.looked_at):
                return known.whole or series
        return None


def _parts(name: str | None) -> tuple[str, str]:
    """A name as one line, and its series; blank where it is none, or too long to be one."""
    whole = "" if name is None or len(name) > _LONGEST_NAME else without_controls(name)
    series = series_of(whole)
    return whole, whole if series is None else series


#: A token's contract, if it names one, and its name.
Named: TypeAlias = tuple[str | None, str | None]

_decode = msgspec.json.Decoder(NamesSeen).decode


def take_in_contracts(connection: sqlite3.Connection, after: int, until: int) -> None:
    """Take in the contracts of tokens that were not looked at before, and their tokens' names.

    Args:
        connection: in a write transaction.
        after: the number of the last token that was looked at.
        until: the number of the last that is to be.
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
    """Bring what is known of contracts along with the names of their tokens.

    Args:
        connection: in a write transaction.
        come: the contract and the name of tokens that are new, or as they have become.
        gone: of tokens that were otherwise before.
    """
    names: dict[str, tuple[list[str | None], list[str | None]]] = {}
    for place, tokens in enumerate((come, gone)):
        for address, name in tokens:
            if address is not None:
                names.setdefault(address, ([], []))[place].append(name)
    known = _known(connection, ((contract_key(address), address) for address in names))
    for address, (added, removed) in names.items():
        _, seen = known[contract_key(address)]
        for name in removed:
            seen.remove(name)
        for name in added:
            seen.add(name)
    _store(connection, known)


def merge_names(connection: sqlite3.Connection, rows: Iterable[tuple[str, str, str]]) -> None:
    """Take in what was remembered elsewhere of the names of other tokens.

    Args:
        connection: in a write transaction.
        rows: `contract`, `contract_address` and `names_seen` of `contracts` there; of a contract
            there may be several.
    """
    given = list(rows)
    known = _known(connection, ((contract, address) for contract, address, _ in given))
    for contract, _, packed in given:
        known[contract][1].merge(_decode(packed))
    _store(connection, known)


#: What is remembered of contracts: how each was first spelled, and its tokens' names.
_Known: TypeAlias = dict[str, tuple[str, NamesSeen]]


def _known(connection: sqlite3.Connection, named: Iterable[tuple[str, str]]) -> _Known:
    """Look up contracts; of one that no token named before, the first address given counts."""
    spelled: dict[str, str] = {}
    for key, address in named:
        spelled.setdefault(key, address)
    rows = over_keys(
        connection,
        "SELECT contract, contract_address, names_seen FROM json_each(?) k"
        " JOIN contracts c ON c.contract = k.value WHERE names_seen IS NOT NULL",
        spelled,
    )
    known = {key: (address, _decode(seen)) for key, address, seen in rows}
    return {key: known.get(key) or (address, NamesSeen()) for key, address in spelled.items()}


def _store(connection: sqlite3.Connection, known: _Known) -> None:
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, guessed_name, names_seen)"
        " VALUES (?, ?, ?, ?) ON CONFLICT (contract) DO UPDATE SET"
        " contract_address = excluded.contract_address, guessed_name = excluded.guessed_name,"
        " names_seen = excluded.names_seen",
        [
            (key, address, seen.guess(), msgspec.json.encode(seen).decode())
            for key, (address, seen) in known.items()
        ],
    )


#: A contract in the one spelling, its address, and its name in the collections file; None: none.
FileName: TypeAlias = tuple[str, str, str | None]


def names_that_differ(connection: sqlite3.Connection, names: Mapping[str, str]) -> list[FileName]:
    """Compare the names of the collections file with those that were there before.

    Args:
        connection: any connection.
        names: by address; those of contracts that no token names yet are kept for when one does.

    Returns:
        What `store_file_names` has to store.
    """
    file = {contract_key(address): (address, name) for address, name in names.items()}
    rows = connection.execute(
        "SELECT contract, contract_address, file_name FROM contracts WHERE file_name IS NOT NULL"
    ).fetchall()
    before = {key: name for key, _, name in rows}
    new: list[FileName] = [(key, *x) for key, x in file.items() if before.get(key) != x[1]]
    return new + [(key, address, None) for key, address, _ in rows if key not in file]


def store_file_names(connection: sqlite3.Connection, names: Iterable[FileName]) -> None:
    """Store names of the collections file, in a write transaction."""
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, file_name) VALUES (?, ?, ?)"
        " ON CONFLICT (contract) DO UPDATE SET file_name = excluded.file_name",
        names,
    )


def label_contract(connection: sqlite3.Connection, address: str, name: str) -> None:
    """Give a contract a name; an empty one takes it away.

    Raises:
        InputError: the contract is not known.
    """
    done = connection.execute(
        "UPDATE contracts SET given_name = nullif(?, '') WHERE contract = ?",
        (name, contract_key(address)),
    )
    if not done.rowcount:
        raise InputError(
            f"contract {address!r} is not known"
            f"{near_contracts(connection.execute(_ADDRESSES), address)};"
            " `nftsync collections` lists those that are"
        )


_ADDRESSES = "SELECT contract, contract_address, NULL FROM contracts"


def near_contracts(rows: Iterable[tuple[str, str, str | None]], wanted: str) -> str:
    """What an error adds for who wrote a contract's address or name wrong.

    Args:
        rows: contract, address and name of those that there are.
        wanted: what was written.
    """
    shown: dict[str, str] = {}
    for contract, address, name in rows:
        shown |= {contract.lower(): address} if name is None else {name.lower(): name}
    near = get_close_matches(wanted.lower(), shown, n=3)
    return f"; near ones are {', '.join(repr(shown[one]) for one in near)}" if near else ""
