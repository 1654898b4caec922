"""Which losses and gains are transfers, against every explanation that there is."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync.movements import Movement, explain_losses, overlap, pairs
from tests.kit.explanations import Flow, explanations


@st.composite
def movement_lists(draw, sizes):
    lists = []
    for _ in range(draw(st.integers(0, 6))):
        after = draw(st.none() | st.integers(0, 6))
        at = draw(st.integers(0, 7)) if after is None else after + draw(st.integers(0, 3))
        amount = draw(st.sampled_from(sizes))
        wallet = draw(st.sampled_from("ABCD"))
        lists.append(Movement(wallet, amount, after, at))
    return lists


def between_wallets(movements, flow):
    """What went from which wallet to which, by a flow between movements."""
    sums: Counter[tuple[str, str]] = Counter()
    for (loss, gain), size in flow.items():
        sums[str(movements[loss].wallet), str(movements[gain].wallet)] += size
    return sums


@settings(max_examples=250)
@given(movement_lists((-3, -2, -1, -1, -1, 0, 1, 1, 1, 2, 3, None)))
def test_named_pairs_are_in_every_explanation(movements):
    """Which loss of a wallet it was may differ, but not what went from whom to whom."""
    named = pairs(movements)
    assert len({place for pair in named for place in pair}) == 2 * len(named)
    flow: Flow = {}
    for loss, gain in named:
        size = flow[loss, gain] = movements[gain].amount or 0
        assert size == -(movements[loss].amount or 0) > 0
        assert overlap(movements[loss], movements[gain])
        assert movements[loss].wallet != movements[gain].wallet
    said = between_wallets(movements, flow)
    for best in explanations(movements) if named else ():
        for each in best:
            assert said <= between_wallets(movements, each)


@settings(max_examples=250)
@given(movement_lists((-1, 1)))
def test_movements_with_one_explanation_are_named(movements):
    (best,) = explanations(movements)
    if len(best) == 1 and 2 * len(best[0]) == len(movements):
        assert pairs(movements) == sorted(best[0])


def test_one_wallet_that_gives_to_many_is_named_each_time():
    """Also if reads last a while, so its next loss may have come before they ended."""
    movements = []
    for turn in range(1, 200):
        movements += [Movement("A", -1, 10 * turn, 10 * turn + 13)]
        movements += [Movement(turn, 1, 0, 10 * turn + 14)]
    assert pairs(movements) == [(place, place + 1) for place in range(0, len(movements), 2)]
    assert not pairs([*movements, Movement("B", -1, 0, 15), Movement("C", 1, 0, 15)])


def test_windows_whose_clock_was_set_back_are_unbounded():
    back = Movement("A", -1, "2026-02-02", "2026-01-01")
    assert pairs([back, Movement("B", 1, "2025-01-01", "2025-02-01")]) == [(0, 1)]


def test_movements_observed_one_after_the_other_are_all_named():
    """Also 20,000 of them; a crowd at once costs no more for each movement."""
    movements = []
    for turn in range(10_000):
        giver, taker, size = turn % 1_000, (turn + 1) % 1_000, 1 + turn % 9
        movements += [Movement(giver, -size, 10 * turn, 10 * turn + 5)]
        movements += [Movement(taker, size, 10 * turn + 1, 10 * turn + 6)]
    assert pairs(movements) == [(place, place + 1) for place in range(0, len(movements), 2)]
    crowd = [Movement(wallet, 1 - 2 * (wallet % 2), 0, 9) for wallet in range(10_000)]
    assert not pairs(crowd)


def units(movements, amounts, sign):
    """The position of each single NFT that is lost (-1) or gained (1)."""
    return [n for n in range(len(movements)) for _ in range(sign * amounts[n])]


def most_explained(movements, amounts):
    """The size of a greatest matching of lost with gained NFTs, by augmenting paths."""
    gains = units(movements, amounts, 1)
    used: dict[int, int] = {}

    def place(loss, tried):
        for number, gain in enumerate(gains):
            one, other = movements[loss], movements[gain]
            if number in tried or one.wallet == other.wallet or not overlap(one, other):
                continue
            tried.add(number)
            if number not in used or place(used[number], tried):
                used[number] = loss
                return True
        return False

    return sum(place(loss, set()) for loss in units(movements, amounts, -1))


@settings(max_examples=250)
@given(movement_lists((-3, -2, -1, 0, 1, 2, 3)))
def test_gains_explain_losses_of_other_wallets_once(movements):
    """And no loss and gain that could be one transfer are left over."""
    left = [movement.amount or 0 for movement in movements]
    for loss, gain, amount in explain_losses(movements):
        lost, gained = movements[loss], movements[gain]
        assert amount > 0
        assert lost.wallet != gained.wallet
        assert overlap(lost, gained)
        left[loss] += amount
        left[gain] -= amount
        assert left[loss] <= 0 <= left[gain]
    assert most_explained(movements, left) == 0


@settings(max_examples=250)
@given(movement_lists((-3, -2, -1, 0, 1, 2, 3)))
def test_most_is_explained_if_each_wallet_moves_once(movements):
    alone = [movement._replace(wallet=place) for place, movement in enumerate(movements)]
    amounts = [movement.amount or 0 for movement in alone]
    assert sum(flow.amount for flow in explain_losses(alone)) == most_explained(alone, amounts)


def test_a_crowd_is_explained_in_little_time():
    """Each of 10,000 losses overlaps each of 10,000 gains."""
    crowd = [Movement(wallet, 1 - 2 * (wallet % 2), 0, 9 + wallet) for wallet in range(20_000)]
    assert sum(flow.amount for flow in explain_losses(crowd)) == 10_000
