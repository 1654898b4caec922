"""Which wallets a person means: by their ids, by what they are called, or by their groups."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import msgspec

from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.schema import reading
from nftsync.text import counted, quoted

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
