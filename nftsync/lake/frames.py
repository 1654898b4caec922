"""A lake's tables as Dask DataFrames, one partition per bucket.

A partition is what `nftsync.frames` makes of its bucket, so it has the same columns, whose amounts
are always Python integers. What is read is pinned when the frame is made: a run that ends later
changes nothing in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nftsync import frames
from nftsync.columnar.filters import Moment, stored_time
from nftsync.columnar.holdings import read_holdings
from nftsync.columnar.source import reading
from nftsync.lake.ledger import Ledger
from nftsync.lake.reasons import explained
from nftsync.lake.rows import BUCKET, mirror_of, to_mirror
from nftsync.lake.storage import Lake, Versions
from nftsync.store.mirror import Mirror

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd


#: A folder, or an address that Delta knows.
LakeAddress: TypeAlias = "str | os.PathLike[str]"

#: What a bucket's mirror has for each frame, in the order in which rows are put into it.
_HELD = ("contracts", "wallets", "known_tokens", "balances")
_CHANGED = ("contracts", "wallets", "known_tokens", "balance_changes")
_HELD_THEN = (*_CHANGED, "present_states", "past_states")


@dataclass(frozen=True)
class Pinned:
    """What a frame is read from.

    Attributes:
        url: the lake.
        run_id: the run that pinned it.
        versions: of each table.
        buckets: into how many the lake is divided.
        ended_at: when the run ended that pinned them: no time in them is later.
        moment: the time that was asked for, in the stored form; None: all, or now.
        problem: a damage of the ledger, or None.
    """

    url: str
    run_id: int
    versions: Versions
    buckets: int
    ended_at: str | None
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
        """Make some tables of a bucket a mirror, for a block.

        Args:
            bucket: which.
            names: the tables, each after those that it names rows of. `contracts` are those of all
                buckets.
            only: which rows of some of them, as a condition in SQL.
        """
        own = [name for name in names if name != "contracts"]
        with (
            explained(self.url),
            mirror_of(self.lake, self.versions, bucket, own, only=only) as mirror,
        ):
            with mirror.transaction():
                if len(own) < len(names):
                    self._add(mirror, "contracts", f"{BUCKET} = 0")
                if self.moment is not None:  # a time is known from one to come by the last known
                    mirror.connection.execute(
                        "INSERT INTO sync_runs (kind, status, started_at, finished_at)"
                        " VALUES ('sync', 'ok', ?1, ?1)",
                        (self.ended_at,),
                    )
            yield mirror

    def add_token_changes(self, mirror: Mirror) -> None:
        """Add the changes of the tokens that a mirror knows, which lie in the tokens' buckets."""
        known = pa.array(
            [row[0] for row in mirror.connection.execute("SELECT token_id FROM tokens")],
            pa.string(),
        )
        with mirror.transaction():
            self._add(mirror, "token_changes", "true", known)

    def _add(self, mirror: Mirror, name: str, where: str, ids: pa.Array | None = None) -> None:
        if name in self.versions:
            batches = self.lake.batches(name, self.versions[name], where)
            if ids is not None:
                batches = (
                    batch.filter(pc.is_in(batch.column("token_id"), value_set=ids))
                    for batch in batches
                )
            to_mirror(mirror.connection, name, batches)


def pinned(lake: LakeAddress, run: int | None = None) -> Pinned:
    """What a run has pinned.

    Args:
        lake: a folder, or an address that Delta knows.
        run: the number of the run; None: the last one that finished.

    Raises:
        InputError: there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    url = os.fspath(lake)
    with explained(url):
        tables = Lake(url)
        ledger = Ledger(tables)
        found = ledger.finished(run)
    return Pinned(
        tables.root,  # workers may be in another folder
        found.run_id,
        found.versions or {},
        found.buckets,
        found.finished_at,
        problem=ledger.problem,
    )


def versions(lake: LakeAddress, run: int | None = None) -> Versions:
    """The version of each table that a run has pinned, for others that read them.

    Args:
        lake: a folder, or an address that Delta knows.
        run: the number of the run; None: the last one that finished.

    Raises:
        InputError: there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    return dict(pinned(lake, run).versions)


