"""Which contracts have holders in common.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

import pandas as pd

from nftsync.columnar.given import Given, given_holdings
from nftsync.columnar.holders import compared, shared
from nftsync.store.wallets import GroupNames, WalletIds


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
    frame = given_holdings(
        holdings,
        exclude,
        wallet=wallet,
        group=group,
        contract=contract,
        needs=needs,
        wants=("collection",),
    )
    return compared(shared(frame))
