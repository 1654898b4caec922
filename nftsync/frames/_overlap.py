"""Which contracts have holders in common.

Source: provider's document, sections NFT token balance and Token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from nftsync.frames._columns import coded, first_of_each, frame_of, run_starts, text
from nftsync.frames._contracts import contract_groups
from nftsync.frames._given import Given, contract_names, given_holdings, text_column
from nftsync.frames._source import Numbers
from nftsync.store.wallets import GroupNames, WalletIds

#: Pairs that are compared at once (32 MB).
_PAIRS_AT_ONCE = 1 << 22


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
        StoreError: the database is missing, is not nftsync's or cannot be read.
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


@dataclass(frozen=True)
class Shared:
    """Contracts, and the wallets that hold two of them.

    Attributes:
        contracts: their addresses in one spelling, ascending.
        called: their names.
        rows: the first row that names each.
        wallets: how many hold each.
        first: of each pair the lesser contract, by position.
        second: the greater.
        both: how many wallets hold both. Pairs are in order.
    """

    contracts: pa.Array
    called: pa.Array
    rows: Numbers
    wallets: Numbers
    first: Numbers
    second: Numbers
    both: Numbers


def shared(frame: pd.DataFrame) -> Shared:
    """Count the wallets that contracts share.

    Args:
        frame: holdings that count, as `given_holdings` gives them.

    Raises:
        InputError: it has an unusable column.
    """
    wallet, _ = coded(text_column(frame, "wallet_id"))
    contract, keys, called, rows = _by_contract(frame)
    named = contract < len(keys)
    held = np.sort(wallet[named].astype(np.int64) * len(keys) + contract[named])
    # Once each.
    holder, contract = np.divmod(held[run_starts(held)], max(len(keys), 1))
    wallets = np.bincount(contract, minlength=len(keys))
    return Shared(keys, called, rows, wallets, *_common(holder, contract))


def compared(found: Shared) -> pd.DataFrame:
    """What `overlap` returns."""
    order = np.argsort(-found.both, kind="stable")
    first, second, both = found.first[order], found.second[order], found.both[order]
    wallets_a, wallets_b = found.wallets[first], found.wallets[second]
    return frame_of(
        {
            "contract_a": text(found.contracts.take(pa.array(first))),
            "contract_b": text(found.contracts.take(pa.array(second))),
            "collection_a": text(found.called.take(pa.array(first))),
            "collection_b": text(found.called.take(pa.array(second))),
            "wallets_a": wallets_a,
            "wallets_b": wallets_b,
            "both": both,
            "jaccard": both / (wallets_a + wallets_b - both),
        }
    )


def _by_contract(frame: pd.DataFrame) -> tuple[Numbers, pa.Array, pa.Array, Numbers]:
    """Number each row's contract in the order of addresses; the last number is of those without.

    Returns:
        The numbers, and by number the address in one spelling, the contract's name and first row.
    """
    contract, spellings = contract_groups(text_column(frame, "contract_address"))
    addresses = spellings[:-1]
    rows = first_of_each(contract)[: len(addresses)]
    keys, called = contract_names(frame, rows, addresses).values()
    order = pc.sort_indices(keys)
    number = np.append(np.empty(len(keys), dtype=np.int64), len(keys))
    number[order.to_numpy()] = np.arange(len(keys))
    return number[contract], keys.take(order), called.take(order), rows[order.to_numpy()]


def _common(wallet: Numbers, contract: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Count common wallets by pair of contracts: the lesser, the greater, how many; in order.

    Args:
        wallet: of each contract that a wallet holds, ascending.
        contract: the contract, ascending within a wallet.
    """
    width = int(contract.max(initial=0)) + 1
    # How many contracts of the same wallet follow: with each of them it makes a pair.
    later = np.cumsum(np.bincount(wallet))[wallet] - np.arange(len(wallet)) - 1
    rows = np.argsort(contract, kind="stable")
    starts = run_starts(contract[rows])
    # A contract's pairs stay together, and about as many pairs as fit the memory.
    part = (np.cumsum(later[rows]) - later[rows])[starts] // _PAIRS_AT_ONCE
    found = [np.empty((2, 0), dtype=np.int64)]
    for some in np.split(rows, starts[run_starts(part)][1:]):
        ends = np.cumsum(later[some])
        follower = np.arange(later[some].sum()) + np.repeat(
            some + 1 - (ends - later[some]), later[some]
        )
        keys = np.sort(np.repeat(contract[some], later[some]) * width + contract[follower])
        starts_of_pairs = run_starts(keys)
        counts = np.diff(starts_of_pairs, append=len(keys))
        found.append(np.stack((keys[starts_of_pairs], counts)))
    keys, both = np.concatenate(found, axis=1)
    return *np.divmod(keys, width), both
