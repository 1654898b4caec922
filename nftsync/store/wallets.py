"""Wallets: registration, tracking, and lookup by label or group."""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from nftsync.errors import InputError
from nftsync.records import is_uuid, look_alike
from nftsync.store.catalog import TABLES
from nftsync.store.database import Queryable, named_rows, over_keys
from nftsync.store.schema import reading
from nftsync.text import counted, matching, quoted, short_id
from nftsync.times import now

_STEP = 2_000

#: The day of a time, shifted per wallet so that not all wallets' days start at once.
_OWN_DAY = "(CAST(strftime('%s', {}) AS INTEGER) + w.wallet_no * 7919) / 86400"
_NOW = "'now'"
#: The columns of a KnownWallet.
_KNOWN = (
    "w.wallet_id,"
    f" iif({_OWN_DAY.format('w.synced_at')} = {_OWN_DAY.format(_NOW)}, w.etag, NULL),"
    " w.body_sha256, w.sequence, w.status, w.tracked"
)

#: Not read since ?2 (NULL: any time). A read after ?3, the current time, had a wrong clock.
_READ_BEFORE = "(?2 IS NULL OR synced_at IS NULL OR synced_at < ?2 OR synced_at > ?3)"


class WalletLine(NamedTuple):
    """A wallet from the wallets file or the command line; None keeps the current label or group."""

    wallet_id: str
    label: str | None = None
    group: str | None = None


class KnownWallet(NamedTuple):
    """A wallet's state before a read.

    `etag` is None before the first read of each day, so that an ETag that never changes cannot
    freeze a wallet.
    """

    wallet_id: str
    etag: str | None
    digest: str | None
    sequence: int
    status: str
    tracked: bool


def register(
    connection: sqlite3.Connection, wallets: Sequence[WalletLine], at: str, *, track: bool = False
) -> int:
    """Add new wallets, set labels and groups, and return the number of new wallets.

    `track` tracks untracked wallets again.
    """
    ids = [line.wallet_id for line in wallets]
    new = add_unknown(connection, ids, at)
    connection.executemany(
        "UPDATE wallets SET label = coalesce(?, label), wallet_group = coalesce(?, wallet_group)"
        " WHERE wallet_id = ?",
        [(x.label, x.group, x.wallet_id) for x in wallets if x.label or x.group],
    )
    if track:
        over_keys(
            connection,
            "UPDATE wallets SET tracked = 1 WHERE NOT tracked AND wallet_id IN"
            " (SELECT value FROM json_each(?))",
            ids,
        )
    return new


def add_unknown(connection: sqlite3.Connection, wallet_ids: Sequence[str], at: str) -> int:
    """Add missing wallets; return their number."""
    return over_keys(
        connection,
        "INSERT OR IGNORE INTO wallets (wallet_id, first_seen_at)"
        " SELECT value, ?2 FROM json_each(?1)",
        wallet_ids,
        at,
    ).rowcount


def list_wallets(path: Path) -> list[dict[str, Any]]:
    with reading(path) as connection:
        return named_rows(connection.execute(TABLES["wallets"].select()))


def labels_and_statuses(path: Path, wallet_ids: Sequence[str]) -> dict[str, tuple[str | None, str]]:
    query = "SELECT wallet_id, label, status FROM json_each(?) JOIN wallets ON wallet_id = value"
    with reading(path) as connection:
        return {row[0]: row[1:] for row in over_keys(connection, query, wallet_ids)}


def label_wallet(connection: sqlite3.Connection, wallet_id: str, label: str) -> None:
    """Set a known wallet's label; an empty one removes it."""
    _set(connection, wallet_id, "label = nullif(?, '')", label, "add it: `nftsync wallets add`")


def _set(
    connection: sqlite3.Connection, wallet_id: str, assignment: str, value: object, advice: str
) -> None:
    query = f"UPDATE wallets SET {assignment} WHERE wallet_id = ?"
    if not connection.execute(query, (value, wallet_id)).rowcount:
        raise InputError(f"wallet {wallet_id} is not in the database; to {advice}")


def forget_answers(connection: sqlite3.Connection, wallet_ids: Sequence[str]) -> None:
    """Make the next reads of wallets compare the whole list."""
    over_keys(
        connection,
        "UPDATE wallets SET etag = NULL, body_sha256 = NULL"
        " WHERE wallet_id IN (SELECT value FROM json_each(?))",
        wallet_ids,
    )


