"""The contracts that tokens name, and what they are called.

A name that was given goes before one of the collections file, and that before one that is guessed
from the names of the contract's tokens.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

import msgspec

from nftsync.contracts import NamesSeen, contract_key
from nftsync.errors import InputError
from nftsync.store.database import over_keys

__all__ = [
    "FileName",
    "count_names",
    "label_contract",
    "names_that_differ",
    "near_contracts",
    "store_file_names",
    "take_in_contracts",
]


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
    keys = {address: contract_key(address) for address in names}
    rows = over_keys(
        connection,
        "SELECT contract, contract_address, names_seen FROM json_each(?) k"
        " JOIN contracts c ON c.contract = k.value",
        set(keys.values()),
    )
    known: dict[str, tuple[str, NamesSeen | None]] = {
        key: (address, None if seen is None else _decode(seen)) for key, address, seen in rows
    }
    for address, (added, removed) in names.items():
        first, seen = known.get(keys[address], (address, None))
        if seen is None:  # until a token names it, the spelling is another's
            first, seen = address, NamesSeen()
        known[keys[address]] = first, seen
        for name in removed:
            seen.remove(name)
        for name in added:
            seen.add(name)
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, guessed_name, names_seen)"
        " VALUES (?, ?, ?, ?) ON CONFLICT (contract) DO UPDATE SET"
        " contract_address = excluded.contract_address, guessed_name = excluded.guessed_name,"
        " names_seen = excluded.names_seen",
        [
            (key, address, seen.guess(), msgspec.json.encode(seen).decode())
            for key, (address, seen) in known.items()
            if seen
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
    )
    before = {key: (address, name) for key, address, name in rows}
    gone = [(key, address, None) for key, (address, _) in before.items() if key not in file]
    return gone + [
        (key, address, name)
        for key, (address, name) in file.items()
        if before.get(key, (None, None))[1] != name
    ]


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
