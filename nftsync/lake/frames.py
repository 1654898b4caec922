"""Tables of a lake as Dask DataFrames.

Partitions have the columns of `nftsync.frames`, and are one bucket each, except for `tokens`,
`quality` and `transfers`, which need all buckets. Amounts are always Python integers. `wallet` is
distinct within a bucket, which does not know the labels of others. Hidden tokens are not left out.
Creating a frame pins its run; later runs do not change it.
"""

from __future__ import annotations

import sqlite3
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd

from nftsync import frames
from nftsync.columnar.filters import Moment, stored_time
from nftsync.columnar.holdings import read_holdings
from nftsync.columnar.source import reading
from nftsync.errors import NftsyncWarning
from nftsync.lake.bucket import scratch_folder
from nftsync.lake.merging import CHOSEN, RANKED, join_buckets
from nftsync.lake.pinned import LakeAddress, Pinned, new_database, pinned
from nftsync.store.database import connect_existing
from nftsync.store.history import whole_time
from nftsync.store.wallets import GroupNames, WalletIds

if TYPE_CHECKING:
    import dask.dataframe as dd

#: Bytes of databases that a process keeps.
_KEPT = 2 << 30
#: The tables that show transfers.
_MOVED = {
    "wallets": "true",
    "tokens": CHOSEN,
    "wallet_state_rows": "true",
    "balance_change_rows": "NOT baseline",
}
_MOVED_TOKENS = "token_no IN (SELECT token_no FROM part.balance_change_rows WHERE NOT baseline)"


def versions(lake: LakeAddress, run: int | None = None) -> dict[str, int]:
    """Return the versions of the published tables that a run pinned."""
    tables = pinned(lake, run).manifest.tables
    return {name: table.version for name, table in tables.items()}


def holdings(
    lake: LakeAddress, as_of: Moment | None = None, run: int | None = None
) -> dd.DataFrame:
    """Return wallets' holdings: a row per listed wallet and token, including zero amounts.

    Each wallet is in one partition. Selected columns are read without the others.
    """
    pin = pinned(lake, run)
    return _mapped(_holdings_of, pin, as_of=_time(pin, as_of, "end"))


def tokens(lake: LakeAddress, as_of: Moment | None = None, run: int | None = None) -> dd.DataFrame:
    """Return all tokens ever seen, once each."""
    pin = pinned(lake, run)
    rows = _mapped(_tokens_of, pin, as_of=_time(pin, as_of, "end"))
    by_token = rows.shuffle("token_id", npartitions=pin.run.buckets)
    with _no_conversion():
        frame: dd.DataFrame = by_token.map_partitions(_best_rows, meta=_best_rows(rows._meta))
    return frame


