"""Balances as they are now, read narrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nftsync.frames._amounts import Amounts
from nftsync.frames._columns import INTEGER, TEXT, Times, coded, moments
from nftsync.frames._contracts import is_hex_address
from nftsync.frames._source import IN_JSON, Numbers, Parameters, Source, as_json
from nftsync.frames._stretches import Table

__all__ = ["Balances", "read_balances"]


@dataclass(frozen=True)
class Balances:
    """A row per wallet and token that it lists, by number.

    Attributes:
        wallets: the wallet's number.
        tokens: the token's number.
        amounts: how much.
        held_since: start of the present stretch of non-zero amounts; NaT where it is zero.
        updated_at: when the amount last changed.
    """

    wallets: Numbers
    tokens: Numbers
    amounts: Amounts
    held_since: Times
    updated_at: Times

    def chosen(self, rows: npt.NDArray[np.bool_]) -> Balances:
        """The rows of a mask."""
        if rows.all():
            return self
        return Balances(
            self.wallets[rows],
            self.tokens[rows],
            self.amounts.chosen(rows),
            self.held_since[rows],
            self.updated_at[rows],
        )


#: Both times as one value, a value less to fetch: in nearly all rows they are the same. No time
#: that can be read holds a bar.
_BOTH_TIMES = (
    "iif(held_since IS updated_at, updated_at, updated_at || '|' || ifnull(held_since, ''))"
)


def read_balances(source: Source, wallets: Numbers | None, contract: str | None) -> Balances:
    """Read the balances of some wallets or all.

    Args:
        source: where to read.
        wallets: numbers of the wallets that are needed; None is all.
        contract: the only contract that is needed; balances of others may come too.
    """
    parameters: Parameters
    if wallets is not None:
        where, parameters = f"WHERE wallet_no {IN_JSON}", (as_json(wallets),)
    elif contract is not None:
        same = "= ? COLLATE NOCASE" if is_hex_address(contract) else "= ?"
        where = f"WHERE token_no IN (SELECT token_no FROM tokens WHERE contract_address {same})"  # noqa: S608
        parameters = (contract,)
    else:
        columns = [("amount", TEXT), (_BOTH_TIMES, TEXT)]
        return _balances(source.table(Table("balance_rows", ("wallet_no", "token_no"), columns)))
    return _balances(
        source.columns(
            f"SELECT wallet_no, token_no, amount, {_BOTH_TIMES}"  # noqa: S608
            f" FROM balance_rows {where} ORDER BY wallet_no, token_no",
            [INTEGER, INTEGER, TEXT, TEXT],
            parameters,
        )
    )


def _balances(columns: list[pa.Array]) -> Balances:
    wallet, token, amount, both = columns
    since, updated = _two_times(both)
    return Balances(wallet.to_numpy(), token.to_numpy(), Amounts(amount), since, updated)


def _two_times(both: pa.Array) -> tuple[Times, Times]:
    codes, distinct = coded(both)
    pairs = [text.partition("|") for text in distinct.to_pylist()]
    since = [since or None if bar else updated for updated, bar, since in pairs]
    updated = [updated for updated, _, _ in pairs]
    return moments(pa.array(since, TEXT))[codes], moments(pa.array(updated, TEXT))[codes]
