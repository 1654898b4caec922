"""A real history of 10 blocks, two at a time, through the sandbox, a mirror and its frames."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pandas as pd

from nftsync import frames
from tests.kit.worlds import mirrored, replayed
from tests.real.real_data import State, needs_data
from tests.real.real_history import Facts, History

pytestmark = needs_data


def state_of(frame: pd.DataFrame) -> State:
    keys = list(zip(frame["wallet_id"], frame["token_id"], strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, frame["amount"], strict=True))


def test_holdings_as_of_each_block_are_what_the_file_says(facts: Facts, history: History) -> None:
    assert len(facts.wallets) > 500
    assert len(history.moments) == 6
    for block, moment in history.moments.items():
        then = frames.holdings(history.database, as_of=moment)
        assert state_of(then) == facts.states[block], block
    busiest = max(
        facts.wallets, key=[wallet for of in facts.touched.values() for wallet in of].count
    )
    then = frames.holdings(history.database, wallet=busiest, as_of=moment)
    own = {key: held for key, held in facts.states[block].items() if key[0] == busiest}
    assert state_of(then) == own


def test_the_present_is_the_last_block(facts: Facts, history: History) -> None:
    last = max(facts.states)
    assert state_of(frames.holdings(history.database)) == facts.states[last]
    texts = {key: str(amount) for key, amount in facts.states[last].items()}
    assert mirrored(Path(history.database)) == replayed(Path(history.database)) == texts


def test_a_last_look_at_all_wallets_finds_nothing_new(facts: Facts, history: History) -> None:
    assert history.last == {
        "added": 0,
        "changed": 0,
        "removed": 0,
        "unchanged": len(facts.wallets),
    }


def stretches(facts: Facts, until: int) -> dict[tuple[str, str], int]:
    """The block in which each holding's present stretch began."""
    since: dict[tuple[str, str], int] = {}
    for block, state in facts.states.items():
        if block <= until:
            since = {key: since.get(key, block) for key in state}
    return since


def began(history: History, frame: pd.DataFrame) -> dict[tuple[str, str], int]:
    """The block after which each row's `held_since` was stored."""
    blocks = list(history.moments)
    moments = list(pd.to_datetime(list(history.moments.values()), utc=True))
    keys = list(zip(frame["wallet_id"], frame["token_id"], strict=True))
    assert len(set(keys)) == len(keys)
    places = (bisect_left(moments, since) for since in frame["held_since"])
    return {key: blocks[place] for key, place in zip(keys, places, strict=True)}


def test_each_stretch_of_holding_begins_at_the_sync_of_its_block(
    facts: Facts, history: History
) -> None:
    blocks = list(facts.states)
    meant = stretches(facts, blocks[-1])
    assert began(history, frames.holdings(history.database)) == meant
    assert began(history, frames.holding_ages(history.database)) == meant
    for block in (blocks[1], blocks[4]):
        moment = history.moments[block]
        meant = stretches(facts, block)
        assert began(history, frames.holdings(history.database, as_of=moment)) == meant
        ages = frames.holding_ages(history.database, at=moment)
        assert began(history, ages) == meant
        assert not ages["censored"].any()
        assert (ages["age"] == pd.Timestamp(moment) - ages["held_since"]).all()


def test_the_log_has_a_row_for_each_real_change(facts: Facts, history: History) -> None:
    states = list(facts.states.values())
    pairs = pairwise(states)
    expected = sum(
        before.get(key) != after.get(key) for before, after in pairs for key in before | after
    )
    with closing(sqlite3.connect(history.database)) as connection:
        counted = connection.execute(
            "SELECT count(*), coalesce(sum(baseline), 0) FROM balance_changes"
        ).fetchone()
    assert counted == (expected, 0)


def test_how_certain_each_block_is_follows_from_which_wallets_were_read_when(
    facts: Facts, history: History
) -> None:
    blocks = list(facts.states)
    held_by: dict[int, dict[str, State]] = {}
    for block, state in facts.states.items():
        of = held_by.setdefault(block, {})
        for key, amount in state.items():
            of.setdefault(key[0], {})[key] = amount
    touched = {block: set(wallets) for block, wallets in facts.touched.items()}
    seen = set()
    for place in (1, 2, 4, 5):
        block = blocks[place]
        then = frames.holdings(history.database, as_of=history.moments[block])
        shown = then.drop_duplicates("wallet_id").set_index("wallet_id")["certainty"]
        for wallet, certainty in shown.items():
            # The next read of a wallet is after the next block that touches it, else at the end.
            later = [b for b in blocks[place + 1 :] if wallet in touched[b]][:1]
            same = all(held_by[b].get(wallet) == held_by[block][wallet] for b in later)
            assert certainty == ("bracketed" if same else "gap"), (block, wallet)
            seen.add(certainty)
    assert seen == {"bracketed", "gap"}
