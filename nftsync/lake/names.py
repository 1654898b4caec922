"""Names of contracts, guessed from samples of the tokens of all buckets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import TypeAlias
from uuid import uuid4

import msgspec

from nftsync.lake.manifest import MANIFESTS, Manifest, Names, NamesByContract
from nftsync.lake.storage import Lake
from nftsync.store.contracts import SAMPLE, contract_key, guess_name

#: Some tokens by contract: the address as sent, and each token's id and name.
Samples: TypeAlias = dict[str, list[tuple[str, str, str | None]]]

_TOUCHED = """
    WITH touched AS (
        SELECT contract FROM tokens WHERE first_seen_at >= ?1
        UNION SELECT contract FROM tokens WHERE token_no IN (
            SELECT token_no FROM token_change_rows WHERE change_id > ?2
            AND coalesce(before -> 'name', before -> 'contract_address') IS NOT NULL))
    SELECT contract, contract_address, token_id, name FROM (
        SELECT contract, contract_address, token_id, name,
            row_number() OVER (PARTITION BY contract ORDER BY token_id) AS place
        FROM tokens WHERE contract IN (SELECT contract FROM touched))
    WHERE place <= ?3
"""
_decode = msgspec.msgpack.Decoder(Samples).decode
#: Tokens of a contract that each of many buckets reports: all 200 of each would be most of a lake.
_FEWEST = 20


def samples_of(
    connection: sqlite3.Connection, since: str, token_change: int, buckets: int
) -> Samples:
    """Return samples of the contracts with new tokens, or new names, after a run's start."""
    samples: Samples = {}
    most = max(_FEWEST, SAMPLE // buckets)
    for contract, *token in connection.execute(_TOUCHED, (since, token_change, most)):
        samples.setdefault(contract, []).append(tuple(token))
    return samples


def name_contracts(
    lake: Lake,
    manifest: Manifest,
    samples: Iterable[Samples],
    file_names: Mapping[str, str] | None = None,
) -> None:
    """Merge samples into a manifest's, and name their contracts.

    `file_names` are the names in the collections file, by address; None: unchanged.
    """
    new: Samples = {}
    for some in samples:
        for contract, tokens in some.items():
            new.setdefault(contract, []).extend(tokens)
    names: NamesByContract = dict(manifest.names)
    if new:
        known = {} if manifest.samples is None else _decode(lake.read(manifest.samples))
        for contract, tokens in new.items():
            by_id = {token: (address, name) for address, token, name in known.get(contract, ())}
            by_id |= {token: (address, name) for address, token, name in tokens}
            sample = [(by_id[x][0], x, by_id[x][1]) for x in nsmallest(SAMPLE, by_id)]
            known[contract] = sample
            before = names.get(contract, Names(sample[0][0]))
            guess = guess_name([name for _, _, name in sample])
            names[contract] = Names(sample[0][0], before.given, before.file, guess)
        packed = msgspec.msgpack.encode(known)
        manifest.samples = lake.write(f"{MANIFESTS}/names-{uuid4().hex}", packed)
    if file_names is not None:
        named = {contract_key(address): (address, x) for address, x in file_names.items()}
        for contract in names.keys() | named.keys():
            address, name = named.get(contract, ("", None))
            before = names.get(contract, Names(address))
            names[contract] = Names(before.address, before.given, name, before.guessed)
    manifest.names = names


def put_names(connection: sqlite3.Connection, names: NamesByContract) -> None:
    """Name the contracts of a bucket's tokens, and forget other names."""
    contracts = [row[0] for row in connection.execute("SELECT DISTINCT contract FROM tokens")]
    put_all_names(connection, {x: names[x] for x in contracts if x in names})


def put_all_names(connection: sqlite3.Connection, names: NamesByContract) -> None:
    connection.execute("DELETE FROM contracts")
    connection.executemany(
        "INSERT INTO contracts (contract, contract_address, given_name, file_name, guessed_name)"
        " VALUES (?, ?, ?, ?, ?)",
        [(contract, of.address, of.given, of.file, of.guessed) for contract, of in names.items()],
    )
