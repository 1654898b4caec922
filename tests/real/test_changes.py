"""A real history of 10 blocks, two at a time, through the sandbox, a mirror and its frames."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

import pandas as pd

from nftsync import frames
from tests.kit.worlds import mirrored, replayed
from tests.real.real_data import State, needs_data
from tests.real.real_history import Facts, History

pytestmark = needs_data

#: (wallet id, token id) -> amount before, amount after, kind.
Differences = dict[tuple[str, str], tuple[int | None, int | None, str]]


def rows(frame: pd.DataFrame, *names: str) -> dict[tuple[str, str], tuple[object, ...]]:
    """Some columns of each row, by wallet and token."""
    keys = list(zip(frame["wallet_id"], frame["token_id"], strict=True))
    assert len(set(keys)) == len(keys)
    columns = (frame[name] for name in names)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


def differences(before: State, after: State) -> Differences:
    found: Differences = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            kind = "arrived" if old is None else "left" if new is None else "changed"
            found[key] = (old, new, kind)
    return found


def test_the_mirror_equals_the_last_block_and_a_last_sync_changed_nothing(
    facts: Facts, history: History
) -> None:
    texts = {key: str(amount) for key, amount in facts.states[max(facts.states)].items()}
    assert mirrored(Path(history.database)) == replayed(Path(history.database)) == texts
    assert history.last == {
        "added": 0,
        "changed": 0,
        "removed": 0,
        "unchanged": len(facts.wallets),
    }


def test_holdings_and_their_ages_at_each_block_match_the_file(
    facts: Facts, history: History
) -> None:
    assert len(facts.wallets) > 500
    assert len(history.moments) == 6
    moments = list(pd.to_datetime(list(history.moments.values()), utc=True))
    began: dict[tuple[str, str], int] = {}
    for place, (block, moment) in enumerate(history.moments.items()):
        state = facts.states[block]
        # The block in which each holding's present stretch began.
        began = {key: began.get(key, place) for key in state}
        held = frames.holdings(history.database, as_of=moment)
        assert rows(held, "amount") == {key: (amount,) for key, amount in state.items()}, block
        ages = frames.holding_ages(history.database, at=moment)
        for frame in (held, ages):
            since = {
                key: bisect_left(moments, at) for key, (at,) in rows(frame, "held_since").items()
            }
            assert since == began, block
        assert not ages["censored"].any()
        assert (ages["age"] == pd.Timestamp(moment) - ages["held_since"]).all()


def test_differences_between_blocks_match_their_states_and_transfers_match_both_sides(
    facts: Facts, history: History
) -> None:
    """Few transfers are found: other wallets are not read after a block."""
    database, states = history.database, [*facts.states.values()]
    times = [*map(pd.Timestamp, history.moments.values())]
    changes = frames.changes(database)
    assert len(changes) == sum(len(differences(*pair)) for pair in pairwise(states))
    assert not changes["baseline"].any()
    transfers = frames.transfers(database, times[0], amounts="exact")
    transfers = transfers[transfers["kind"] == "transfer"]
    counterparties = found = 0
    for start, end in (*pairwise(range(len(times))), (0, 5), (1, 1), (1, 4)):
        diff = frames.diff(database, times[start], times[end], amounts="exact")
        meant = differences(states[start], states[end])
        assert rows(diff, "before", "after", "kind") == meant, (start, end)
        if end != start + 1:
            continue
        moved = {key: (new or 0) - (old or 0) for key, (old, new, _) in meant.items()}
        known = diff[diff["counterparty_wallet_id"].notna()]
        counterparties += len(known)
        for (wallet, token), (other,) in rows(known, "counterparty_wallet_id").items():
            assert moved[str(other), token] == -moved[wallet, token]
        some = transfers[transfers["observed_at"].between(times[start], times[end])]
        found += len(some)
        for row in some.itertuples():
            assert moved[row.from_wallet_id, row.token_id] == -row.amount
            assert moved[row.to_wallet_id, row.token_id] == row.amount
    assert counterparties > 0
    assert found == len(transfers) > 0