def untrack(connection: sqlite3.Connection, wallet_ids: Sequence[str]) -> None:
    """Exclude known wallets from syncs; their rows stay."""
    for wallet_id in wallet_ids:
        _set(connection, wallet_id, "tracked = ?", 0, "list wallets: `nftsync wallets`")


def tracked_numbers(
    connection: sqlite3.Connection, *, read_before: str | None = None
) -> array[int]:
    rows = connection.execute(
        f"SELECT wallet_no FROM wallets WHERE tracked AND {_READ_BEFORE} ORDER BY wallet_no",
        (None, read_before, now()),
    )
    return array("q", (row[0] for row in rows))


def has_all_tracked(connection: sqlite3.Connection, numbers: array[int]) -> bool:
    (count,) = connection.execute("SELECT count(*) FROM wallets WHERE tracked").fetchone()
    return len(numbers) >= count and set(numbers).issuperset(tracked_numbers(connection))


def numbers_of(
    connection: sqlite3.Connection, wallet_ids: Iterable[str], *, read_before: str | None = None
) -> array[int]:
    """Return the distinct numbers of wallets, in the given order."""
    rows = over_keys(
        connection,
        "SELECT w.wallet_no FROM json_each(?1) k"
        f" JOIN wallets w ON w.wallet_id = k.value WHERE {_READ_BEFORE} ORDER BY k.key",
        wallet_ids,
        read_before,
        now(),
    )
    return array("q", dict.fromkeys(row[0] for row in rows))


def wallets_to_read(
    connection: sqlite3.Connection, numbers: Sequence[int]
) -> Iterator[KnownWallet]:
    """Yield wallets, looked up in steps and as late as possible."""
    for start in range(0, len(numbers), _STEP):
        yield from _known_wallets(connection, "wallet_no", numbers[start : start + _STEP])


def wallets_by_id(
    connection: sqlite3.Connection, wallet_ids: Iterable[str]
) -> dict[str, KnownWallet]:
    wallets = _known_wallets(connection, "wallet_id", wallet_ids)
    return {wallet.wallet_id: wallet for wallet in wallets}


def _known_wallets(
    connection: sqlite3.Connection, column: str, keys: Iterable[Any]
) -> list[KnownWallet]:
    rows = over_keys(
        connection,
        f"SELECT {_KNOWN} FROM json_each(?) k"
        f" JOIN wallets w ON w.{column} = k.value ORDER BY k.key",
        keys,
    )
    return [KnownWallet(*row) for row in rows]


def known_tokens(connection: sqlite3.Connection, token_ids: Iterable[str]) -> set[str]:
    query = "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_id = k.value"
    return {row[0] for row in over_keys(connection, query, token_ids)}


def holders_of(connection: sqlite3.Connection, token_ids: Iterable[str]) -> dict[str, list[str]]:
    rows = over_keys(
        connection,
        "SELECT t.token_id, w.wallet_id FROM json_each(?) k"
        " JOIN tokens t ON t.token_id = k.value JOIN balance_rows b USING (token_no)"
        " JOIN wallets w USING (wallet_no) WHERE w.tracked",
        token_ids,
    )
    holders: dict[str, list[str]] = {}
    for token_id, wallet_id in rows:
        holders.setdefault(token_id, []).append(wallet_id)
    return holders


# Wallets by label or group ----------------------------------------------------------------

#: One wallet or several, by id or label.
WalletIds: TypeAlias = "str | UUID | Iterable[str | UUID]"

#: One group of wallets or several.
GroupNames: TypeAlias = "str | Iterable[str]"

#: Pairs of a wallet's id and its label.
Labelled: TypeAlias = Iterable[tuple[str, str]]

_LABELLED = "SELECT wallet_id, label FROM wallets WHERE label IS NOT NULL"

#: In an error: the number of ids, and the characters of a value.
_LISTED, _LONGEST = 5, 60


def given_wallets(wallet: WalletIds) -> list[str]:
    """Return a caller's ids and labels as a list of stripped texts."""
    values = [wallet] if isinstance(wallet, str | UUID) else wallet
    if isinstance(values, Iterable):
        names = list(values)
        if all(isinstance(name, str | UUID) for name in names):
            return [str(name).strip() for name in names]
    raise InputError(f"{wallet!r:.{_LONGEST}} is not a wallet id or label; pass text or a UUID")


