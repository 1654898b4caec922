"""The wallets in the database: which are read, and which a name or a group means."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.catalog import TABLES
from nftsync.store.database import named_rows, over_keys
from nftsync.store.schema import reading
from nftsync.text import counted, quoted
from nftsync.times import now

_STEP = 2_000

#: Which day of a wallet's own a time is in; so that not all wallets' days begin at once.
_OWN_DAY = "(CAST(strftime('%s', {}) AS INTEGER) + w.wallet_no * 7919) / 86400"
_NOW = "'now'"
#: The columns of a KnownWallet.
_KNOWN = (
    "w.wallet_id,"
    f" iif({_OWN_DAY.format('w.synced_at')} = {_OWN_DAY.format(_NOW)}, w.etag, NULL),"
    " w.body_sha256, w.sequence, w.status, w.tracked"
)

#: Of ?2, a time or NULL, and ?3, the current time. A read in the future had a wrong clock.
_READ_BEFORE = "(?2 IS NULL OR synced_at IS NULL OR synced_at < ?2 OR synced_at > ?3)"


class WalletLine(NamedTuple):
    """A wallet as a user names it.

    Attributes:
        wallet_id: its id, lower case.
        label: a name for people, or None to leave what is there.
        group: a group for people, or None to leave what is there.
    """

    wallet_id: str
    label: str | None = None
    group: str | None = None


class KnownWallet(NamedTuple):
    """What a read of a wallet needs to know beforehand.

    Attributes:
        wallet_id: its id.
        etag: the validator of the answer that the mirror holds; None before the first read of
            each day, so that a provider whose validators stay the same can freeze no wallet.
        digest: that answer's digest.
        sequence: of the last read that was applied.
        status: of the last read.
        tracked: whether it is read at all.
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
    """Add wallets that are not known yet, and set labels and groups that are given.

    Args:
        connection: in a write transaction.
        wallets: the wallets.
        at: the current time, in the stored form.
        track: track again those that were untracked.

    Returns:
        How many were new.
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
    """Add the wallets that are not known yet, in a write transaction; return how many were new."""
    return over_keys(
        connection,
        "INSERT OR IGNORE INTO wallets (wallet_id, first_seen_at)"
        " SELECT value, ?2 FROM json_each(?1)",
        wallet_ids,
        at,
    ).rowcount


def list_wallets(path: Path) -> list[dict[str, Any]]:
    """All known wallets: the public columns of `wallets`, by their names.

    Raises:
        StoreError: there is no database, or it is not nftsync's.
    """
    with reading(path) as connection:
        return named_rows(connection.execute(TABLES["wallets"].select()))


def labels_and_statuses(path: Path, wallet_ids: Sequence[str]) -> dict[str, tuple[str | None, str]]:
    """What wallets are called, if anything, and how their last reads went."""
    query = "SELECT wallet_id, label, status FROM json_each(?) JOIN wallets ON wallet_id = value"
    with reading(path) as connection:
        return {row[0]: row[1:] for row in over_keys(connection, query, wallet_ids)}


def label_wallet(connection: sqlite3.Connection, wallet_id: str, label: str) -> None:
    """Set a wallet's label; an empty one takes it away.

    Raises:
        InputError: the wallet is not known.
    """
    done = connection.execute(
        "UPDATE wallets SET label = nullif(?, '') WHERE wallet_id = ?", (label, wallet_id)
    )
    if not done.rowcount:
        raise InputError(f"wallet {wallet_id} is not known; add it with `nftsync wallets add`")


def forget_answers(connection: sqlite3.Connection, wallet_ids: Sequence[str]) -> None:
    """Let the next reads of wallets look at the whole list, whatever its validator or digest."""
    over_keys(
        connection,
        "UPDATE wallets SET etag = NULL, body_sha256 = NULL"
        " WHERE wallet_id IN (SELECT value FROM json_each(?))",
        wallet_ids,
    )


def untrack(connection: sqlite3.Connection, wallet_ids: Sequence[str]) -> None:
    """Stop reading wallets; their rows stay.

    Raises:
        InputError: one of them is not known.
    """
    for wallet_id in wallet_ids:
        done = connection.execute(
            "UPDATE wallets SET tracked = 0 WHERE wallet_id = ?", (wallet_id,)
        )
        if not done.rowcount:
            raise InputError(f"wallet {wallet_id} is not known")


def tracked_numbers(
    connection: sqlite3.Connection, *, read_before: str | None = None
) -> array[int]:
    """The numbers of the tracked wallets, only those last read before a time if one is given."""
    rows = connection.execute(
        f"SELECT wallet_no FROM wallets WHERE tracked AND {_READ_BEFORE} ORDER BY wallet_no",
        (None, read_before, now()),
    )
    return array("q", (row[0] for row in rows))


def has_all_tracked(connection: sqlite3.Connection, numbers: array[int]) -> bool:
    """Whether each tracked wallet is among some numbers."""
    (count,) = connection.execute("SELECT count(*) FROM wallets WHERE tracked").fetchone()
    return len(numbers) >= count and set(numbers).issuperset(tracked_numbers(connection))


def numbers_of(
    connection: sqlite3.Connection, wallet_ids: Iterable[str], *, read_before: str | None = None
) -> array[int]:
    """The numbers of the named wallets, in their order, each once."""
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
    """Look up wallets a step at a time, as late as possible."""
    for start in range(0, len(numbers), _STEP):
        yield from _known_wallets(connection, "wallet_no", numbers[start : start + _STEP])


def wallets_by_id(
    connection: sqlite3.Connection, wallet_ids: Iterable[str]
) -> dict[str, KnownWallet]:
    """Look up wallets by their ids; those that are not known are missing."""
    known = _known_wallets(connection, "wallet_id", wallet_ids)
    return {wallet.wallet_id: wallet for wallet in known}


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
    """Those of some tokens that the mirror knows."""
    query = "SELECT t.token_id FROM json_each(?) k JOIN tokens t ON t.token_id = k.value"
    return {row[0] for row in over_keys(connection, query, token_ids)}


def holders_of(connection: sqlite3.Connection, token_ids: Iterable[str]) -> dict[str, list[str]]:
    """The tracked wallets that are known to hold each of some tokens."""
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


# Wallets named by people ------------------------------------------------------------------

#: What reads a database whose rows are tuples.
Reader: TypeAlias = sqlite3.Connection | sqlite3.Cursor

#: A wallet, or several, each by its id or its label.
WalletIds: TypeAlias = "str | UUID | Iterable[str | UUID]"

#: A group of wallets, or several.
GroupNames: TypeAlias = "str | Iterable[str]"

#: Wallets and their labels.
Labelled: TypeAlias = Iterable[tuple[str, str]]

#: Reads them.
_LABELLED = "SELECT wallet_id, label FROM wallets WHERE label IS NOT NULL"

#: Ids that an error lists, and characters of a name that it repeats.
_LISTED, _LONGEST = 5, 60


def given_wallets(wallet: WalletIds) -> list[str]:
    """What a caller names wallets by, without white space around it.

    Raises:
        InputError: it is neither text, nor a UUID, nor several of these.
    """
    given = [wallet] if isinstance(wallet, str | UUID) else wallet
    if isinstance(given, Iterable):
        names = list(given)
        if all(isinstance(name, str | UUID) for name in names):
            return [str(name).strip() for name in names]
    raise InputError(f"{wallet!r:.{_LONGEST}} is no wallet; give an id or a label, or several")


def ids_named(names: Sequence[str], labelled: Callable[[], Labelled]) -> list[str]:
    """Turn names of wallets into their ids.

    A UUID is an id, known or not. Anything else is a label: matched exactly, or if there is none
    such, whatever its case.

    Args:
        names: as `given_wallets` returns them.
        labelled: called for the wallets that have labels, if a name is no id.

    Raises:
        InputError: a label is of several wallets, whose ids are listed, or of none.
    """
    if all(map(is_uuid, names)):
        return [name.lower() for name in names]
    exactly: dict[str, set[str]] = {}
    folded: dict[str, set[str]] = {}
    for wallet_id, label in labelled():
        exactly.setdefault(label, set()).add(wallet_id)
        folded.setdefault(label.casefold(), set()).add(wallet_id)

    def one(name: str) -> str:
        if is_uuid(name):
            return name.lower()
        found = exactly.get(name) or folded.get(name.casefold(), set())
        if len(found) != 1:
            raise InputError(_wrong(name, sorted(found), list(exactly)))
        return next(iter(found))

    return [one(name) for name in names]


def _wrong(name: str, found: list[str], labels: list[str]) -> str:
    shown = quoted(name)
    if found:
        more = len(found) - _LISTED
        ids = ", ".join(found[:_LISTED]) + f" and {more:,} more" * (more > 0)
        return f"{len(found):,} wallets are called {shown}; name one by its id: {ids}"
    of = {label.casefold(): label for label in labels}
    near = [of[each] for each in get_close_matches(name.casefold(), of, n=3)]
    return f"{shown} is neither a wallet id (a UUID) nor the label of a wallet; " + (
        f"near ones are {', '.join(map(repr, near))}" if near else "`nftsync wallets` lists them"
    )


def ids_in(database: Reader, names: WalletIds) -> list[str]:
    """Return the ids of wallets that are named, by the labels of a database; see `ids_named`."""
    return ids_named(given_wallets(names), lambda: database.execute(_LABELLED).fetchall())


#: Groups that an error lists.
_GROUPS = 20


def ids_in_groups(database: Reader, group: GroupNames) -> list[str]:
    """Return the ids of the wallets of one group or several.

    A group's name is matched exactly, or if there is none such, whatever its case.

    Raises:
        InputError: no wallet is in a group of such a name, or it is no text.
    """
    names = [group] if isinstance(group, str) else group
    names = list(names) if isinstance(names, Iterable) else [names]
    query = "SELECT DISTINCT wallet_group FROM wallets WHERE wallet_group IS NOT NULL ORDER BY 1"
    groups: list[str] = [row[0] for row in database.execute(query).fetchall()]
    chosen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"{name!r:.{_LONGEST}} is not a group; give its name as text")
        same = {each for each in groups if each == name} or {
            each for each in groups if each.casefold() == name.casefold()
        }
        if not same:
            wallets = database.execute("SELECT count(*) FROM wallets").fetchone()[0]
            raise InputError(_no_group(name, wallets, groups))
        chosen |= same
    rows = database.execute(
        "SELECT wallet_id FROM wallets"
        " WHERE wallet_group IN (SELECT value FROM json_each(?)) ORDER BY wallet_no",
        (msgspec.json.encode(sorted(chosen)).decode(),),
    )
    return [row[0] for row in rows.fetchall()]


def _no_group(name: str, wallets: int, groups: list[str]) -> str:
    more = f" and {len(groups) - _GROUPS:,} more" if len(groups) > _GROUPS else ""
    listed = ", ".join(groups[:_GROUPS])
    instead = f"Groups: {listed}{more}" if groups else "No wallet has a group"
    return f"None of the {counted(wallets, 'wallet')} is in group {quoted(name)}. {instead}"


def ids_from(path: Path, names: WalletIds) -> list[str]:
    """The same, of a database that is opened only if a name is no id, and may not be there yet."""

    def labelled() -> Labelled:
        if not path.exists():
            return []
        with reading(path) as connection:
            return connection.execute(_LABELLED).fetchall()

    return ids_named(given_wallets(names), labelled)
