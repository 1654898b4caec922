"""The measures of holdings by their definitions, in plain Python and exact fractions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

_ADDRESS = re.compile(r"0x[0-9a-f]{40}", re.ASCII)


@dataclass
class Group:
    """Who holds how much of a collection, and which of its tokens are held."""

    tokens: set[str] = field(default_factory=set)
    amounts: dict[str, int] = field(default_factory=dict)

    @property
    def holders(self) -> set[str]:
        return set(self.amounts)


def folded(address: str) -> str:
    """An address that is one whatever its case, in lower case; any other as it is."""
    lower = address.lower()
    return lower if _ADDRESS.fullmatch(lower) else address


def by_contract(
    wallets: Iterable[dict[str, Any]], *, exclude: Iterable[str] = ()
) -> dict[str, Group]:
    """The groups of a file of wallets, without some wallets; a balance of 0 is no holding."""
    groups: dict[str, Group] = {}
    left_out = set(exclude)
    for line in wallets:
        wallet = line["walletId"]
        if wallet in left_out:
            continue
        for balance in line["nftTokenBalances"]:
            amount = int(balance["amount"])
            if amount:
                group = groups.setdefault(folded(balance["token"]["contractAddress"]), Group())
                group.tokens.add(balance["tokenId"])
                group.amounts[wallet] = group.amounts.get(wallet, 0) + amount
    return groups


def measures(group: Group) -> dict[str, int | Fraction]:
    """The measures of one group, by the names of their columns."""
    amounts = sorted(group.amounts.values())
    total, count = sum(amounts), len(amounts)
    weighted = sum(place * amount for place, amount in enumerate(amounts, start=1))
    running = majority = 0
    for amount in reversed(amounts):
        running, majority = running + amount, majority + 1
        if 2 * running > total:
            break
    return {
        "tokens": len(group.tokens),
        "holders": count,
        "amount": total,
        "top1_share": Fraction(amounts[-1], total),
        "top10_share": Fraction(sum(amounts[-10:]), total),
        "hhi": Fraction(sum(amount**2 for amount in amounts), total**2),
        "gini": Fraction(2 * weighted, count * total) - Fraction(count + 1, count),
        "nakamoto": majority,
    }


def common(groups: dict[str, Group], one: str, other: str) -> dict[str, int | Fraction]:
    """What two groups' holders have in common, by the names of the columns."""
    a, b = groups[one].holders, groups[other].holders
    return {
        "wallets_a": len(a),
        "wallets_b": len(b),
        "both": len(a & b),
        "jaccard": Fraction(len(a & b), len(a | b)),
    }
