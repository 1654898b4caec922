"""What `frames.diff` shows between blocks of a real history is what those blocks changed."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from nftsync import frames
from tests.real.real_data import State, needs_data
from tests.real.real_history import Facts, History

pytestmark = needs_data

#: (wallet id, token id) -> amount before, amount after, kind.
Differences = dict[tuple[str, str], tuple[int | None, int | None, str]]


def expected(before: State, after: State) -> Differences:
    found: Differences = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            kind = "arrived" if old is None else "left" if new is None else "changed"
            found[key] = (old, new, kind)
    return found


def sizes(of: Differences) -> dict[tuple[str, str], int]:
    return {
        (wallet, token): (new or 0) - (old or 0) for (wallet, token), (old, new, _) in of.items()
    }


def differences(frame: pd.DataFrame) -> Differences:
    columns = [frame[name] for name in ("wallet_id", "token_id", "before", "after", "kind")]
    found = {
        (wallet, token): (old, new, kind)
        for wallet, token, old, new, kind in zip(*columns, strict=True)
    }
    assert len(found) == len(frame)
    return found


def others(frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    known = frame[frame["counterparty_wallet_id"].notna()]
    keys = zip(known["wallet_id"], known["token_id"], strict=True)
    return dict(zip(keys, known["counterparty_wallet_id"], strict=True))


def test_the_difference_between_two_blocks_is_what_the_later_changed(
    facts: Facts, history: History
) -> None:
    found_some = 0
    for one, next_one in pairwise(facts.states):
        frame = frames.diff(
            history.database, history.moments[one], history.moments[next_one], amounts="exact"
        )
        meant = expected(facts.states[one], facts.states[next_one])
        assert differences(frame) == meant, next_one
        moved = sizes(meant)
        for (wallet, token), other in others(frame).items():
            assert moved[other, token] == -moved[wallet, token], next_one
        found_some += len(others(frame))
    assert found_some > 0


def test_the_difference_over_many_blocks_is_that_of_their_states(
    facts: Facts, history: History
) -> None:
    blocks = list(facts.states)
    times = [history.moments[block] for block in blocks]
    for start, end in ((0, 5), (1, 1), (1, 4), (3, None)):
        frame = frames.diff(
            history.database, times[start], None if end is None else times[end], amounts="exact"
        )
        meant = expected(facts.states[blocks[start]], facts.states[blocks[end or -1]])
        assert differences(frame) == meant, (start, end)


def test_one_wallet_is_told_apart(facts: Facts, history: History) -> None:
    blocks = list(facts.states)
    meant = expected(facts.states[blocks[1]], facts.states[blocks[-1]])
    busiest = max(facts.wallets, key=[wallet for wallet, _ in meant].count)
    start = history.moments[blocks[1]]
    own = {key: value for key, value in meant.items() if key[0] == busiest}
    assert len(own) > 5
    assert differences(frames.diff(history.database, start, wallet=busiest, amounts="exact")) == own
    rest = {key: value for key, value in meant.items() if key[0] != busiest}
    assert (
        differences(frames.diff(history.database, start, exclude=busiest, amounts="exact")) == rest
    )


def test_transfers_are_losses_and_gains_of_the_same_blocks(facts: Facts, history: History) -> None:
    """Few are named: the wallets that a block does not touch are not read after it."""
    frame = frames.transfers(history.database, history.moments[0], amounts="exact")
    named = frame[frame["kind"] == "transfer"]
    times = {block: pd.Timestamp(moment) for block, moment in history.moments.items()}
    found_some = 0
    for one, next_one in pairwise(facts.states):
        moved = sizes(expected(facts.states[one], facts.states[next_one]))
        some = named[named["observed_at"].between(times[one], times[next_one])]
        found = {
            (row.from_wallet_id, row.to_wallet_id, row.token_id, row.amount)
            for row in some.itertuples()
        }
        assert len(found) == len(some)
        for giver, taker, token, amount in found:
            assert (moved[giver, token], moved[taker, token]) == (-amount, amount)
        found_some += len(found)
    assert found_some == len(named) > 0
