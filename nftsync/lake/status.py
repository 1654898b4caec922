"""Status of a lake, from the manifest of its last finished run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nftsync.columnar.columns import records_of
from nftsync.columnar.freshness import freshness_frame
from nftsync.columnar.source import reading
from nftsync.errors import InputError
from nftsync.lake.frames import bucket_database
from nftsync.lake.manifest import BucketRows, PublishedTable
from nftsync.lake.pinned import LakeAddress, Pinned, new_database, pinned
from nftsync.store.contracts import contract_key
from nftsync.store.freshness import merge_groups, wallet_groups
from nftsync.store.removals import Held, Review
from nftsync.store.wallets import ids_named

if TYPE_CHECKING:
    import pandas as pd


def find_held(lake: LakeAddress, names: Sequence[str] = ()) -> Review:
    pin = pinned(lake)
    rows = [_named(pin, row) for row in _held_rows(pin)]
    # Not by time, as each bucket stores at its own.
    rows.sort(key=lambda row: (row["run_id"] or 0, row["wallet_id"] or "", row["token_id"]))
    balances = sum(entry.rows.held for entry in pin.manifest.buckets)
    if not names:
        return Review(None, _count(rows), rows, balances)
    labels = [(row["wallet_id"], row["wallet_label"]) for row in rows if row["wallet_label"]]
    try:
        wallets = ids_named(names, lambda: labels)
    except InputError:  # perhaps a wallet without held removals
        wallets = ids_named(names, lambda: _labels(pin))
    rows = [row for row in rows if row["wallet_id"] in wallets]
    return Review(wallets, _count(rows), rows, balances)


def _named(pin: Pinned, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the collection's name, which bucket files do not have."""
    names = pin.manifest.names.get(contract_key(row["contract_address"] or ""))
    name = names and (names.given or names.file or names.guessed)
    if name is None:
        return row
    nft = row["nft"] if row["name"] else row["nft"].replace(row["collection"], name, 1)
    return row | {"collection": name, "nft": nft}


def _held_rows(pin: Pinned) -> list[dict[str, Any]]:
    return [row for entry in pin.manifest.buckets for row in entry.removals]


def _count(rows: Sequence[dict[str, Any]]) -> Held:
    return Held(
        wallets=len({row["wallet_id"] for row in rows} - {None}),
        balances=sum(row["old_amount"] is not None for row in rows),
        emptied=len({x["token_id"] for x in rows if x["new_name"] or x["old_amount"] is None}),
        since=min((row["observed_at"] for row in rows), default=None),
    )


def _labels(pin: Pinned) -> Iterator[tuple[str, str]]:
    for bucket in range(pin.run.buckets):
        with bucket_database(pin, bucket) as connection:
            yield from connection.execute(
                "SELECT wallet_id, label FROM wallets WHERE label IS NOT NULL"
            )


def freshness(lake: LakeAddress, run: int | None = None) -> pd.DataFrame:
    """Return the freshness of a lake: last reads, stale wallets and pending work.

    Equals the result of `frames.freshness` on the same rows.
    """
    return _freshness(pinned(lake, run))


def _freshness(pin: Pinned) -> pd.DataFrame:
    manifest = pin.manifest
    with new_database(pin) as connection:
        for row in manifest.webhooks:
            columns, values = ", ".join(row), ", ".join("?" * len(row))
            query = f"INSERT INTO webhooks ({columns}) VALUES ({values})"
            connection.execute(query, list(row.values()))
        known = [entry.freshness for entry in manifest.buckets if entry.freshness]
        groups = merge_groups([wallet_groups(connection), *known])
        with reading(connection) as source:
            return freshness_frame(source, groups)


class LakeStatus(msgspec.Struct):
    """Status of a lake; `bytes` of all bucket files."""

    lake: str
    buckets: int
    bytes: int
    run: int
    freshness: list[dict[str, Any]]
    removals_held: Held
    rows: dict[str, int]
    tables: dict[str, PublishedTable]
    problem: str | None = None


def status_of(lake: LakeAddress) -> LakeStatus:
    pin = pinned(lake)
    entries, manifest = pin.manifest.buckets, pin.manifest
    rows = {
        x: sum(getattr(entry.rows, x) for entry in entries) for x in BucketRows.__struct_fields__
    }
    return LakeStatus(
        lake=pin.url,
        buckets=len(entries),
        bytes=sum(entry.file.size for entry in entries if entry.file),
        run=pin.run.run_id,
        freshness=records_of(_freshness(pin), ("what", "count", "at", "detail")),
        removals_held=_count(_held_rows(pin)),
        rows=rows | {"tokens": manifest.tokens},
        tables=manifest.tables,
        problem=pin.problem,
    )
