"""All explanations of the movements of one token: pairs of losses and gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeAlias

from nftsync.movements import Movement, overlap

#: Amounts by the positions of loss and gain.
Flow: TypeAlias = dict[tuple[int, int], int]


def flows(movements: Sequence[Movement[int]], amounts: Sequence[int]) -> Iterator[Flow]:
    """Yield all assignments of losses to gains of other wallets in overlapping times."""
    losses = [place for place, amount in enumerate(amounts) if amount < 0]
    gains = [place for place, amount in enumerate(amounts) if amount > 0]
    edges = [
        (loss, gain)
        for loss, gain in product(losses, gains)
        if movements[loss].wallet != movements[gain].wallet
        and overlap(movements[loss], movements[gain])
    ]

    def from_edge(number: int, left: list[int], flow: Flow) -> Iterator[Flow]:
        if number == len(edges):
            yield dict(flow)
            return
        loss, gain = edges[number]
        for size in range(min(-left[loss], left[gain]) + 1):
            left[loss] += size
            left[gain] -= size
            yield from from_edge(number + 1, left, {**flow, (loss, gain): size} if size else flow)
            left[loss] -= size
            left[gain] += size

    yield from from_edge(0, list(amounts), {})


def explanations(movements: Sequence[Movement[int]]) -> Iterator[list[Flow]]:
    """Yield the largest flows, for each size that movements of unknown size can have."""
    sizes = [(-2, -1, 1, 2) if m.amount is None else (m.amount,) for m in movements]
    for amounts in product(*sizes):
        flow_list = list(flows(movements, amounts))
        most = max(sum(flow.values()) for flow in flow_list)
        yield [flow for flow in flow_list if sum(flow.values()) == most]
