"""Matching of a token's losses and gains: which pairs form a transfer.

The provider names no transfers, so nftsync infers them from a loss and a gain in different wallets,
observed in overlapping windows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

#: A time: text in the stored form, or a number.
Moment = TypeVar("Moment", int, str)


class Movement(NamedTuple, Generic[Moment]):
    """A change of one wallet's balance of a token, stored at `at`.

    `amount` is negative for a loss, and None for an unknown size. `after` is the wallet's last read
    before the change; ignored if not before `at`, because the clock was set back.
    """

    wallet: Hashable
    amount: int | None
    after: Moment | None
    at: Moment

    @property
    def begins(self) -> Moment | None:
        """Start of the movement's window; None: unbounded."""
        return None if self.after is None or self.after >= self.at else self.after


def overlap(one: Movement[Moment], other: Movement[Moment]) -> bool:
    """Return whether the windows of two movements overlap."""
    begins, other_begins = one.begins, other.begins
    return (begins is None or begins < other.at) and (other_begins is None or other_begins < one.at)


#: Limits of links between candidates, in total and per movement. A larger group stays ambiguous,
#: because matching takes quadratic time.
_MAX_LINKS, _MAX_LINKS_EACH = 100_000, 30


def pairs(movements: Sequence[Movement[Moment]]) -> list[tuple[int, int]]:
    """Find the losses and gains that can only be transfers; return their positions by loss.

    A loss and a gain in two wallets are candidates if their windows overlap. The rule pairs
    movements of equal amounts until none is left: a movement with its only candidate; or, if all
    its candidates belong to one wallet, with one whose own candidates all the others share.

    Movements linked by candidates are all paired or all left out, so every complete explanation has
    the same amounts between the same wallets. Groups with too many candidates, or with an unknown
    size, are left out. Do not pass initial holdings: their start is unknown.
    """
    named: list[tuple[int, int]] = []
    for cluster in _clusters(movements):
        if len(cluster) < 3:  # shortcut for by far the most frequent case
            named += _match_two(movements, cluster)
            continue
        candidates = _candidates(movements, cluster)
        for linked in _components(candidates):
            named += _match_group(movements, candidates, linked)
    return sorted(named)


def _clusters(movements: Sequence[Movement[Moment]]) -> Iterator[list[int]]:
    """Split where no window spans; order each part by window starts."""
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


def _match_two(movements: Sequence[Movement[Moment]], cluster: list[int]) -> list[tuple[int, int]]:
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
    """Link movements to their candidates, unless there are too many."""
    candidates: dict[int, set[int]] = {place: set() for place in cluster}
    links_left = max(_MAX_LINKS, _MAX_LINKS_EACH * len(cluster))
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
            links_left -= len(linked)
        if links_left < 0:
            return {}
        running[gain].append(place)
    return candidates


def _components(candidates: dict[int, set[int]]) -> Iterator[list[int]]:
    visited: set[int] = set()
    for start, linked in candidates.items():
        if start in visited or not linked:
            continue
        component = [start]
        visited.add(start)
        for place in component:  # grows during the loop
            new = candidates[place] - visited
            visited |= new
            component += new
        yield component


def _match_group(
    movements: Sequence[Movement[Moment]], candidates: dict[int, set[int]], component: list[int]
) -> list[tuple[int, int]]:
    """Pair linked movements by the rule of `pairs`, or none."""
    amounts = {place: movements[place].amount for place in sorted(component)}
    sizes = {place: amount for place, amount in amounts.items() if amount is not None}
    if len(sizes) < len(amounts) or sum(sizes.values()) != 0:
        return []
    named: list[tuple[int, int]] = []
    left = {place: set(candidates[place]) for place in sizes}

    def partner(place: int) -> int | None:
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
        # Without a movement with one candidate, try all.
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
    """An amount that a loss and a gain share, by position."""

    loss: int
    gain: int
    amount: int


def explain_losses(movements: Sequence[Movement[Moment]]) -> list[Flow]:
    """Find gains of other wallets that can explain losses, using each amount once.

    All sizes are known. Unlike `pairs`, this measures how much of the losses can be transfers at
    all: the maximum, except in rare cases in which a wallet both gains and loses the token.
    """
    left = [abs(movement.amount or 0) for movement in movements]
    # Losses (False) and gains (True) that may have amounts left, ordered by end; and the number of
    # them that are used up.
    opened: dict[bool, list[int]] = {False: [], True: []}
    used = {False: 0, True: 0}
    flows: list[Flow] = []

    def end(place: int) -> Moment:
        return movements[place].at

    # Use the earliest end first: later movements may no longer overlap it.
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
