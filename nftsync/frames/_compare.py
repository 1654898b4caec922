"""Comparison of holdings with a second list."""

from __future__ import annotations

import warnings
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from nftsync.columnar.amounts import AmountKind, Exact, amount_columns
from nftsync.columnar.balances import change_log, change_span, read_balances
from nftsync.columnar.columns import INTEGER, TEXT, frame_of, integers, taken, text
from nftsync.columnar.filters import Moment, filters_of, state_time, wallet_numbers
from nftsync.columnar.inputs import Table
from nftsync.columnar.second_list import (
    TOGETHER,
    UNKNOWN,
    Listed,
    SecondList,
    numbered,
    read_second_list,
)
from nftsync.columnar.source import IN_JSON, Source, Store, positions, reading
from nftsync.columnar.tokens import NAMING, read_tokens, wallet_columns
from nftsync.errors import InputError, NftsyncWarning
from nftsync.records import is_uuid
from nftsync.store.contracts import contract_key, nft_name, short_address
from nftsync.store.database import as_json
from nftsync.store.filters import Filters
from nftsync.store.history import from_history
from nftsync.store.wallets import GroupNames, WalletIds
from nftsync.text import counted


def compare(
    db: Store = None,
    other: Table | None = None,
    at: Moment | None = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Compare holdings with a second list, such as an auditor's: a row per wallet and token.

    Shared parameters: see `nftsync.frames`. Hidden tokens are compared, too. Nothing is corrected.

    `other` is a frame, such as `frames.holdings` of another database, or the path of a CSV file in
    any form that spreadsheets write. Each row names a wallet by id or label (`wallet_id`, `wallet`
    or `wallet_label`), a token (`token_id`, or `contract` with `blockchain_token_id`), and an
    `amount` (1, if missing; `unknown` leaves the token out). Other columns are ignored, and rows of
    one holding are summed. A list without wallets is compared with all wallets together.

    `at` is the time of the list. By default, it is the time in its column `as_of`, or now.

    Returns:
        Columns: `frames.explain("compare")`. `verdict` is the first that applies:

        - `agrees`: both amounts are equal
        - `unknown_wallet`, `unknown_token`: only the list has it; the database never saw it
        - `in_motion`: nftsync observed a change of the holding after `at`
        - `only_here`, `only_there`: only the database, or only the list has the holding
        - `amount_differs`

    Warns:
        NftsyncWarning: `at` is before the history; wallets with differences were last read before
            `at`.
    """
    if other is None:
        raise InputError('compare() needs the second list: compare(db, "list.csv")')
    listed = read_second_list(other)
    with reading(db) as source:
        filters = filters_of(source, wallet=wallet, group=group)
        at = listed.as_of if at is None else at
        moment = None if at is None else state_time(source, at)
        pairs = _pairs(source, listed, filters, moment)
        verdicts = _verdicts(pairs, _changed_after(source, listed, filters, moment))
        if moment is not None:
            from_history(source.cursor, moment)
            _warn_of_old_reads(source, pairs, verdicts, filters, moment)
        columns = _named(source, pairs)
    sides = {
        "amount": [pair.amount for pair in pairs],
        "other_amount": [pair.other_amount for pair in pairs],
    }
    exact = {name: Exact.of(np.array(side, dtype=object)) for name, side in sides.items()}
    frame = frame_of(
        {
            **columns,
            **amount_columns(exact, amounts),
            "verdict": text(pa.array(verdicts, TEXT)),
            "line": integers(pa.array([pair.row and pair.row.line for pair in pairs], INTEGER)),
        }
    )
    frame.attrs |= {"at": moment, "list": listed.name}
    return frame


class _Pair(NamedTuple):
    """Numbers of a wallet and a token; the amounts of both sides; the list's first row, if any."""

    wallet: int
    token: int
    held: bool
    amount: int | None
    other_amount: int | None
    row: Listed | None


def _pairs(source: Source, listed: SecondList, filters: Filters, moment: str | None) -> list[_Pair]:
    balances = read_balances(source, filters, moment)
    balances = balances.rows(balances.amounts.nonzero())
    wallets = balances.wallets if listed.has_wallets else np.zeros_like(balances.wallets)
    ours: dict[tuple[int, int], int | None] = {}
    keys = zip(wallets.tolist(), balances.tokens.tolist(), strict=True)
    for key, amount in zip(keys, balances.amounts.exact().objects().tolist(), strict=True):
        known = ours.get(key, 0)
        ours[key] = None if known is None or amount is None else known + amount
    theirs, unknown = _by_number(source, listed, filters)
    return [
        _Pair(*key, key in ours, ours.get(key), *theirs.get(key, (None, None)))
        for key in sorted(ours.keys() | theirs.keys())
        if key[1] not in unknown
    ]


def _by_number(
    source: Source, listed: SecondList, filters: Filters
) -> tuple[dict[tuple[int, int], tuple[int, Listed]], set[int]]:
    """Return the list's sums by wallet and token number, each with its first row.

    Also return the tokens whose amount is unknown in a row.
    """
    chosen = None if filters.wallet_ids is None else {*wallet_numbers(source, filters.wallet_ids)}
    sums: dict[tuple[int, int], tuple[int, Listed]] = {}
    unknown: set[int] = set()
    for key, row in numbered(source, listed):
        if row.amount is None:
            unknown.add(key[1])
        elif chosen is None or row.wallet is None or key[0] in chosen:
            known, first = sums.get(key, (0, row))
            sums[key] = known + row.amount, first
    if unknown:
        left_out = f"{counted(len(unknown), 'token')} with an unknown amount in the list"
        warnings.warn(f"left out: {left_out}", NftsyncWarning, stacklevel=4)
    return sums, unknown


def _changed_after(
    source: Source, listed: SecondList, filters: Filters, moment: str | None
) -> set[tuple[int, int]]:
    if moment is None:
        return set()
    first, last = change_span(source, moment, None, after=True)
    wallets, tokens = change_log(
        source, ("wallet_no", "token_no"), first=first, last=last, filters=filters
    )
    numbers = wallets.to_pylist() if listed.has_wallets else [TOGETHER] * len(wallets)
    return {*zip(numbers, tokens.to_pylist(), strict=True)}


def _verdicts(pairs: Sequence[_Pair], changed: Container[tuple[int, int]]) -> list[str]:
    def verdict(pair: _Pair) -> str:
        if (pair.amount if pair.held else 0) == (pair.other_amount or 0):
            return "agrees"
        if pair.wallet >= UNKNOWN:
            return "unknown_wallet"
        if pair.token >= UNKNOWN:
            return "unknown_token"
        if pair[:2] in changed:
            return "in_motion"
        if not pair.held:
            return "only_there"
        return "amount_differs" if pair.other_amount else "only_here"

    return [*map(verdict, pairs)]


def _warn_of_old_reads(
    source: Source, pairs: Sequence[_Pair], verdicts: Sequence[str], filters: Filters, moment: str
) -> None:
    """Warn of wallets with differences that were last read before the time of the list."""
    pairs_of = zip(pairs, verdicts, strict=True)
    numbers = {pair.wallet for pair, verdict in pairs_of if verdict != "agrees"}
    condition, values = filters.where()
    if TOGETHER not in numbers:
        condition, values = f"wallet_no {IN_JSON}", (as_json([*numbers]),)
    query = f"SELECT count(*) FROM wallets WHERE {condition} AND ifnull(synced_at, '') < ?"
    if count := next(source.rows(query, (*values, moment)))[0]:
        were = "was" if count == 1 else "were"
        warnings.warn(
            f"{counted(count, 'wallet')} with differences {were} last read before {moment}; sync,"
            " and compare again",
            NftsyncWarning,
            stacklevel=3,
        )


def _named(source: Source, pairs: Sequence[_Pair]) -> dict[str, Any]:
    """Return the columns that name wallets and tokens; unknown ones are named as in the list."""
    wallets = np.array([pair.wallet for pair in pairs], np.int64)
    numbers = np.array([pair.token for pair in pairs], np.int64)
    known = np.unique(numbers[numbers < UNKNOWN])
    tokens = read_tokens(source, (*NAMING, "blockchain_token_id"), wanted=known)
    on_chain = taken(tokens.content["blockchain_token_id"], positions(tokens.numbers, numbers))
    columns = {**wallet_columns(source, wallets), **tokens.named(numbers)}
    columns["blockchain_token_id"] = text(on_chain)
    unknown = [
        (place, name, value)
        for place, pair in enumerate(pairs)
        for name, value in (_written(pair, pair.row) if pair.row else {}).items()
    ]
    for name, rows in pd.DataFrame(unknown, columns=["place", "name", "value"]).groupby("name"):
        columns[str(name)][rows["place"]] = rows["value"]
    return columns


def _written(pair: _Pair, row: Listed) -> dict[str, str | None]:
    """Return the columns of a wallet and token that the database lacks."""
    columns: dict[str, str | None] = {}
    if pair.wallet >= UNKNOWN:
        wallet = str(row.wallet)
        columns |= {"wallet_id": wallet.lower() if is_uuid(wallet) else None, "wallet": wallet}
    if pair.token >= UNKNOWN:
        token_id, address, number = row.token
        contract = address and contract_key(address)
        collection = contract and short_address(contract)
        columns |= {"token_id": token_id, "contract_address": address, "contract": contract}
        columns |= {"collection": collection, "blockchain_token_id": number}
        columns["nft"] = nft_name(None, collection, number, token_id or "")
    return columns
