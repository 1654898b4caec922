"""Contract addresses in one spelling, and the names of collections.

A label wins over a name from the collections file, and both over a guess from the tokens' names.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from nftsync.errors import InputError
from nftsync.records import look_alike
from nftsync.store.database import Queryable
from nftsync.text import quoted, seen_line, short_id, without_controls

#: Addresses of Ethereum have 40 digits. Those of Starknet, Aptos and Sui have up to 64, and their
#: leading zeros mean nothing.
_HEX_ADDRESS = re.compile("0[xX][0-9a-fA-F]{1,64}")
_WITH_ZEROS = len("0x") + 40


def is_hex_address(address: str) -> bool:
    """Return whether an address is `0x` and 40 to 64 hex digits, whose case is only a checksum."""
    return len(address) >= _WITH_ZEROS and _HEX_ADDRESS.fullmatch(address) is not None


def contract_key(address: str) -> str:
    """Return one spelling for all spellings of an address.

    Hex addresses are in lower case and, unless they have 40 digits, without leading zeros.
    """
    if _HEX_ADDRESS.fullmatch(address) is None:
        return address
    return address.lower() if len(address) == _WITH_ZEROS else hex(int(address, 16))


def short_address(contract: str) -> str:
    """Shorten an address of more than 20 characters: `0x8f4f…8e63`."""
    return short_id(contract, head=6)


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
    """Return a token's name without the number at its end; None without a number."""
    number = _NUMBER.search(name)
    between = number and _BETWEEN.match(name[: number.end("before")])
    return between["series"] if between else None


#: Tokens of a contract, the earliest first, whose names suggest the collection's name.
SAMPLE = 200
#: Minimum number and share of tokens for a guess.
_FEWEST, _SHARE = 5, 0.8
_LONGEST_NAME = 100


def guess_name(names: Sequence[str | None]) -> str | None:
    """Guess a collection's name from its tokens' names, or return None.

    The guess is the series of nearly all tokens, or their one name unless its number is 1.
    """
    by_series: dict[str, list[str]] = {}
    for name in names:
        whole = "" if name is None or len(name) > _LONGEST_NAME else without_controls(name)
        series = series_of(whole)
        by_series.setdefault(whole if series is None else series, []).append(whole)
    for series, wholes in by_series.items():
        if series and len(wholes) >= max(_FEWEST, _SHARE * len(names)):
            number = _NUMBER.search(wholes[0])
            is_first = number is not None and number["number"] == "1"
            return series if is_first or len(set(wholes)) > 1 else wholes[0]
    return None


def nft_name(
    name: str | None, collection: str | None, blockchain_token_id: str | None, token_id: str
) -> str:
    """Return the one name of an NFT: its own, or its collection and `#` with its on-chain id.

    The short token id replaces a missing on-chain id or contract.
    """
    if own := seen_line(name, _LONGEST_NAME):
        return own
    if not (group := seen_line(collection, _LONGEST_NAME)):
        return short_id(token_id)
    on_chain = seen_line(blockchain_token_id, _LONGEST_NAME)
    return f"{group} #{short_id(on_chain)}" if on_chain else f"{group} {short_id(token_id)}"


def name_new_tokens(connection: sqlite3.Connection, after: int, until: int) -> None:
    rows = connection.execute(
        "SELECT token_no, contract_address FROM tokens WHERE token_no > ? AND token_no <= ?"
        " ORDER BY token_no",
        (after, until),
    )
    name_contracts(connection, rows.fetchall())


def name_contracts(
    connection: sqlite3.Connection, tokens: Iterable[tuple[int, str | None]]
) -> None:
    """Guess the names of contracts whose first tokens are new or changed.

    A token has its number, and its present or former contract's address.
    """
    by_address: dict[str, list[int]] = {}
    for number, address in tokens:
        if address is not None:
            by_address.setdefault(address, []).append(number)
    guesses = {}
    for address, numbers in by_address.items():
        key = contract_key(address)
        rows = connection.execute("SELECT token_no FROM sampled_tokens WHERE contract = ?", (key,))
        sampled = {row[0] for row in rows}
        added = numbers[: SAMPLE - len(sampled)]
        if added or not sampled.isdisjoint(numbers):
            connection.executemany(
                "INSERT OR IGNORE INTO sampled_tokens (contract, token_no) VALUES (?, ?)",
                [(key, number) for number in added],
            )
            sample = connection.execute(
                "SELECT contract_address, name FROM sampled_tokens s JOIN tokens t USING (token_no)"
                " WHERE s.contract = ? AND t.contract = s.contract ORDER BY token_no",
                (key,),
            ).fetchall()
            spelled = sample[0][0] if sample else address
            guesses[key] = key, spelled, guess_name([name for _, name in sample])
    store_guesses(connection, guesses.values())


def store_guesses(
    connection: sqlite3.Connection, guesses: Iterable[tuple[str, str, str | None]]
) -> None:
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, guessed_name) VALUES (?, ?, ?)"
        " ON CONFLICT (contract) DO UPDATE SET contract_address = excluded.contract_address,"
        " guessed_name = excluded.guessed_name",
        guesses,
    )


#: A contract, its address, and its name in the collections file, or None to remove it.
FileName: TypeAlias = tuple[str, str, str | None]


def names_that_differ(connection: sqlite3.Connection, names: Mapping[str, str]) -> list[FileName]:
    """Return what the collections file (names by address) adds, changes or removes."""
    file = {contract_key(address): (address, name) for address, name in names.items()}
    rows = connection.execute(
        "SELECT contract, contract_address, file_name FROM contracts WHERE file_name IS NOT NULL"
    ).fetchall()
    before = {key: name for key, _, name in rows}
    new: list[FileName] = [(key, *x) for key, x in file.items() if before.get(key) != x[1]]
    return new + [(key, address, None) for key, address, _ in rows if key not in file]


def store_file_names(connection: sqlite3.Connection, names: Iterable[FileName]) -> None:
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, file_name) VALUES (?, ?, ?)"
        " ON CONFLICT (contract) DO UPDATE SET file_name = excluded.file_name",
        names,
    )


def label_contract(connection: sqlite3.Connection, address: str, name: str) -> None:
    """Set a known contract's label; an empty one removes it."""
    done = connection.execute(
        "UPDATE contracts SET given_name = nullif(?, '') WHERE contract = ?",
        (name, contract_key(address)),
    )
    if not done.rowcount:
        raise unknown_contract(connection, address)


def unknown_contract(database: Queryable, named: str) -> InputError:
    rows = database.execute("SELECT contract, contract_address, name FROM contracts").fetchall()
    return InputError(
        f"unknown collection or contract {quoted(named)}{look_alike(named)}"
        f"{near_contracts(rows, named)}; to list collections: `nftsync collections`"
    )


def near_contracts(rows: Iterable[tuple[str, str, str | None]], wanted: str) -> str:
    shown: dict[str, str] = {}
    for contract, address, name in rows:
        shown |= {contract.lower(): address, (name or address).lower(): name or address}
    near = get_close_matches(wanted.lower(), shown, n=3)
    return f"; similar: {', '.join(repr(shown[key]) for key in near)}" if near else ""
