"""Analyses of holders: concentration, and overlap between contracts.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from nftsync.columnar.amounts import AmountKind
from nftsync.columnar.given import (
    Given,
    given_holdings,
)
from nftsync.columnar.holders import check_grouping, compared, concentrated, shared
from nftsync.store.wallets import GroupNames, WalletIds


def concentration(
    holdings: Given = None,
    by: str = "contract_address",
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
    amounts: AmountKind = None,
) -> pd.DataFrame:
    """How unevenly each group's amount is spread over its holders, the most held group first.

    A holder is a wallet with more than zero of a token of the group; who owns several wallets looks
    like several holders. Holder i of a group's n holders has x_i: the exact sum of what it holds of
    the group's tokens; S is the sum of all x_i. Every measure is worked out in integers and divided
    once, so each is the nearest float.

    A holding whose amount is unknown (the provider's text is not 1 to 100 ASCII digits) counts in
    `tokens`, `holders` and `unknown_amounts`, but not in the amounts: x_i is then what is known of
    the holder, and a holder of whom nothing is known is not one of the n. If nothing is known of a
    group, its shares, `hhi` and `gini` are NaN and its `nakamoto` is missing.

    Args:
        holdings: a frame as `frames.holdings` returns it, or what to read it from.
        by: the column that names the groups, any of the frame; rows where it is missing are a
            group of their own. A `contract_address` of `0x` and 40 hex digits is one group
            whatever its case, and shows as first spelled.
        wallet: of a database, only what these wallets hold.
        group: of a database, only what wallets of these groups hold.
        contract: of a database, only tokens of this contract.
        exclude: wallets to leave out, such as burn addresses and treasuries; one or several,
            by id or label.
        amounts: what `amount` is to be, as `nftsync.frames` tells.

    Returns:
        A row per group, by holders and then by name:

        - the column that `by` names; with `contract_address` or `contract` also `contract` (the
          address in one spelling) and `collection` (what it is called)
        - `tokens`, `holders`: distinct tokens that are held, and wallets that hold one
        - `amount`: S, exact
        - `top1_share`, `top10_share`: the sum of the greatest x_i, or the ten greatest, over S;
          0 to 1
        - `hhi`: the Herfindahl-Hirschman index, the sum of (x_i / S)²; from 1/n (all hold the
          same) to 1 (one holds all)
        - `gini`: the Gini coefficient over the n holders, with x ascending and i from 1:
          2 Σ i·x_i / (n S) - (n + 1) / n; 0 (all hold the same) to 1 - 1/n
        - `nakamoto`: the Nakamoto coefficient, the fewest holders who together have more than half
          of S; `Int64`
        - `unknown_amounts`: holdings (rows) whose amount is unknown

    Raises:
        InputError: the frame has no such column or an unusable one, `by` is the name of a column
            that is returned, the amounts do not fit the `amounts` that was asked for, an excluded
            wallet is none, or a filter is, or is one of a frame.
    """
    check_grouping(by)
    needs = ("wallet_id", "token_id", "amount", by)
    some: Any = {"wallet": wallet, "group": group, "contract": contract}
    frame = given_holdings(holdings, exclude, needs=needs, wants=("collection",), **some)
    return concentrated(frame, by, amounts)


def overlap(
    holdings: Given = None,
    *,
    wallet: WalletIds | None = None,
    group: GroupNames | None = None,
    contract: str | None = None,
    exclude: WalletIds = (),
) -> pd.DataFrame:
    """Return how many holders each two contracts have in common, the most first.

    A holder of a contract is a wallet with more than zero of one of its tokens, also where the
    amount is unknown (the provider's text is not 1 to 100 ASCII digits). Tokens without a contract
    are left out, and so are pairs without a common holder. A wallet that holds n contracts makes
    n (n - 1) / 2 pairs: leave out the wallets that hold everything, such as burn addresses.

    Args:
        holdings: a frame as `frames.holdings` returns it, or a path, a `sqlite3.Connection`, a
            `sqlite_utils.Database`, or None for the configured database.
        wallet: of a database, only what these wallets hold.
        group: of a database, only what wallets of these groups hold.
        contract: of a database, only tokens of this contract.
        exclude: wallets to leave out; one or several, by id or label.

    Returns:
        A row per pair of contracts, by `both`, then by the names:

        - `contract_a`, `contract_b`: their addresses in one spelling, as `contract` has them, the
          lesser text first
        - `collection_a`, `collection_b`: what they are called
        - `wallets_a`, `wallets_b`: holders of each
        - `both`: wallets that hold both
        - `jaccard`: the Jaccard index, `both` over the wallets that hold at least one of the two,
          `wallets_a + wallets_b - both`; over 0, to 1 (the same wallets)

        The fields are `amount` and `contractAddress` of the provider's document, sections "NFT
        token balance" and "Token".

    Raises:
        InputError: the frame lacks a column or has an unusable one, an excluded wallet is none, or
            a filter is, or is one of a frame.
    """
    needs = ("wallet_id", "contract_address", "amount")
    some: Any = {"wallet": wallet, "group": group, "contract": contract}
    frame = given_holdings(holdings, exclude, needs=needs, wants=("collection",), **some)
    return compared(shared(frame))
