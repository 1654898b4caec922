"""Which contracts have holders in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import coded, contract_groups, frame_of, text
from nftsync.frames._given import Given, given_holdings, text_column
from nftsync.frames._source import Numbers
from nftsync.frames._tables import WalletIds

__all__ = ["overlap"]

#: Pairs that are looked at together, 32 MB of them.
_PAIRS_AT_ONCE = 1 << 22


def overlap(holdings: Given = None, *, exclude: WalletIds = ()) -> pd.DataFrame:
    """How many holders each two contracts have in common, the most first.

    A holder of a contract is a wallet with more than zero of one of its tokens, also where the
    amount is unknown (the provider's text is not 1 to 100 ASCII digits). Tokens without a contract
    are left out, and so are pairs without a common holder. A wallet that holds n contracts makes
    n (n - 1) / 2 pairs: leave out the wallets that hold everything, such as burn addresses.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a path, a `sqlite3.Connection`, a
            `sqlite_utils.Database`, or None for the configured database.
        exclude: wallets to leave out; one id or several.

    Returns:
        A row per pair of contracts, by `both`, then by the names:

        - `contract_a`, `contract_b`: their addresses, the lesser text first. Addresses of `0x` and
          40 hex digits are one contract whatever their case, and show as first spelled.
        - `wallets_a`, `wallets_b`: holders of each
        - `both`: wallets that hold both
        - `jaccard`: the Jaccard index, `both` over the wallets that hold at least one of the two,
          `wallets_a + wallets_b - both`; over 0, to 1 (the same wallets)

        The fields are `amount` and `contractAddress` of the provider's document, sections "NFT
        token balance" and "Token".

    Raises:
        InputError: the frame lacks a column or has an unusable one, or an excluded id is no UUID.
        StoreError: the database is missing, is not nftsync's or cannot be read.
    """
    frame = given_holdings(holdings, exclude, needs=("wallet_id", "contract_address", "amount"))
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    wallet, _ = coded(text_column(frame, "wallet_id"))
    names, contract = _by_name(spellings, contract)
    held = _Held.of(wallet[contract < len(names)], contract[contract < len(names)], len(names))
    first, second, both = _common(held)
    order = np.argsort(-both, kind="stable")
    first, second, both = first[order], second[order], both[order]
    wallets_a, wallets_b = held.wallets[first], held.wallets[second]
    return frame_of(
        {
            "contract_a": text(names.take(pa.array(first))),
            "contract_b": text(names.take(pa.array(second))),
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_name(spellings: pa.Array, contract: Numbers) -> tuple[pa.Array, Numbers]:
    """Number contracts in the order of their names; the last, which has none, stays last."""
    names = spellings[:-1]
    order = pc.sort_indices(names).to_numpy()
    number = np.empty(len(spellings), dtype=np.int64)
    number[order] = np.arange(len(names))
    number[-1] = len(names)
    return names.take(pa.array(order)), number[contract]


@dataclass(frozen=True)
class _Held:
    """Which wallet holds which contracts: once each, by wallet and then by contract.

    Attributes:
        contract: the contract's number.
        later: how many contracts of the same wallet follow.
        wallets: by contract, how many wallets hold it.
    """

    contract: Numbers
    later: Numbers
    wallets: Numbers

    @classmethod
    def of(cls, wallet: npt.NDArray[np.int32], contract: Numbers, count: int) -> _Held:
        key = np.sort(wallet.astype(np.int64) * (count + 1) + contract)
        key = key[np.append(True, key[1:] != key[:-1])[: len(key)]]
        wallet_of, contract = np.divmod(key, count + 1)
        ends = np.cumsum(np.bincount(wallet_of))
        later = ends[wallet_of] - np.arange(len(key)) - 1
        return cls(contract, later, np.bincount(contract, minlength=count))


def _common(held: _Held) -> tuple[Numbers, Numbers, Numbers]:
    """Count common wallets by pair of contracts: the lesser, the greater, how many; in order."""
    width = len(held.wallets)
    none = np.empty(0, dtype=np.int64)
    parts = [(none, none), *(_counted(held, rows, width) for rows in _spans(held))]
    keys, both = (np.concatenate(part) for part in zip(*parts, strict=True))
    first, second = np.divmod(keys, max(width, 1))
    return first, second, both


def _spans(held: _Held) -> Iterator[Numbers]:
    """Cut what is held, ordered by contract, where a contract ends and enough pairs are made."""
    rows = np.argsort(held.contract, kind="stable")
    rows = rows[held.later[rows] > 0]
    contract = held.contract[rows]
    ends = np.flatnonzero(np.append(contract[1:] != contract[:-1], True)[: len(rows)]) + 1
    made = np.cumsum(held.later[rows])[ends - 1]
    start = first = 0
    while first < len(ends):
        most = _PAIRS_AT_ONCE + (made[first - 1] if first else 0)
        # One contract at least, even if it makes more.
        first = max(first + 1, int(np.searchsorted(made, most, side="right")))
        yield rows[start : ends[first - 1]]
        start = ends[first - 1]


def _counted(held: _Held, rows: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Count the pairs whose lesser contract is that of one of these rows.

    Returns:
        The pairs as lesser times `width` plus greater, ascending, and how often each is made.
    """
    lowest = held.contract[rows[0]] * width
    cells = (held.contract[rows[-1]] + 1) * width - lowest
    made = np.cumsum(held.later[rows])
    if made[-1] * 2 < cells and made[-1] <= _PAIRS_AT_ONCE:
        keys = np.sort(_pairs(held, rows, width))
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        return keys[starts], np.diff(starts, append=len(keys))
    counts = np.zeros(cells, dtype=np.int64)
    cuts = np.searchsorted(made, np.arange(_PAIRS_AT_ONCE, made[-1], _PAIRS_AT_ONCE))
    for part in np.split(rows, np.unique(cuts)):
        counts += np.bincount(_pairs(held, part, width) - lowest, minlength=cells)
    keys = np.flatnonzero(counts)
    return keys + lowest, counts[keys]


def _pairs(held: _Held, rows: Numbers, width: int) -> Numbers:
    """The contract of each row, paired with each that follows it in the row's wallet."""
    later = held.later[rows]
    ends = np.cumsum(later)
    follower = np.arange(later.sum()) + np.repeat(rows + 1 - (ends - later), later)
    keys: Numbers = np.repeat(held.contract[rows], later) * width + held.contract[follower]
    return keys
