"""What `frames.diff` shows between blocks of a real history is what those blocks changed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pandas as pd
from real_data import State, needs_data
from real_history import Facts, History

from nftsync import frames

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


def counterparties(of: Differences) -> dict[tuple[str, str], str]:
    """The other side of each change whose size only one wallet lost and only one gained."""
    moved = {
        (wallet, token): (new or 0) - (old or 0) for (wallet, token), (old, new, _) in of.items()
    }
    times = Counter((token, size) for (_, token), size in moved.items())
    sole = {
        (token, size): wallet
        for (wallet, token), size in moved.items()
        if times[token, size] == times[token, -size] == 1
    }
    return {
        (wallet, token): sole[token, -size]
        for (wallet, token), size in moved.items()
        if (token, -size) in sole
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
        assert others(frame) == counterparties(meant), next_one
        found_some += len(others(frame))
    assert found_some > 10


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
        assert others(frame) == counterparties(meant), (start, end)


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