def changes(
    lake: LakeAddress,
    run: int | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> dd.DataFrame:
    """Return the change feed; each partition is sorted by time."""
    return _each("changes", lake, run, since=since, until=until, amounts="exact")


def wallet_states(
    lake: LakeAddress,
    run: int | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> dd.DataFrame:
    """Return the distinct states that reads of wallets showed."""
    return _each("wallet_states", lake, run, since=since, until=until)


def holding_ages(
    lake: LakeAddress, at: Moment | None = None, run: int | None = None
) -> dd.DataFrame:
    """Return the age of each holding."""
    return _each("holding_ages", lake, run, at=at, amounts="exact", hidden=True)


def quality(lake: LakeAddress, run: int | None = None, **options: Any) -> dd.DataFrame:
    """Return tokens' missing or unusable content, each token's field once.

    `options` are `required`, `held_only`, `base_url` and `contract` of `frames.quality`.
    """
    found = _each("quality", lake, run, **options, hidden=True)
    distinct: dd.DataFrame = found.drop_duplicates(
        ["token_id", "field"], split_out=found.npartitions
    )
    return distinct


def transfers(
    lake: LakeAddress,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    run: int | None = None,
) -> dd.DataFrame:
    """Return the movements of NFTs, with the wallets on both sides, in one partition."""
    import dask.dataframe as dd

    pin = pinned(lake, run)
    span = {"start": _time(pin, start, "start"), "end": _time(pin, end, "end")}
    chosen = {"wallet": wallet, "group": group, "contract": contract, "exclude": exclude}
    with _no_conversion():
        frame: dd.DataFrame = dd.from_map(
            _transfers_of, [{**span, **chosen}], pin=pin, meta=_part(None, pin, "transfers", _EXACT)
        )
    return frame


_EXACT: dict[str, Any] = {"amounts": "exact", "hidden": True}
#: Times of options, and which end of a day they mean.
_EDGES = {"since": "start", "until": "end", "at": "end"}


def _each(name: str, lake: LakeAddress, run: int | None, **options: Any) -> dd.DataFrame:
    """Return a frame of `nftsync.frames`, with a partition per bucket."""
    pin = pinned(lake, run)
    for option in options.keys() & _EDGES:
        options[option] = _time(pin, options[option], _EDGES[option])
    return _mapped(_part, pin, name=name, options=options)


def _mapped(function: Callable[..., pd.DataFrame], pin: Pinned, **options: Any) -> dd.DataFrame:
    import dask.dataframe as dd  # takes a second

    with _no_conversion():
        frame: dd.DataFrame = dd.from_map(
            function,
            range(pin.run.buckets),
            pin=pin,
            **options,
            meta=function(None, pin, **options),
            label=f"nftsync{function.__name__.removesuffix('_of')}",
        )
    return frame


def _no_conversion() -> Any:
    """Keep Dask from its own text type, which has another missing value, and from amounts."""
    import dask

    return dask.config.set({"dataframe.convert-string": False})


def _time(pin: Pinned, moment: Moment | None, edge: Any) -> str | None:
    if moment is None:
        return None
    with bucket_database(pin, None) as connection, reading(connection) as source:
        return stored_time(source, moment, edge)


# What workers do ----------------------------------------------------------------------------------


def _part(bucket: int | None, pin: Pinned, name: str, options: dict[str, Any]) -> pd.DataFrame:
    with bucket_database(pin, bucket) as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore", NftsyncWarning)  # of one bucket
        frame: pd.DataFrame = getattr(frames, name)(connection, **options)
    return frame


def _holdings_of(
    bucket: int | None, pin: Pinned, as_of: str | None, columns: list[str] | None = None
) -> pd.DataFrame:
    with bucket_database(pin, bucket) as connection, reading(connection) as source:
        moment = None if as_of is None else whole_time(source.cursor, as_of)
        frame = read_holdings(source, as_of=moment, amounts="exact", needs=columns)
    return frame if columns is None else frame.loc[:, columns]


#: Columns that order rows of a token, and whether the lowest value is best.
_RANK = {"usable": False, "confirmed": False, "bucket": True}


def _tokens_of(bucket: int | None, pin: Pinned, as_of: str | None) -> pd.DataFrame:
    with bucket_database(pin, bucket) as connection:
        frame = frames.tokens(connection, as_of=as_of)
        rows = connection.execute(RANKED.format("main")).fetchall()
    ranks = {token_id: (usable, confirmed) for token_id, usable, confirmed, _ in rows}
    own = np.array([ranks[x] for x in frame["token_id"]], dtype=np.int64).reshape(-1, 2)
    return frame.assign(usable=own[:, 0], confirmed=own[:, 1], bucket=bucket or 0)


def _best_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return each token's best row, with the times of all."""
    rows = rows.sort_values(list(_RANK), ascending=list(_RANK.values()))
    unchanged = rows["updated_at"] == rows["first_seen_at"]
    changed = rows.assign(updated_at=rows["updated_at"].mask(unchanged)).groupby("token_id")
    seen = changed["first_seen_at"].transform("min")
    rows = rows.assign(
        first_seen_at=seen, updated_at=changed["updated_at"].transform("max").fillna(seen)
    )
    return rows.drop_duplicates("token_id", ignore_index=True).drop(columns=list(_RANK))


def _transfers_of(options: dict[str, Any], pin: Pinned) -> pd.DataFrame:
    with new_database(pin) as connection:
        join_buckets(connection, pin, _MOVED, _MOVED_TOKENS)
        return frames.transfers(connection, **options, **_EXACT)


# Databases of buckets, kept for the next frame ----------------------------------------------------

_lock = threading.Lock()
_databases: OrderedDict[tuple[str, str, int | None], Path] = OrderedDict()


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return the folder of this process, which is removed at its exit."""
    return TemporaryDirectory(prefix="nftsync-", dir=scratch_folder(), ignore_cleanup_errors=True)


@contextmanager
def bucket_database(pin: Pinned, bucket: int | None) -> Iterator[sqlite3.Connection]:
    """Open a bucket's database for reading; None: an empty one."""
    key = pin.url, pin.file.name, bucket
    with _lock:
        if key not in _databases:
            path = Path(_folder().name, f"{uuid4().hex}.db")
            pin.open(bucket, path)
            _databases[key] = path
            _forget_oldest()
        _databases.move_to_end(key)
        connection = connect_existing(_databases[key], "ro")
        # From here on, the database may be removed.
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    with closing(connection):
        yield connection


def _forget_oldest() -> None:
    sizes = {key: path.stat().st_size for key, path in _databases.items()}
    while sum(sizes.values()) > _KEPT and len(sizes) > 1:
        key, path = _databases.popitem(last=False)
        path.unlink()
        del sizes[key]
