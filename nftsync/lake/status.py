"""The state of a lake: freshness, size, and removals held for review."""

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
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.rows import BUCKET
from nftsync.store.removals import Held, held_rows
from nftsync.store.wallets import ids_named

if TYPE_CHECKING:
    import pandas as pd


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
    return what.lake.rows("wallets", what.versions["wallets"], "label IS NOT NULL", columns)


def _raw_rows(what: Pinned, wallets: Collection[str] | None) -> Iterator[tuple[Any, ...]]:
    if "removals" in what.versions:
        some = None if wallets is None else set(wallets)
        rows = what.lake.rows("removals", what.versions["removals"], "held <> 0", _COLUMNS)
        yield from (row for row in rows if some is None or row[0] in some)


def _rows_of(what: Pinned, bucket: int, wallets: list[str] | None) -> list[dict[str, Any]]:
    with what.mirror(bucket, _TABLES) as mirror:
        return list(held_rows(mirror.connection, wallets))


def freshness(lake: LakeAddress, run: int | None = None) -> pd.DataFrame:
    """How fresh a lake is: what was read last, what was not, and what waits.

    Args:
        lake: a folder, or an address that Delta knows.
        run: read what this run pinned; None: the last one that finished.

    Returns:
        What `frames.freshness` does of the same rows in the same order.

    Raises:
        InputError: there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    what = pinned(lake, run)
    return _freshness(what, _runs_until(what, run))


def _freshness(what: Pinned, runs: list[LakeRun]) -> pd.DataFrame:
    groups = compute(*(delayed(_groups_of)(what, bucket) for bucket in range(what.buckets)))
    with what.mirror(0, ("webhooks",), {"webhooks": "state != 'done'"}) as mirror:
        with mirror.transaction():
            put_runs(mirror.connection, runs)
        with reading(mirror.connection) as source:
            return freshness_frame(source, merge_groups(groups))


def _runs_until(what: Pinned, run: int | None) -> list[LakeRun]:
    with explained(what.url):
        return [each for each in Ledger(what.lake).runs() if run is None or each.run_id <= run]


def _groups_of(what: Pinned, bucket: int) -> list[WalletGroup]:
    with (
        what.mirror(bucket, ("wallets",), {"wallets": "tracked != 0"}) as mirror,
        reading(mirror.connection) as source,
    ):
        return wallet_groups(source)


class TableSize(msgspec.Struct):
    """A table at the version that is read.

    Attributes:
        name: the table.
        version: the version that the run pinned.
        rows: how many it has.
        files: of how many files.
        bytes: their size.
    """

    name: str
    version: int
    rows: int
    files: int
    bytes: int


class LakeStatus(msgspec.Struct):
    """How things stand in a lake.

    Attributes:
        lake: its folder or address.
        buckets: into how many it is divided.
        run: the run that is read.
        freshness: the rows of `freshness`, without ages.
        removals_held: the removals held for review.
        tables: what there is of each table.
        problem: a damage of the ledger, or None.
    """

    lake: str
    buckets: int
    run: int
    freshness: list[dict[str, Any]]
    removals_held: Held
    tables: list[TableSize]
    problem: str | None = None


def status_of(lake: LakeAddress) -> LakeStatus:
    """Tell how things stand in a lake, by the last run that finished.

    Raises:
        InputError: no run has finished.
        StoreError: there is no lake, or it cannot be read.
    """
    what = pinned(lake)
    fresh = _freshness(what, _runs_until(what, None))
    rows = records_of(fresh, ("what", "count", "at", "detail"))
    with explained(what.url):
        tables = [_size(what, name) for name in what.versions]
        held = count_held(what)
    return LakeStatus(what.url, what.buckets, what.run_id, rows, held, tables, what.problem)


def _size(what: Pinned, name: str) -> TableSize:
    version = what.versions[name]
    files = what.lake.look(name, version).get_add_actions(flatten=True)
    sizes, rows = (files.column(each).to_pylist() for each in ("size_bytes", "num_records"))
    return TableSize(name, version, sum(rows), len(sizes), sum(sizes))
