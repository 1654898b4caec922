"""What was known at a time: balances from the change log, and the reads around that time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nftsync.frames._amounts import Amounts
from nftsync.frames._balances import Balances
from nftsync.frames._change_log import change_log
from nftsync.frames._columns import INTEGER, TEXT, Times, moments
from nftsync.frames._source import IN_JSON, Numbers, Parameters, Source, as_json, positions

__all__ = ["Confirmations", "balances_at", "read_confirmations"]


def balances_at(source: Source, moment: str, wallets: Numbers | None) -> Balances:
    """Replay the change log up to a time, that time included.

    Args:
        source: where to read.
        moment: the time in the stored form.
        wallets: numbers of the wallets that are needed; None is all.
    """
    bound = source.first_change("balance_change_rows", moment, later=True)
    names = ("wallet_no", "token_no", "new_amount", "observed_at")
    if wallets is None:
        _, wallet, token, amount, observed = source.table(change_log(*names, last=bound - 1))
    else:
        wallet, token, amount, observed = source.columns(
            f"SELECT {', '.join(names)} FROM balance_change_rows"  # noqa: S608
            f" WHERE change_id < ? AND wallet_no {IN_JSON} ORDER BY wallet_no, change_id",
            [INTEGER, INTEGER, TEXT, TEXT],
            (bound, as_json(wallets)),
        )
    return _replay(wallet.to_numpy(), token.to_numpy(), Amounts(amount), moments(observed))


def _replay(wallet: Numbers, token: Numbers, amounts: Amounts, observed: Times) -> Balances:
    """Keep the last of the changes of each wallet and token, which come in order."""
    if not len(wallet):
        return Balances(wallet, token, amounts, observed, observed)
    order = np.argsort(wallet * (token.max() + 1) + token, kind="stable")
    wallet, token = wallet[order], token[order]
    held = amounts.nonzero()[order]
    next_differs = (wallet[1:] != wallet[:-1]) | (token[1:] != token[:-1])
    # Where a holding begins: non-zero now, and nothing, zero or another pair in the row before.
    begins = held.copy()
    begins[1:] &= next_differs | ~held[:-1]
    began = np.maximum.accumulate(np.where(begins, np.arange(len(held)), 0))
    last = np.append(next_differs, True) & (amounts.codes[order] >= 0)
    rows = order[last]
    since = np.where(held[last], observed[order[began[last]]], np.datetime64("NaT", "us"))
    return Balances(wallet[last], token[last], amounts.chosen(rows), since, observed[rows])


@dataclass(frozen=True)
class Confirmations:
    """The reads around a time, for wallets in the order of their numbers.

    Attributes:
        before: when the state of that time was read, at the latest by then.
        after: when it was read again, or first found changed; NaT: no read since.
        certainty: `bracketed`, `gap` or `open`.
    """

    before: Times
    after: Times
    certainty: pa.Array


#: S is the last state before the bound, N the wallet's next one.
_AROUND = """
    SELECT w.wallet_no, s.first_read_at, s.last_read_at, (
        SELECT n.first_read_at FROM wallet_state_rows n
        WHERE n.wallet_no = w.wallet_no AND n.state_id >= ?
        ORDER BY n.state_id LIMIT 1)
    FROM wallets w LEFT JOIN wallet_state_rows s ON s.state_id = (
        SELECT max(state_id) FROM wallet_state_rows
        WHERE wallet_no = w.wallet_no AND state_id < ?)
"""


def read_confirmations(
    source: Source, moment: str, wallets: Numbers, *, everything: bool
) -> Confirmations:
    """Find how well a time lies between two reads of each wallet.

    Args:
        source: where to read.
        moment: the time in the stored form.
        wallets: the numbers of the wallets, ascending.
        everything: whether these are all wallets.
    """
    bound = source.first_change("wallet_state_rows", moment, later=True, key="state_id")
    where = ""
    parameters: Parameters = (bound, bound)
    if not everything:
        where, parameters = f"WHERE w.wallet_no {IN_JSON}", (bound, bound, as_json(wallets))
    numbers, first, last, following = source.columns(
        f"{_AROUND} {where} ORDER BY w.wallet_no", [INTEGER, TEXT, TEXT, TEXT], parameters
    )
    place = positions(numbers.to_numpy(), wallets)
    then = moments(pa.array([moment]))[0]
    first_at, last_at, next_at = (moments(column)[place] for column in (first, last, following))
    bracketed = last_at >= then
    return Confirmations(
        before=np.where(bracketed, first_at, last_at),
        after=np.where(bracketed, last_at, next_at),
        certainty=pa.array(
            np.select([bracketed, ~np.isnat(next_at)], ["bracketed", "gap"], "open"), TEXT
        ),
    )
