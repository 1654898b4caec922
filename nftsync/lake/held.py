"""The removals that a lake holds for review."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec
from dask.base import compute
from dask.delayed import delayed

from nftsync.lake.frames import LakeAddress, Pinned, pinned
from nftsync.lake.reasons import explained
from nftsync.lake.rows import BUCKET
from nftsync.store.held_back import Held, held_rows
from nftsync.store.wallets import ids_named

_TABLES = ("contracts", "wallets", "known_tokens", "removals")
_COLUMNS = ("wallet_id", "token_id", "old_amount", "emptied", "observed_at", BUCKET)


class HeldInLake(msgspec.Struct, frozen=True):
    """The removals that a lake holds for review, of all wallets or of some.

    Attributes:
        wallets: the ids of these wallets; None: all.
        counts: how many removals there are.
        rows: a row per wallet and token, with the columns that `nftsync removals` shows.
        share: their share of all holdings.
    """

    wallets: list[str] | None
    counts: Held
    rows: list[dict[str, Any]]
    share: float


def find_held(lake: LakeAddress, names: Sequence[str] = ()) -> HeldInLake:
    """Find the removals that a lake holds for review, by its last finished run.

    Args:
        lake: a folder, or an address that Delta knows.
        names: wallets by their ids or labels; none: all.

    Raises:
        InputError: a label is not that of one wallet, or no run has finished.
        StoreError: there is no lake, or it cannot be read.
    """
    what = pinned(lake)
    with explained(what.url):
        wallets = ids_named(names, lambda: _labels(what)) if names else None
        buckets = {row[-1] for row in _raw_rows(what, wallets)}
        tasks = [delayed(_rows_of)(what, bucket, wallets) for bucket in sorted(buckets)]
        rows = [row for found in compute(*tasks) for row in found]
        counts = count_held(what, wallets)
        balances = what.lake.count("balances", what.versions)
    rows.sort(key=lambda row: (row["observed_at"], row["wallet_id"] or "", row["token_id"]))
    share = counts.balances / balances if balances else 0.0
    return HeldInLake(wallets, counts, rows, share)


def count_held(what: Pinned, wallets: Collection[str] | None = None) -> Held:
    """Count the removals held for review, of all wallets or of some."""
    rows = list(_raw_rows(what, wallets))
    return Held(
        wallets=len({wallet for wallet, *_ in rows} - {""}),
        balances=sum(amount is not None for _, _, amount, *_ in rows),
        emptied=len({token for _, token, amount, emptied, *_ in rows if emptied or amount is None}),
        since=min((at for *_, at, _ in rows), default=None),
    )


def _labels(what: Pinned) -> Iterator[tuple[str, str]]:
    columns = ("wallet_id", "label")
    for batch in what.lake.batches(
        "wallets", what.versions["wallets"], "label IS NOT NULL", columns
    ):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _raw_rows(what: Pinned, wallets: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    some = None if wallets is None else set(wallets)
    if "removals" in what.versions:
        version = what.versions["removals"]
        for batch in what.lake.batches("removals", version, "held <> 0", _COLUMNS):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if some is None or row[0] in some:
                    yield row


def _rows_of(what: Pinned, bucket: int, wallets: list[str] | None) -> list[dict[str, Any]]:
    with what.mirror(bucket, _TABLES) as mirror:
        return list(held_rows(mirror.connection, wallets))
