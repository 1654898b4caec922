"""How fresh the mirror is, in one small frame."""

from __future__ import annotations

import pandas as pd

from nftsync.columnar.filters import filters_of
from nftsync.columnar.freshness import freshness_with, wallet_groups
from nftsync.columnar.source import Store, reading
from nftsync.store.wallets import GroupNames, WalletIds


def freshness(
    db: Store = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
) -> pd.DataFrame:
    """Return how fresh the data is: the last runs, wallets by how they were read, pending webhooks.

    Args:
        db: what to read, as `nftsync.frames` tells.
        wallet: count only these wallets; runs and webhooks are always those of the whole database.
        group: count only wallets of these groups.

    Returns:
        A row per `what`, always in this order, with `count` (`Int64`), `at` (a time, or NaT),
        `age` (from `at` until now, in whole seconds) and `detail` (text):

        - `running sync`, only if there is one: wallets read so far, since when.
        - `last sync`, `last successful sync`, `last replay`: wallets read well, when it ended.
        - `oldest wallet read`: how many tracked wallets were ever read, and when the least
          recently read one was; which one it is.
        - `wallets never read`, `failed wallets`, `incomplete wallets`: of the tracked ones, how
          many; since when the first was known, or when the least recent of them was last read
          wholly; the first few by name.
        - `webhooks pending` to `webhooks quarantined`: how many, and when the oldest came.

    Raises:
        InputError: there is no such wallet label or group, or `db` is neither a path nor a
            connection.
    """
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group)
        return freshness_with(source, wallet_groups(source, filters))