def holdings(
    lake: LakeAddress, as_of: Moment | None = None, run: int | None = None
) -> dd.DataFrame:
    """Who holds what: a row per wallet and token that the provider lists, zero amounts included.

    Args:
        lake: a folder, or an address that Delta knows, whose credentials are in the environment.
        as_of: the balances and metadata that were known at this time, as for `frames.holdings`.
        run: read what this run pinned; None: the last one that finished.

    Returns:
        A partition per bucket, with the columns of `frames.holdings`; all rows of a wallet are in
        one partition. Of few columns, the others are not read.

    Raises:
        InputError: `as_of` is no time, or there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    return _frame(_holdings_of, _at(pinned(lake, run), as_of, "end"))


def tokens(lake: LakeAddress, as_of: Moment | None = None, run: int | None = None) -> dd.DataFrame:
    """All tokens that were ever seen, held or not, each once.

    Args:
        lake: a folder, or an address that Delta knows, whose credentials are in the environment.
        as_of: only tokens that were known at this time, as for `frames.tokens`.
        run: read what this run pinned; None: the last one that finished.

    Returns:
        A partition per bucket of tokens, with the columns of `frames.tokens`.

    Raises:
        InputError: `as_of` is no time, or there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    return _frame(_tokens_of, _at(pinned(lake, run), as_of, "end"))


def changes(lake: LakeAddress, run: int | None = None, since: Moment | None = None) -> dd.DataFrame:
    """The log of balances; within a partition the oldest change first.

    Args:
        lake: a folder, or an address that Delta knows, whose credentials are in the environment.
        run: read what this run pinned; None: the last one that finished.
        since: only changes observed at this time or later, as for `frames.changes`.

    Returns:
        A partition per bucket, with the columns of `frames.changes`.

    Raises:
        InputError: `since` is no time, or there is no such run, or it is not kept.
        StoreError: there is no lake, or it cannot be read.
    """
    return _frame(_changes_of, _at(pinned(lake, run), since, "start"))


def _at(what: Pinned, moment: Moment | None, edge: Any) -> Pinned:
    """What is pinned, and a time that a caller gave."""
    if moment is None:
        return what
    empty = replace(what, moment="", versions={})
    with empty.mirror(0, ()) as mirror, reading(mirror.connection) as source:
        return replace(what, moment=stored_time(source, moment, edge))


def _frame(function: Callable[..., pd.DataFrame], what: Pinned) -> dd.DataFrame:
    """A frame of what a function makes of each bucket."""
    import dask
    import dask.dataframe as dd  # takes a second

    # Its own kind of text has another missing value, and amounts are no text.
    with dask.config.set({"dataframe.convert-string": False}):
        found: dd.DataFrame = dd.from_map(
            function,
            range(what.buckets),
            what=what,
            meta=function(0, replace(what, versions={})),
            label=f"nftsync{function.__name__.removesuffix('_of')}",
        )
    return found


# What workers do ----------------------------------------------------------------------------------


def _holdings_of(bucket: int, what: Pinned, columns: list[str] | None = None) -> pd.DataFrame:
    names = _HELD if what.moment is None else _HELD_THEN
    with what.mirror(bucket, names) as mirror:
        if what.moment is not None:
            what.add_token_changes(mirror)
        found = read_holdings(mirror.connection, as_of=what.moment, amounts="exact", needs=columns)
    return found if columns is None else found.loc[:, columns]


def _tokens_of(bucket: int, what: Pinned) -> pd.DataFrame:
    names = ("contracts", "tokens", *(() if what.moment is None else ("token_changes",)))
    with what.mirror(bucket, names) as mirror:
        return frames.tokens(mirror.connection, as_of=what.moment)


def _changes_of(bucket: int, what: Pinned) -> pd.DataFrame:
    only = None if what.moment is None else {"balance_changes": f"observed_at >= '{what.moment}'"}
    with what.mirror(bucket, _CHANGED, only) as mirror:
        return frames.changes(mirror.connection, amounts="exact")
