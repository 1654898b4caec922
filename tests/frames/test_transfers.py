"""Transfers, compared with the truth of worlds whose reads are known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.frames.transfer_world import OUTSIDE, WALLETS, Moved, Step, World, held_at_first, history
from tests.kit.database import Builder, at, begun, rows_of, token_id, wallet_id

#: The histories that each test plays.
SEEDS = range(25)


Play = Callable[[dict[tuple[int, int], int], Iterable[Step]], World]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a function that makes a new world and plays steps."""
    return lambda held, steps: World(begun(tmp_path / "world.db")).play(held, steps)


NUMBERS = {wallet_id(number): number for number in WALLETS} | {
    token_id(number): number for number in (1, 2)
}


def listed(frame: pd.DataFrame) -> list[Moved]:
    """Return the rows in order, with the outside as the unknown side."""
    return [
        Moved(
            NUMBERS.get(row.from_wallet_id, OUTSIDE),
            NUMBERS.get(row.to_wallet_id, OUTSIDE),
            NUMBERS[row.token_id],
            row.amount,
        )
        for row in frame.itertuples()
    ]


def test_rows_add_up_to_the_change_feed_with_each_change_in_one_row(play: Play) -> None:
    transfers = 0
    for seed in SEEDS:
        world = play(*history(seed))
        frame = frames.transfers(world.path, amounts="exact")
        assert frame["observed_at"].is_monotonic_increasing
        net: Counter[tuple[int, int]] = Counter()
        for row in frame.itertuples():
            assert row.amount > 0
            assert row.observed_after < row.observed_at
            sides = {"transfer": (True, True), "sent": (True, False), "received": (False, True)}
            assert (pd.notna(row.from_wallet_id), pd.notna(row.to_wallet_id)) == sides[row.kind]
        for moved in listed(frame):
            net[moved.sender, moved.token] -= moved.amount
            net[moved.receiver, moved.token] += moved.amount
        paired = int((frame["kind"] == "transfer").sum())
        assert len(frame) + paired == len(world.observed)
        for wallet, token in {(each.wallet, each.token) for each in world.observed}:
            changes = [x.amount for x in world.observed if (x.wallet, x.token) == (wallet, token)]
            assert net[wallet, token] == sum(changes)
        transfers += paired
    assert transfers > len(SEEDS) // 4


def all_read(seed: int) -> tuple[dict[tuple[int, int], int], list[Step]]:
    """Return transfers of parts of editions, also with the outside, with two reads after each."""
    rng = random.Random(seed)
    held = held_at_first(rng)
    steps = [Step([], WALLETS)]
    for _ in range(rng.randint(1, 10)):
        sender, receiver = rng.sample((*WALLETS, OUTSIDE), 2)
        moved = Moved(sender, receiver, rng.choice((1, 2)), rng.choice((1, 2, 3)))
        # Each wallet is read once before and once after, so no two windows span two movements.
        steps.append(Step([moved], rng.sample(WALLETS, len(WALLETS))))
        steps.append(Step([], WALLETS))
    return held, steps


