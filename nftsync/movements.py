"""Matching of losses and gains of one token: which of them form a transfer.

A movement is a change of a wallet's balance. The provider names no transfers, so they are inferred:
the loss of one wallet and the gain of another can be a transfer if both were observed within
overlapping times. nftsync names a pair only if no other explanation of the movements exists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

#: A time: text in the stored form, or a number.
Moment = TypeVar("Moment", int, str)


class Movement(NamedTuple, Generic[Moment]):
    """A change of one wallet's balance of a token, which happened after `after` and until `at`.

    Attributes:
        wallet: the wallet, by any key.
        amount: a gain above 0, a loss below; None: the size is unknown.
        after: when the wallet was last read before the change; None: it was not. A time that is not
            before `at` counts as None, because then the clock was set back.
        at: when the change was stored.
    """

    wallet: Hashable
    amount: int | None
    after: Moment | None
    at: Moment

    @property
    def begins(self) -> Moment | None:
        """The start of the movement's window; None: unbounded."""
        return None if self.after is None or self.after >= self.at else self.after


def overlap(one: Movement[Moment], other: Movement[Moment]) -> bool:
    """Tell whether the windows of two movements have a time in common."""
    begins, other_begins = one.begins, other.begins
    return (begins is None or begins < other.at) and (other_begins is None or other_begins < one.at)


#: Links between candidates, and such links per movement, beyond which a group of movements is left
#: ambiguous. Without a limit, the time would grow with the square of the number of movements.
_MOST_LINKS, _MOST_LINKS_EACH = 100_000, 30


def pairs(movements: Sequence[Movement[Moment]]) -> list[tuple[int, int]]:
    """Find the losses and gains that can only be transfers.

    A loss and a gain of two wallets are candidates of each other if their windows overlap. Their
    amounts do not matter for that: a loss of 2 can be 1 for a known wallet and 1 for an unknown
    one. The rule pairs movements until none is left:

    - If a movement has exactly one candidate left, the two are a pair.
    - If all its candidates left are of one wallet, only their times are uncertain, not the wallet.
      It is paired with the candidate whose own candidates the others have too, as the others can
      stand in for that one.

    Both amounts of a pair must be equal. Pairs are named only if all movements that are linked by
    candidates leave. Then every explanation of all of them has the same amounts going from the same
    wallets to the same wallets, and every other explanation leaves some of them unexplained.
    Otherwise none of these movements is named. That includes groups with too many candidates to
    examine, and groups with a movement of unknown size.

    Holdings in a wallet's first read are not movements, because their start date is unknown. They
    need no explanation, and leaving them out is sound: if a loss had gone there, the gain named now
    would be unexplained. A caller with more knowledge can pass them as gains.

    Args:
        movements: the movements of one token, in any order.

    Returns:
        Positions of the loss and the gain of each pair, in order of the losses.
    """
    named: list[tuple[int, int]] = []
    for cluster in _clusters(movements):
        if len(cluster) < 3:  # a shortcut, as this is by far the most frequent case
            named += _of_two(movements, cluster)
            continue
        candidates = _candidates(movements, cluster)
        for linked in _components(candidates):
            named += _peeled(movements, candidates, linked)
    return sorted(named)


def _clusters(movements: Sequence[Movement[Moment]]) -> Iterator[list[int]]:
    """Split the movements where no window spans; each part is in the order of their beginnings."""
    unbounded, bounded = [], []
    for place, movement in enumerate(movements):
        begins = movement.begins
        if begins is None:
            unbounded.append(place)
        else:
            bounded.append((begins, place))
    cluster = unbounded
    last = max((movements[place].at for place in cluster), default=None)
    for begins, place in sorted(bounded):
        if last is not None and begins >= last:
            yield cluster
            cluster = []
        cluster.append(place)
        at = movements[place].at
        last = at if last is None else max(last, at)
    yield cluster


def _of_two(movements: Sequence[Movement[Moment]], cluster: list[int]) -> list[tuple[int, int]]:
    """Pair the only two movements of a cluster, if they are a pair."""
    if len(cluster) < 2:
        return []
    one, two = movements[cluster[0]], movements[cluster[1]]
    if not one.amount or two.amount != -one.amount or one.wallet == two.wallet:
        return []
    if not overlap(one, two):
        return []
    return [(cluster[0], cluster[1]) if one.amount < 0 else (cluster[1], cluster[0])]