def wallet_names(wallets: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return each wallet's distinct name: its label or short id, and both for a shared label."""
    pairs = [(one, label if label and not label.isspace() else None) for one, label in wallets]
    names = [label or short_id(wallet_id) for wallet_id, label in pairs]
    more = 0
    while len(count := Counter(names)) < len(names):
        for place, (wallet_id, label) in enumerate(pairs):
            if count[names[place]] > 1:
                short = short_id(wallet_id, more)
                names[place] = f"{label} {short}" if label else short
        more += 1
    return names


def ids_named(names: Sequence[str], labelled: Callable[[], Labelled]) -> list[str]:
    """Return the ids of wallets named by id or label; see `ids_by_name`."""
    if all(map(is_uuid, names)):
        return [name.lower() for name in names]
    labels = list(labelled())
    ids = []
    for name, matches in ids_by_name(names, labels).items():
        if len(matches) != 1:
            raise not_one(name, matches, labels)
        ids += matches
    return ids


def ids_by_name(names: Iterable[str], labels: Labelled) -> dict[str, list[str]]:
    """Return the ids of the wallets that each name, an id or label, stands for.

    A UUID counts as an id, even of an unknown wallet. A label matches in any case if none matches
    exactly.
    """
    exactly: dict[str, set[str]] = {}
    folded: dict[str, set[str]] = {}
    for wallet_id, label in labels:
        exactly.setdefault(label, set()).add(wallet_id)
        folded.setdefault(label.casefold(), set()).add(wallet_id)

    def matches(name: str) -> Iterable[str]:
        if is_uuid(name):
            return (name.lower(),)
        return exactly.get(name) or folded.get(name.casefold()) or ()

    return {name: sorted(matches(name)) for name in names}


def not_one(name: str, ids: Sequence[str], labels: Labelled = ()) -> InputError:
    shown = f"{quoted(name)}{look_alike(name)}"
    if ids:
        more = len(ids) - _LISTED
        listed = ", ".join(ids[:_LISTED]) + f" and {more:,} more" * (more > 0)
        return InputError(f"{len(ids):,} wallets are called {shown}; name one by its id: {listed}")
    by_folded = {label.casefold(): label for _, label in labels}
    near = [by_folded[key] for key in get_close_matches(name.casefold(), by_folded, n=3)]
    similar = ", ".join(map(repr, near))
    advice = f"similar: {similar}" if near else "to list wallets: `nftsync wallets`"
    return InputError(
        f"{shown} is neither a wallet id (a UUID) nor the label of a wallet; {advice}"
    )


def ids_in(database: Queryable, names: WalletIds) -> list[str]:
    return ids_named(given_wallets(names), lambda: database.execute(_LABELLED).fetchall())


#: Groups that an error lists.
_GROUPS = 20


def ids_in_groups(database: Queryable, group: GroupNames) -> list[str]:
    """Return the ids of the wallets of groups, which match in any case if none matches exactly."""
    names = [group] if isinstance(group, str) else group
    names = list(names) if isinstance(names, Iterable) else [names]
    query = "SELECT DISTINCT wallet_group FROM wallets WHERE wallet_group IS NOT NULL ORDER BY 1"
    groups: list[str] = [row[0] for row in database.execute(query).fetchall()]
    chosen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"{name!r:.{_LONGEST}} is not a group; give its name as text")
        same = matching(name, groups)
        if not same:
            wallets = database.execute("SELECT count(*) FROM wallets").fetchone()[0]
            raise InputError(_no_group(name, wallets, groups))
        chosen |= same
    rows = over_keys(
        database,
        "SELECT wallet_id FROM wallets"
        " WHERE wallet_group IN (SELECT value FROM json_each(?)) ORDER BY wallet_no",
        chosen,
    )
    return [row[0] for row in rows.fetchall()]


def _no_group(name: str, wallets: int, groups: list[str]) -> str:
    if not wallets:
        return (
            f"no group {quoted(name)}: the database has no wallets yet. Read some: `nftsync sync"
            " --wallets-file FILE`"
        )
    more = f" and {len(groups) - _GROUPS:,} more" if len(groups) > _GROUPS else ""
    listed = ", ".join(groups[:_GROUPS])
    instead = (
        f"Groups: {listed}{more}"
        if groups
        else "No wallet has a group; the wallets file sets groups"
    )
    return f"None of the {counted(wallets, 'wallet')} is in group {quoted(name)}. {instead}"


def ids_from(path: Path, names: WalletIds) -> list[str]:
    """Return the ids of wallets; open the database only for labels."""

    def labelled() -> Labelled:
        if not path.exists():
            return []
        with reading(path) as connection:
            return connection.execute(_LABELLED).fetchall()

    return ids_named(given_wallets(names), labelled)