def explained(diff: pd.DataFrame, transfers: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return the other side of each wallet and token with a single transfer of its net change."""
    counterparties = {}
    for row in diff.itertuples():
        own = transfers[transfers["token_id"] == row.token_id]
        own = own[(own[["from_wallet_id", "to_wallet_id"]] == row.wallet_id).any(axis="columns")]
        if len(own) == 1 and own["kind"].iloc[0] == "transfer":
            gains = own["to_wallet_id"].iloc[0] == row.wallet_id
            before, after = (0 if pd.isna(one) else one for one in (row.before, row.after))
            if after - before == own["amount"].iloc[0] * (1 if gains else -1):
                other = own["from_wallet_id" if gains else "to_wallet_id"].iloc[0]
                counterparties[row.wallet_id, row.token_id] = other
    return counterparties


def test_transfers_that_were_observed_one_by_one_are_exact(play: Play) -> None:
    """`diff` names a counterparty only if a single transfer explains the row."""
    named = 0
    for seed in SEEDS:
        held, steps = all_read(seed)
        world = play(held, steps)
        assert listed(frames.transfers(world.path)) == world.truth, seed
        # When all wallets have just been read, no transfer spans the time: the first round of reads
        # takes 8 ticks, a movement and two rounds take 17.
        rounds = sorted(random.Random(seed).sample(range(len(steps) // 2 + 1), 2))
        start, end = (at(8 + 17 * place) for place in rounds)
        diff, between = (
            frames.diff(world.path, start, end),
            frames.transfers(world.path, start, end),
        )
        known = diff[diff["counterparty_wallet_id"].notna()]
        keys = zip(known["wallet_id"], known["token_id"], strict=True)
        found = dict(zip(keys, known["counterparty_wallet_id"], strict=True))
        assert found == explained(diff, between[between["observed_at"] > pd.Timestamp(start)])
        named += len(found)
    assert named > 10


def passed_on(seed: int) -> tuple[dict[tuple[int, int], int], list[Step]]:
    """Return transfers of single NFTs, with reads of the two wallets alone, as after webhooks."""
    rng = random.Random(seed)
    holder = {1: rng.choice(WALLETS), 2: rng.choice(WALLETS)}
    held = {(wallet, token): 1 for token, wallet in holder.items()}
    steps = [Step([], WALLETS)]
    for _ in range(rng.randint(1, 12)):
        token = rng.choice((1, 2))
        sender = holder[token]
        receiver = holder[token] = rng.choice([wallet for wallet in WALLETS if wallet != sender])
        steps.append(Step([Moved(sender, receiver, token, 1)], rng.sample((sender, receiver), 2)))
    return held, steps


def test_single_nfts_are_followed_by_reads_of_the_two_wallets_alone(play: Play) -> None:
    """`diff` names no transfer that never happened."""
    known_sides = 0
    for seed in SEEDS:
        world = play(*passed_on(seed))
        assert listed(frames.transfers(world.path)) == world.truth, seed
        diff = frames.diff(world.path, at(10))
        known = diff[diff["counterparty_wallet_id"].notna()]
        known_sides += len(known)
        for row in known.itertuples():
            sides = (NUMBERS[row.wallet_id], NUMBERS[row.counterparty_wallet_id])
            sender, receiver = sides if row.kind == "left" else sides[::-1]
            assert Moved(sender, receiver, NUMBERS[row.token_id], 1) in world.truth
    assert known_sides > 10


def test_each_transfer_is_in_one_of_consecutive_spans(play: Play) -> None:
    """Also a transfer whose sides are observed in two spans."""
    # Its sides are observed at 11 and 13, after reads at 1 to 7.
    steps = [Step([], WALLETS), Step([Moved(1, 2, 1, 2)], (1, 2)), Step([], (3, 4))]
    path = play({(1, 1): 5}, steps).path
    whole = frames.transfers(path)
    assert rows_of(whole, ["observed_after", "observed_at", "kind"]) == [
        # The later of the reads before it, the earlier of the changes.
        {"observed_after": at(3), "observed_at": at(11), "kind": "transfer"}
    ]
    for start, end in ((at(11), at(11)), (at(11), None), (None, at(11)), (at(11), at(12))):
        pd.testing.assert_frame_equal(frames.transfers(path, start, end), whole)
    for start, end in ((at(12), None), (None, at(10)), (at(12), at(14))):
        assert frames.transfers(path, start, end).empty
    with pytest.raises(InputError, match="is after end"):
        frames.transfers(path, at(12), at(11))
    for seed in SEEDS[:5]:
        path = play(*history(seed)).path
        whole = frames.transfers(path)
        cut = 20
        parts = [frames.transfers(path, end=at(cut)), frames.transfers(path, start=at(cut + 1))]
        assert [*listed(parts[0]), *listed(parts[1])] == listed(whole)


@pytest.mark.parametrize(
    ("read", "sides"),
    [
        (frames.transfers, ["from_wallet_id", "to_wallet_id"]),
        (lambda db, **filters: frames.diff(db, at(8), **filters), ["wallet_id"]),
    ],
)
def test_filters_leave_rows_out_and_change_no_other(
    play: Play, read: Callable[..., pd.DataFrame], sides: list[str]
) -> None:
    """The other side of a row may be a wallet that is left out."""
    path = play(*all_read(3)).path
    whole = read(path)
    one, two = wallet_id(1), [wallet_id(1).upper(), wallet_id(2)]
    of_one, of_two = (
        whole[sides].isin(ids).any(axis="columns") for ids in ([one], [one, wallet_id(2)])
    )
    assert 0 < of_one.sum() < len(whole)
    for frame, mask in (
        (read(path, wallet=one), of_one),
        (read(path, wallet=two), of_two),
        (read(path, exclude=one), ~of_one),
        (read(path, wallet=[]), of_one & False),
    ):
        pd.testing.assert_frame_equal(frame, whole[mask].reset_index(drop=True))


def change_log_of(build: Builder, rows: list[tuple[Any, ...]]) -> None:
    """Two tokens, three wallets that were read completely at 1, and changes."""
    for wallet in (1, 2, 3):
        group = "house" if wallet == 2 else None
        build.wallet(wallet, label=f"Wallet {wallet}", wallet_group=group)
        build.state(wallet, 1, 1, 2)
    build.token(1, contract_address="0x" + "aB" * 20, name="One")
    build.token(2, contract_address="KT1", name="Two")
    for row in rows:
        build.change(*row)


def test_columns_and_contracts(build: Builder) -> None:
    rows = [(1, 1, "5", "0", 10), (2, 1, None, "5", 10), (3, 2, None, str(2**200), 11)]
    change_log_of(build, rows)
    frame = frames.transfers(build.path)
    columns = ["token_id", "contract", "name", "from_wallet_id", "to_wallet_id", "kind"]
    values = ["observed_at", "observed_after", "amount", "from_label", "to_label", "webhook_id"]
    assert [tuple(row.values()) for row in rows_of(frame, columns)] == [
        (token_id(1), "0x" + "ab" * 20, "One", wallet_id(1), wallet_id(2), "transfer"),
        (token_id(2), "KT1", "Two", None, wallet_id(3), "received"),
    ]
    assert [tuple(row.values()) for row in rows_of(frame, values)] == [
        (at(10), at(1), 5, "Wallet 1", "Wallet 2", None),
        (at(11), at(1), 2**200, None, "Wallet 3", None),
    ]
    assert list(frames.transfers(build.path, group="house")["name"]) == ["One"]
    assert list(frames.transfers(build.path, contract="KT1")["name"]) == ["Two"]
    assert list(frames.transfers(build.path, contract="0x" + "Ab" * 20)["name"]) == ["One"]
    assert str(frames.transfers(build.path, at(2), at(10))["amount"].dtype) == "Int64"


def test_the_webhook_is_that_of_the_first_observation_or_of_the_second(build: Builder) -> None:
    change_log_of(build, [])
    build.change(2, 1, None, "1", 10, webhook_id="w-gain")
    build.change(1, 1, "1", None, 11, webhook_id="w-loss")
    build.change(2, 2, None, "1", 12)
    build.change(1, 2, "1", None, 13, webhook_id="w-other")
    assert list(frames.transfers(build.path)["webhook_id"]) == ["w-gain", "w-other"]


def test_changes_of_unusable_amounts_are_listed_without_pairs(build: Builder) -> None:
    """Other changes of that token at that time stay without a pair, too."""
    change_log_of(
        build,
        [
            (1, 1, "1", None, 10),
            (2, 1, None, "1", 10),
            (3, 1, None, "1.5", 10),
            (3, 1, "1.5", None, 20),
            (3, 2, "1", "1.5", 20),
        ],
    )
    with pytest.warns(
        NftsyncWarning, match="^1 change excluded: an amount is not a whole number; "
    ):
        frame = frames.transfers(build.path)
    columns = ["kind", "amount", "from_label", "to_label"]
    assert [tuple(row.values()) for row in rows_of(frame, columns)] == [
        ("sent", 1, "Wallet 1", None),
        ("received", 1, None, "Wallet 2"),
        ("received", None, None, "Wallet 3"),
        ("sent", None, "Wallet 3", None),
    ]
    assert len(frames.transfers(build.path, wallet=wallet_id(1))) == 1, "and does not warn"


def test_an_initial_holding_is_not_received(play: Play) -> None:
    """A sent NFT may be found in a wallet that is read for the first time later."""
    steps = [
        Step([], (1, 2)),
        Step([Moved(1, 3, 1, 1)], (1, 2)),
        Step([], (3,)),
        Step([Moved(1, 2, 1, 2)], (1, 2)),
    ]
    world = play({(1, 1): 5, (2, 1): 1}, steps)
    assert listed(frames.transfers(world.path)) == [Moved(1, OUTSIDE, 1, 1), Moved(1, 2, 1, 2)]


def test_a_holding_found_after_incomplete_reads_has_no_sender(build: Builder) -> None:
    """It may have been there before; an equal amount is not a transfer at all."""
    change_log_of(build, [(1, 1, "1", None, 10), (1, 2, "1", "01", 10), (2, 2, "0", None, 10)])
    build.wallet(4)
    build.change(4, 2, None, "1", 5, baseline=1)
    build.change(4, 1, None, "1", 10)
    frame = frames.transfers(build.path)
    assert list(frame["kind"]) == ["sent", "received"]
    assert rows_of(frame, ["observed_after"])[1] == {"observed_after": None}
