"""Queries of a database's freshness: its newest runs, and its stalest wallets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nftsync.store.catalog import TABLES
from nftsync.store.database import Queryable, named_rows
from nftsync.store.filters import Filters
from nftsync.text import visible
from nftsync.times import age_seconds

#: Condition on runs: a sync of all wallets that has ended.
FULL_SYNC: Final = "kind = 'sync' AND reads_all AND finished_at IS NOT NULL"
#: A wallet without a read counts from when it was added.
LAST_READ: Final = "coalesce(synced_at, first_seen_at)"
OLDEST_READ: Final = f"SELECT min({LAST_READ}) FROM wallets WHERE tracked"


def newest_run(database: Queryable, condition: str) -> dict[str, Any] | None:
    query = f"SELECT {', '.join(TABLES['sync_runs'].columns)} FROM sync_runs WHERE {condition}"
    rows = named_rows(database.execute(f"{query} ORDER BY run_id DESC LIMIT 1"))
    return rows[0] if rows else None


class StalestWallet(NamedTuple):
    """Tracked wallet with the oldest complete read; `age_s` None means never read."""

    wallet_id: str
    label: str | None
    age_s: float | None


def stalest_wallet(database: Queryable, at: str) -> StalestWallet | None:
    """Return the stalest tracked wallet, with its age at a time; one never read comes first."""
    row = database.execute(
        "SELECT wallet_id, label, synced_at FROM wallets WHERE tracked"
        " ORDER BY synced_at NULLS FIRST, wallet_no LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    wallet_id, label, synced_at = row
    return StalestWallet(wallet_id, label, synced_at and age_seconds(synced_at, at))


# Groups of wallets -------------------------------------------------------------------------------

#: Limits: wallets named per row, and characters shown of a text from outside.
NAMED = 3
_MAX_TEXT = 120
_OLDEST = "oldest wallet read"
_FIRST = f"wallet_no LIMIT {NAMED}"
#: Groups of tracked wallets: name, condition, column of the time, and order of the named wallets.
_GROUPS = (
    (_OLDEST, "synced_at IS NOT NULL", "synced_at", "synced_at, wallet_no LIMIT 1"),
    ("wallets never read", "synced_at IS NULL", "first_seen_at", _FIRST),
    ("failed wallets", "status = 'failed'", "synced_at", _FIRST),
    ("incomplete wallets", "status = 'incomplete'", "synced_at", _FIRST),
)


@dataclass(frozen=True)
class WalletGroup:
    """Group of tracked wallets: its name, size, earliest time, and first few wallets.

    The group `oldest wallet read` names only the wallet of that time.
    """

    name: str
    count: int
    at: str | None
    wallets: list[str]

    def line(self) -> tuple[str, int | None, str | None, str]:
        detail = "; ".join(self.wallets)
        if self.name != _OLDEST and self.count > NAMED:
            detail += f"; {self.count - NAMED:,} more"
        return self.name, self.count, self.at, detail


def wallet_groups(
    database: Queryable,
    filters: Filters = Filters(),  # noqa: B008 - it cannot change
) -> list[WalletGroup]:
    which, values = filters.where()
    groups = []
    for name, condition, since, first in _GROUPS:
        where = f"FROM wallets WHERE tracked AND {condition} AND {which}"
        count, at = database.execute(f"SELECT count(*), min({since}) {where}", values).fetchone()
        rows = database.execute(f"SELECT label, wallet_id, error {where} ORDER BY {first}", values)
        names = [
            (short_line(label) if label else wallet) + (f": {short_line(error)}" if error else "")
            for label, wallet, error in rows
        ]
        groups.append(WalletGroup(name, count, at, names))
    return groups


def merge_groups(parts: Iterable[list[WalletGroup]]) -> list[WalletGroup]:
    merged = []
    for same in zip(*parts, strict=True):
        at = min((part.at for part in same if part.at is not None), default=None)
        oldest = same[0].name == _OLDEST
        chosen = [part for part in same if part.at == at] if oldest else same
        names = [name for part in chosen for name in part.wallets][: 1 if oldest else NAMED]
        merged.append(WalletGroup(same[0].name, sum(part.count for part in same), at, names))
    return merged


def short_line(value: str | None) -> str:
    """Return outside text on one line, cut, without characters that act on a terminal."""
    line = " ".join((value or "").split())
    line = line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"
    return visible(line)
