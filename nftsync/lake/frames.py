"""Tables of a lake as Dask DataFrames; each partition is one bucket of the lake.

Partitions have the columns, and functions the parameters, of `nftsync.frames`. Amounts are always
Python integers. `wallet` is distinct within a bucket, which does not know the labels of others.
Creating a frame pins its versions; later runs do not change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from nftsync import frames
from nftsync.columnar.filters import Moment, stored_time
from nftsync.columnar.holdings import read_holdings
from nftsync.columnar.source import reading
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import explained
from nftsync.lake.rows import chosen, mirror_of, to_mirror
from nftsync.lake.storage import Lake, Versions
from nftsync.store.mirror import Mirror

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd


#: A folder, or an address that Delta knows.
LakeAddress: TypeAlias = "str | os.PathLike[str]"

#: Tables of a bucket's mirror for each frame, in the order of their references.
_HOLDINGS = ("contracts", "wallets", "known_tokens", "balances")
_CHANGES = ("contracts", "wallets", "known_tokens", "balance_changes")
_HOLDINGS_AS_OF = (*_CHANGES, "present_states", "past_states")


@dataclass(frozen=True)
class Pinned:
    """Versions that a frame reads.

    `moment` is the requested time (None: all times, or now), and `problem` damage of the ledger.
    """

    url: str
    run: LakeRun
    versions: Versions
    moment: str | None = None
    problem: str | None = None

    @property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.url)

    @contextmanager
    def mirror(
        self, bucket: int, names: Sequence[str], only: dict[str, str] | None = None
    ) -> Iterator[Mirror]:
        """Copy tables of a bucket into a mirror for a block.

        The tables are in the order of their references.
        """
        copy = mirror_of(self.lake, self.versions, bucket, names, only=only)
        with explained(self.url), copy as mirror:
            if self.moment is not None:  # `as_of` times must not be later than the last run
                with mirror.transaction():
                    mirror.connection.execute(
                        "INSERT INTO sync_runs (kind, status, started_at, finished_at)"
                        " VALUES ('sync', 'ok', ?1, ?1)",
                        (self.run.finished_at,),
                    )
            yield mirror

    def add_token_changes(self, mirror: Mirror) -> None:
        """Add the changes of a mirror's tokens, which other buckets may contain."""
        tokens = mirror.connection.execute("SELECT token_id FROM tokens")
        ids = pa.array([row[0] for row in tokens], pa.string())
        batches = self.lake.stored("token_changes", self.versions)
        changes = (chosen(batch, "token_id", ids) for batch in batches)
        with mirror.transaction():
            to_mirror(mirror.connection, "token_changes", changes)


def pinned(lake: LakeAddress, run: int | None = None) -> Pinned:
    """Return the versions that a run pinned."""
    url = os.fspath(lake)
    with explained(url):
        tables = Lake(url)
        ledger = Ledger(tables)
        pinned_run = ledger.finished(run)
    # The root, as workers may be in another folder.
    return Pinned(tables.root, pinned_run, pinned_run.versions or {}, problem=ledger.problem)


def versions(lake: LakeAddress, run: int | None = None) -> Versions:
    """Return the table versions that a run pinned."""
    return dict(pinned(lake, run).versions)


def holdings(
    lake: LakeAddress, as_of: Moment | None = None, run: int | None = None
) -> dd.DataFrame:
    """Return wallets' holdings: a row per listed wallet and token, including zero amounts.

    Each wallet is in one partition. Selected columns are read without the others.
    """
    return _frame(_holdings_of, _at(pinned(lake, run), as_of, "end"))


def tokens(lake: LakeAddress, as_of: Moment | None = None, run: int | None = None) -> dd.DataFrame:
    """Return all tokens ever seen, once each."""
    return _frame(_tokens_of, _at(pinned(lake, run), as_of, "end"))


def changes(lake: LakeAddress, run: int | None = None, since: Moment | None = None) -> dd.DataFrame:
    """Return the change feed; each partition is sorted by time."""
    return _frame(_changes_of, _at(pinned(lake, run), since, "start"))


def _at(pin: Pinned, moment: Moment | None, edge: Any) -> Pinned:
    if moment is None:
        return pin
    empty = replace(pin, moment="", versions={})
    with empty.mirror(0, ()) as mirror, reading(mirror.connection) as source:
        return replace(pin, moment=stored_time(source, moment, edge))


def _frame(function: Callable[..., pd.DataFrame], pin: Pinned) -> dd.DataFrame:
    import dask
    import dask.dataframe as dd  # takes a second

    # Dask's own text type has another missing value, and would convert amounts.
    with dask.config.set({"dataframe.convert-string": False}):
        frame: dd.DataFrame = dd.from_map(
            function,
            range(pin.run.buckets),
            pin=pin,
            meta=function(0, replace(pin, versions={})),
            label=f"nftsync{function.__name__.removesuffix('_of')}",
        )
    return frame


# What workers do ----------------------------------------------------------------------------------


def _holdings_of(bucket: int, pin: Pinned, columns: list[str] | None = None) -> pd.DataFrame:
    names = _HOLDINGS if pin.moment is None else _HOLDINGS_AS_OF
    with pin.mirror(bucket, names) as mirror:
        if pin.moment is not None:
            pin.add_token_changes(mirror)
        frame = read_holdings(mirror.connection, as_of=pin.moment, amounts="exact", needs=columns)
    return frame if columns is None else frame.loc[:, columns]


def _tokens_of(bucket: int, pin: Pinned) -> pd.DataFrame:
    names = ("contracts", "tokens", *(() if pin.moment is None else ("token_changes",)))
    with pin.mirror(bucket, names) as mirror:
        return frames.tokens(mirror.connection, as_of=pin.moment)


def _changes_of(bucket: int, pin: Pinned) -> pd.DataFrame:
    only = None if pin.moment is None else {"balance_changes": f"observed_at >= '{pin.moment}'"}
    with pin.mirror(bucket, _CHANGES, only) as mirror:
        return frames.changes(mirror.connection, amounts="exact")
