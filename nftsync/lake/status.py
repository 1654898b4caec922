"""Status of a lake."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from dask.base import compute
from dask.delayed import delayed

from nftsync.columnar.columns import records_of
from nftsync.columnar.freshness import WalletGroup, freshness_frame, merge_groups, wallet_groups
from nftsync.columnar.source import reading
from nftsync.lake.copies import put_runs
from nftsync.lake.frames import LakeAddress, Pinned, pinned
from nftsync.lake.ledger import Ledger
from nftsync.lake.reasons import explained
from nftsync.lake.rows import BUCKET
from nftsync.store.removals import Held, Review, held_rows
from nftsync.store.wallets import ids_named

if TYPE_CHECKING:
    import pandas as pd


_TABLES = ("contracts", "wallets", "known_tokens", "removals")
_COLUMNS = ("wallet_id", "token_id", "old_amount", "emptied", "observed_at", BUCKET)


def find_held(lake: LakeAddress, names: Sequence[str] = ()) -> Review:
    """Return the removals held for review after the last finished run."""
    pin = pinned(lake)
    with explained(pin.url):
        wallets = ids_named(names, lambda: _labels(pin)) if names else None
        raw_rows = list(_raw_rows(pin, wallets))
        buckets = sorted({row[-1] for row in raw_rows})
        tasks = [delayed(_rows_of)(pin, bucket, wallets) for bucket in buckets]
        rows = [row for bucket_rows in compute(*tasks) for row in bucket_rows]
        counts = _counts_of(raw_rows)
        balances = pin.lake.count("balances", pin.versions)
    rows.sort(key=lambda row: (row["observed_at"], row["wallet_id"] or "", row["token_id"]))
    return Review(wallets, counts, rows, balances)


def _counts_of(rows: list[tuple[Any, ...]]) -> Held:
    return Held(
        wallets=len({wallet for wallet, *_ in rows} - {""}),
        balances=sum(amount is not None for _, _, amount, *_ in rows),
        emptied=len({token for _, token, amount, emptied, *_ in rows if emptied or amount is None}),
        since=min((at for *_, at, _ in rows), default=None),
    )


def _labels(pin: Pinned) -> Iterator[tuple[str, str]]:
    columns = ("wallet_id", "label")
    return pin.lake.rows("wallets", pin.versions, "label IS NOT NULL", columns)


def _raw_rows(pin: Pinned, wallets: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    some = None if wallets is None else set(wallets)
    rows = pin.lake.rows("removals", pin.versions, "held <> 0", _COLUMNS)
    return (row for row in rows if some is None or row[0] in some)


def _rows_of(pin: Pinned, bucket: int, wallets: list[str] | None) -> list[dict[str, Any]]:
    with pin.mirror(bucket, _TABLES) as mirror:
        return list(held_rows(mirror.connection, wallets))


def freshness(lake: LakeAddress, run: int | None = None) -> pd.DataFrame:
    """Return the freshness of a lake: last reads, stale wallets and pending work.

    Equals the result of `frames.freshness` on the same rows.
    """
    return _freshness(pinned(lake, run), run)


def _freshness(pin: Pinned, run: int | None = None) -> pd.DataFrame:
    with explained(pin.url):
        runs = [x for x in Ledger(pin.lake).runs() if run is None or x.run_id <= run]
    groups = compute(*(delayed(_groups_of)(pin, bucket) for bucket in range(pin.run.buckets)))
    with pin.mirror(0, ("webhooks",), {"webhooks": "state != 'done'"}) as mirror:
        with mirror.transaction():
            put_runs(mirror.connection, runs)
        with reading(mirror.connection) as source:
            return freshness_frame(source, merge_groups(groups))


def _groups_of(pin: Pinned, bucket: int) -> list[WalletGroup]:
    with (
        pin.mirror(bucket, ("wallets",), {"wallets": "tracked != 0"}) as mirror,
        reading(mirror.connection) as source,
    ):
        return wallet_groups(source)


class TableSize(msgspec.Struct):
    """Size of a table at its pinned version; `bytes` of the files."""

    name: str
    version: int
    rows: int
    files: int
    bytes: int


class LakeStatus(msgspec.Struct):
    """Status of a lake."""

    lake: str
    buckets: int
    run: int
    freshness: list[dict[str, Any]]
    removals_held: Held
    tables: list[TableSize]
    problem: str | None = None


def status_of(lake: LakeAddress) -> LakeStatus:
    """Return the status of a lake after the last finished run."""
    pin = pinned(lake)
    rows = records_of(_freshness(pin), ("what", "count", "at", "detail"))
    with explained(pin.url):
        sizes = list(_sizes(pin))
        removals = _counts_of(list(_raw_rows(pin, None)))
    return LakeStatus(pin.url, pin.run.buckets, pin.run.run_id, rows, removals, sizes, pin.problem)


def _sizes(pin: Pinned) -> Iterator[TableSize]:
    lake = pin.lake
    for name, version in pin.versions.items():
        rows, files = lake.count(name, pin.versions), lake.data_files(name, version)
        yield TableSize(name, version, rows, len(files), sum(files.values()))
