"""Filters by wallet, contract and period, as SQL conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nftsync.errors import InputError
from nftsync.store.contracts import contract_key, is_hex_address, unknown_contract
from nftsync.store.database import Queryable, as_json
from nftsync.store.wallets import GroupNames, WalletIds, ids_in, ids_in_groups
from nftsync.text import matching, quoted


@dataclass(frozen=True)
class Filters:
    """The rows to read; None applies no condition. Times are in the stored form."""

    wallet_ids: list[str] | None = None
    contract: str | None = None
    since: str | None = None
    until: str | None = None

    def where(
        self, *, key: Literal["id", "no"] = "id", times: tuple[str, str] | None = None
    ) -> tuple[str, tuple[object, ...]]:
        """Return a condition on rows, and the values of its placeholders.

        `key`: the rows have `wallet_id` and `token_id`, or `wallet_no` and `token_no`. `times`: the
        columns with a row's last and first time; None ignores `since` and `until`.
        """
        wallet, token = f"wallet_{key}", f"token_{key}"
        conditions: list[str] = []
        values: list[object] = []
        if self.wallet_ids is not None:
            of_wallets = "SELECT value FROM json_each(?)"
            conditions.append(
                f"{wallet} IN (SELECT {wallet} FROM wallets WHERE wallet_id IN ({of_wallets}))"
            )
            values.append(as_json(self.wallet_ids))
        if self.contract is not None:
            # A wallet has few rows; the plus stops SQLite from searching by token instead.
            plus = "+" if conditions else ""
            conditions.append(f"{plus}{token} IN (SELECT {token} FROM tokens WHERE contract = ?)")
            values.append(contract_key(self.contract))
        limits = zip(times or (), (">=", "<="), (self.since, self.until), strict=False)
        for column, relation, moment in limits:
            if moment is not None:
                conditions.append(f"{column} {relation} ?")
                values.append(moment)
        return " AND ".join(conditions) or "true", tuple(values)


def find_filters(
    database: Queryable,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    since: str | None = None,
    until: str | None = None,
    exclude: WalletIds = (),
) -> Filters:
    """Build filters from names, as in `nftsync.frames`, and stored times."""
    if since is not None and until is not None and since > until:
        raise InputError(f"since ({since}) is after until ({until}); swap them")
    ids = None if wallet is None else ids_in(database, wallet)
    if group is not None:
        members = ids_in_groups(database, group)
        ids = members if ids is None else [*set(ids).intersection(members)]
    if excluded := {*ids_in(database, exclude)}:
        if ids is None:
            ids = [row[0] for row in database.execute("SELECT wallet_id FROM wallets").fetchall()]
        ids = [wallet_id for wallet_id in ids if wallet_id not in excluded]
    address = None if contract is None else contract_named(database, contract)
    return Filters(ids, address, since, until)


#: Addresses that an error lists.
_LISTED = 5
#: Whether a token has or had this address; its contract may not be stored yet.
_IS_TOKENS = """
    SELECT EXISTS (SELECT 1 FROM tokens WHERE contract_address = ?1) OR EXISTS (
        SELECT 1 FROM token_change_rows WHERE before ->> 'contract_address' = ?1)
"""


def contract_named(database: Queryable, named: object) -> str:
    """Return the address of a contract, by address or name.

    An address of `0x` and 40 to 64 hex digits need not be in the database.
    """
    if not isinstance(named, str):
        raise InputError(f"{named!r} is not a contract; give its address or its name as text")
    if is_hex_address(named):
        return named
    contracts = database.execute("SELECT contract, name FROM contracts").fetchall()
    if any(contract == contract_key(named) for contract, _ in contracts):
        return named
    same = matching(named, (name for _, name in contracts if name is not None))
    matches = [contract for contract, name in contracts if name in same]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise InputError(
            f"{len(matches)} collections are called {quoted(named)}; give the address of one:"
            f" {', '.join(matches[:_LISTED])}{', ...' if len(matches) > _LISTED else ''}"
        )
    if database.execute(_IS_TOKENS, (named,)).fetchone()[0]:
        return named
    raise unknown_contract(database, named)
