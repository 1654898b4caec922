"""A bucket of a lake as a mirror of its own: what is done with it is what is done with any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from distributed import get_worker

from nftsync.lake.rows import BUCKET, to_mirror
from nftsync.lake.storage import Lake, Versions
from nftsync.store.mirror import Mirror

#: What a mirror of a bucket needs to take in reads.
BALANCES = ("wallets", "known_tokens", "balances", "removals", "present_states")


@contextmanager
def mirror_of(
    lake: Lake,
    versions: Versions,
    bucket: int,
    names: Iterable[str],
    *,
    only: Mapping[str, str] | None = None,
    greatest_ticket: int = 0,
) -> Iterator[Mirror]:
    """Make a bucket a mirror in a folder of its own, which goes with the block.

    Args:
        lake: where the bucket is.
        versions: of which version of each table; a table that is missing there has no rows.
        bucket: which.
        names: the tables to take along, in the order of `TABLES`.
        only: which rows of some of them, as a condition in SQL.
        greatest_ticket: the sequence number that those of new reads come after.
    """
    with TemporaryDirectory(prefix="nftsync-", dir=_scratch()) as folder:
        path = Path(folder, "bucket.db")
        with Mirror(path) as mirror:  # made; its numbers begin with the greatest that it knows
            _load(mirror, lake, versions, bucket, names, only or {})
            mirror.connection.execute(
                "UPDATE mirror_state SET greatest_ticket = ?", (greatest_ticket,)
            )
        with Mirror(path, write_gap=0.0, searchable=False) as mirror:
            mirror.connection.execute("PRAGMA synchronous = OFF")  # it is not there to stay
            yield mirror


def _scratch() -> str | None:
    """Where Dask clears up after workers that were killed; None: this is none of its workers."""
    try:
        return get_worker().local_directory
    except ValueError:
        return None


def _load(
    mirror: Mirror,
    lake: Lake,
    versions: Versions,
    bucket: int,
    names: Iterable[str],
    only: Mapping[str, str],
) -> None:
    connection = mirror.connection
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    for name in names:
        if name in versions:
            where = " AND ".join([f"{BUCKET} = {bucket}", *filter(None, [only.get(name)])])
            to_mirror(connection, name, lake.batches(name, versions[name], where))
    connection.execute("COMMIT")
