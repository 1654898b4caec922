"""A second list of holdings, such as an auditor's: a frame or a CSV file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from nftsync.columnar.filters import shown
from nftsync.columnar.inputs import Table, rows_of_table
from nftsync.columnar.source import IN_JSON, Source
from nftsync.errors import InputError
from nftsync.records import is_uuid
from nftsync.store.contracts import contract_key
from nftsync.store.database import as_json, over_keys
from nftsync.store.filters import contract_named
from nftsync.store.wallets import ids_by_name, not_one

#: The columns with their other names, those that identify a token first; others are ignored. The
#: first filled column of a kind counts, so that the frames and exports of nftsync are lists, too.
_COLUMNS: Final = {
    **dict.fromkeys(("token_id", "contract_address", "contract"), ()),
    **dict.fromkeys(("wallet_id", "wallet", "wallet_label", "amount_text"), ()),
    "blockchain_token_id": ("on_chain_id",),
    "amount": ("quantity",),
    "as_of": (),
}
_TOKENS: Final = 3
#: Spreadsheets and pandas may write whole numbers as `3.0`.
_AMOUNT: Final = re.compile(r"([0-9]{1,100})(?:\.0)?|unknown", re.ASCII)
_DECIMAL: Final = re.compile("[0-9]{1,100}", re.ASCII)
_HEX: Final = re.compile("0[xX][0-9a-fA-F]{1,64}")
#: Values of a comparison's `verdict`.
VERDICTS: Final = (
    "agrees",
    "amount_differs",
    "only_here",
    "only_there",
    "in_motion",
    "unknown_token",
    "unknown_wallet",
)
#: The number of all wallets together, and the first number of names that the database lacks; its
#: own numbers are from 1, and smaller.
TOGETHER: Final = 0
UNKNOWN: Final = 2**60


class TokenNames(NamedTuple):
    """A token's id, or its contract as written and its on-chain id in one spelling, or all."""

    token_id: str | None
    contract: str | None
    number: str | None


class Listed(NamedTuple):
    """A row of the list; without an `amount`, its token is not to be compared."""

    line: int
    wallet: str | None
    token: TokenNames
    amount: int | None


class SecondList(NamedTuple):
    """The rows of a list, and the one time in its column `as_of`, if any."""

    name: str
    rows: list[Listed]
    as_of: Any = None

    @property
    def has_wallets(self) -> bool:
        return any(row.wallet is not None for row in self.rows)


def read_second_list(table: Table) -> SecondList:
    """Read a list; an InputError names an unusable row."""
    name, place, cells = rows_of_table(table, "list", _COLUMNS, keys=_TOKENS)
    rows: list[Listed] = []
    times: dict[Any, None] = {}
    for line, row in cells:
        try:
            rows.append(_listed(line, row))
        except InputError as error:
            raise InputError(f"{place} {line}: {error}") from None
        if "as_of" in row:
            times[row["as_of"]] = None
    named = SecondList(name, rows, next(iter(times), None))
    nameless = [row.line for row in rows if row.wallet is None and row.amount is not None]
    if nameless and named.has_wallets:
        raise InputError(f"{place} {nameless[0]} has no wallet; fill it in, as in other rows")
    if len(times) > 1:
        some = ", ".join(map(str, [*times][:2]))
        raise InputError(
            f"{name} has {len(times)} times in the column as_of ({some}, …); remove the column, and"
            " give one time with at= or --at"
        )
    return named


def _listed(line: int, row: Mapping[str, Any]) -> Listed:
    wallet = row.get("wallet_id") or row.get("wallet") or row.get("wallet_label")
    contract = row.get("contract_address") or row.get("contract")
    token_id, number = row.get("token_id"), row.get("blockchain_token_id")
    if token_id is not None and not is_uuid(str(token_id)):
        # Indexers call the on-chain id so.
        if contract is None or number is not None:
            raise InputError(f"the token_id {shown(token_id)} is not a UUID")
        token_id, number = None, token_id
    if token_id is None and (contract is None or number is None):
        raise InputError("names no token; give token_id, or contract and blockchain_token_id")
    amount = row.get("amount_text", row.get("amount", "1"))
    if (digits := _AMOUNT.fullmatch(str(amount))) is None:
        raise InputError(
            f"the amount {shown(amount)} is not a whole number; write 1 to 100 digits, or unknown"
        )
    token = TokenNames(
        token_id and str(token_id).lower(),
        contract and str(contract),
        None if number is None else _one_number(str(number)),
    )
    return Listed(line, wallet and str(wallet), token, int(digits[1]) if digits[1] else None)


def _one_number(number: str) -> str:
    """Return an on-chain id in one spelling: decimal, without leading zeros."""
    if _HEX.fullmatch(number):
        return str(int(number, 16))
    return str(int(number)) if _DECIMAL.fullmatch(number) else number


def numbered(source: Source, listed: SecondList) -> Iterator[tuple[tuple[int, int], Listed]]:
    """Yield each row with the numbers of its wallet and token, from `UNKNOWN` for unknown ones."""
    wallets, tokens = _wallet_numbers(source, listed), _token_numbers(source, listed)
    for row in listed.rows:
        yield (wallets[row.wallet], tokens[row.token]), row


def _wallet_numbers(source: Source, listed: SecondList) -> dict[str | None, int]:
    known = [*source.rows("SELECT wallet_id, label, wallet_no FROM wallets")]
    number_of = {wallet_id: number for wallet_id, _, number in known}
    labels = [(wallet_id, label) for wallet_id, label, _ in known if label is not None]
    numbers: dict[str | None, int] = {None: TOGETHER}
    names = dict.fromkeys(row.wallet for row in listed.rows if row.wallet is not None)
    for name, ids in ids_by_name(names, labels).items():
        if len(ids) > 1:
            raise InputError(f"{listed.name}: {not_one(name, ids)}")
        numbers[name] = number_of.get(ids[0] if ids else "", UNKNOWN + len(numbers))
    return numbers


def _token_numbers(source: Source, listed: SecondList) -> dict[TokenNames, int]:
    """Return the numbers of the list's tokens, or those of unknown names; an id comes first."""
    names = dict.fromkeys(row.token for row in listed.rows)
    ids = {name.token_id for name in names} - {None}
    query = "SELECT token_id, token_no FROM json_each(?) JOIN tokens ON token_id = value"
    by_id: dict[str | None, int] = dict(over_keys(source.cursor, query, ids))
    contracts: dict[str | None, str] = {}
    for contract in {name.contract for name in names if name.contract is not None}:
        contracts[contract] = contract_key(contract)
        with suppress(InputError):  # a name of no collection, or of several, is unknown
            contracts[contract] = contract_key(contract_named(source.cursor, contract))
    by_chain: dict[tuple[str | None, str | None], int] = {  # of several tokens, the first counts
        (contract, _one_number(number)): no
        for contract, number, no in source.rows(
            f"SELECT contract, blockchain_token_id, token_no FROM tokens WHERE contract {IN_JSON}"
            " AND blockchain_token_id IS NOT NULL ORDER BY token_no DESC",
            (as_json([*contracts.values()]),),
        )
    }
    numbers: dict[TokenNames, int] = {}
    for name in names:
        on_chain = by_chain.get((contracts.get(name.contract), name.number))
        numbers[name] = by_id.get(name.token_id) or on_chain or UNKNOWN + len(numbers)
    return numbers