def _candidates(
    movements: Sequence[Movement[Moment]], cluster: Sequence[int]
) -> dict[int, set[int]]:
    """Link each movement of a cluster to its candidates; empty if there are too many."""
    candidates: dict[int, set[int]] = {place: set() for place in cluster}
    most = max(_MOST_LINKS, _MOST_LINKS_EACH * len(cluster))
    running: dict[bool | None, list[int]] = {True: [], False: [], None: []}
    for place in cluster:
        movement = movements[place]
        if movement.amount == 0:
            continue
        gain = None if movement.amount is None else movement.amount > 0
        for side in running:
            if side == gain and gain is not None:
                continue
            running[side] = [
                other for other in running[side] if overlap(movements[other], movement)
            ]
            linked = [
                other for other in running[side] if movements[other].wallet != movement.wallet
            ]
            candidates[place].update(linked)
            for other in linked:
                candidates[other].add(place)
            most -= len(linked)
        if most < 0:
            return {}
        running[gain].append(place)
    return candidates


def _components(candidates: dict[int, set[int]]) -> Iterator[list[int]]:
    """Split the movements that have candidates into groups that candidates link."""
    seen: set[int] = set()
    for start, linked in candidates.items():
        if start in seen or not linked:
            continue
        component = [start]
        seen.add(start)
        for place in component:  # grows meanwhile
            new = candidates[place] - seen
            seen |= new
            component += new
        yield component


def _peeled(
    movements: Sequence[Movement[Moment]], candidates: dict[int, set[int]], component: list[int]
) -> list[tuple[int, int]]:
    """Pair linked movements by the rule of `pairs`; empty unless that pairs all of them."""
    amounts = {place: movements[place].amount for place in sorted(component)}
    sizes = {place: amount for place, amount in amounts.items() if amount is not None}
    if len(sizes) < len(amounts) or sum(sizes.values()) != 0:
        return []
    named: list[tuple[int, int]] = []
    left = {place: set(candidates[place]) for place in sizes}

    def partner(place: int) -> int | None:
        """The candidate that the rule pairs a movement with, if it applies."""
        linked = left[place]
        if len({movements[other].wallet for other in linked}) != 1:
            return None
        fitting = [other for other in linked if sizes[other] == -sizes[place]]
        best = min(fitting, key=lambda other: (len(left[other]), other), default=None)
        if best is None or not all(left[best] <= left[other] for other in linked):
            return None
        return best

    single = [place for place in left if len(left[place]) == 1]
    while left:
        while single and single[-1] not in left:
            single.pop()
        # If no movement has one candidate, all are tried.
        tried = [single.pop()] if single else left
        pair = next(((one, two) for one in tried if (two := partner(one)) is not None), None)
        if pair is None:
            return []
        named.append(pair if sizes[pair[0]] < 0 else (pair[1], pair[0]))
        for leaving in pair:
            for neighbor in left.pop(leaving):
                if neighbor in left:
                    left[neighbor].discard(leaving)
                    if len(left[neighbor]) == 1:
                        single.append(neighbor)
    return named


class Flow(NamedTuple):
    """An amount that a loss and a gain can have in common; both are positions in a sequence."""

    loss: int
    gain: int
    amount: int


def explain_losses(movements: Sequence[Movement[Moment]]) -> list[Flow]:
    """Find gains of other wallets that can explain losses, and use each amount once.

    `pairs` names transfers, so it leaves out whatever has a second explanation. This function says
    how much of the losses can be transfers at all. It explains as much as possible, apart from
    rare cases in which a wallet both gains and loses the token.

    Args:
        movements: the movements of one token, in any order; none of unknown size.

    Returns:
        A flow for each loss and gain that have an amount in common.
    """
    left = [abs(movement.amount or 0) for movement in movements]
    # Of gains and of losses, those that may have something left, in the order of their ends; and
    # how many of these have nothing left.
    opened: dict[bool, list[int]] = {False: [], True: []}
    used = {False: 0, True: 0}
    flows: list[Flow] = []

    def end(place: int) -> Moment:
        return movements[place].at

    # The first that ends is used first: later movements may no longer overlap it.
    for place in sorted(range(len(movements)), key=end):
        movement = movements[place]
        is_loss = (movement.amount or 0) < 0
        others, begins = opened[not is_loss], movement.begins
        if 2 * used[not is_loss] > len(others):
            others[:] = [other for other in others if left[other]]
            used[not is_loss] = 0
        first = 0 if begins is None else bisect_right(others, begins, key=end)
        for index in range(first, len(others)):
            other = others[index]
            amount = min(left[place], left[other])
            if amount and movements[other].wallet != movement.wallet:
                flows.append(Flow(*((place, other) if is_loss else (other, place)), amount))
                left[place] -= amount
                left[other] -= amount
                used[not is_loss] += not left[other]
            if not left[place]:
                break
        if left[place]:
            opened[is_loss].append(place)
    return flows
