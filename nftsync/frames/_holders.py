"""Concentration of holders, and overlap of holders between contracts.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.hidden import HIDDEN, marked
from nftsync.columnar.holders import check_grouping, concentration_frame, overlap_frame, overlap_of
from nftsync.columnar.inputs import FrameOrDb, load_holdings
from nftsync.store.wallets import GroupNames, WalletIds


def concentration(
    holdings: FrameOrDb = None,
    by: str = "contract_address",
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """Measure how unevenly the holders of each group share its amount.

    Shared parameters: see `nftsync.frames`. `by` is the column to group by, any column of the
    frame. Missing values form one group. Spellings of one hex address are one contract,
    with the first spelling seen.

    A holder is a wallet that holds a token of the group; two wallets of one owner count as two
    holders. nftsync computes each measure in integers and divides once, so each is the nearest
    float. With n holders, `hhi` is from 1/n (equal amounts) to 1 (one holder has all), and `gini`
    from 0 (equal amounts) to 1 - 1/n.

    A holding with an unknown amount counts in `tokens`, `holders` and `unknown_amounts`, but in no
    measure. A holder with only unknown amounts does not count in n. If a group has no known amount,
    its shares, `hhi` and `gini` are NaN and its `nakamoto` is missing.

    Returns:
        A row per group, by holders and then by name; columns: `frames.explain("concentration")`.
        The column of `by` replaces `contract_address`; `contract` and `collection` are only
        in groups by an address.

    Raises:
        InputError: `by` is also the name of a column of the result.
    """
    check_grouping(by)
    needs = ("wallet_id", "token_id", "amount", by)
    filters: Any = {"wallet": wallet, "group": group, "contract": contract, "hidden": hidden}
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",), **filters)
    return marked(concentration_frame(frame, by, amounts), frame.attrs.get(HIDDEN, 0))


def overlap(
    holdings: FrameOrDb = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    hidden: bool = False,
) -> pd.DataFrame:
    """Count the common holders of each pair of contracts.

    Shared parameters: see `nftsync.frames`. A holder of a contract is a wallet that holds one of
    its tokens. Tokens without a contract and pairs without a common holder are left out. A wallet
    with tokens of n contracts adds to n (n - 1) / 2 pairs, so exclude wallets that hold everything.

    Returns:
        A row per pair of contracts, by `both`, then by name, the lesser address first; columns:
        `frames.explain("overlap")`.
    """
    needs = ("wallet_id", "contract_address", "amount")
    filters: Any = {"wallet": wallet, "group": group, "contract": contract, "hidden": hidden}
    frame = load_holdings(holdings, exclude, needs=needs, wants=("collection",), **filters)
    return marked(overlap_frame(overlap_of(frame)), frame.attrs.get(HIDDEN, 0))
