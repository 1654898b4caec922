"""Transfers, compared with the truth of worlds whose reads are known."""

import random
from collections import Counter
from typing import NamedTuple

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import frames
from nftsync.errors import InputError, NftsyncWarning
from tests.kit.database import at, rows_of, token_id, wallet_id
from tests.kit.histories import READS, Read, moment, size

WALLETS, TOKENS = (1, 2, 3, 4), (1, 2)
#: A wallet without reads.
OUTSIDE = 0
NUMBERS = {wallet_id(number): number for number in WALLETS} | {
    token_id(number): number for number in TOKENS
}


class Moved(NamedTuple):
    sender: int
    receiver: int
    token: int
    amount: int


def listed(frame: pd.DataFrame) -> list[Moved]:
    """Return the rows in order, with the outside as the unknown side."""
    columns = frame[["from_wallet_id", "to_wallet_id", "token_id"]]
    numbers = columns.map(lambda id_: NUMBERS.get(id_, OUTSIDE))
    return [Moved(*row, n) for *row, n in numbers.assign(n=frame["amount"]).to_numpy().tolist()]


@pytest.mark.filterwarnings("ignore::nftsync.NftsyncWarning")
@settings(max_examples=25)
@given(reads=READS, cut=st.integers(0, 20))
def test_each_change_is_in_one_row_of_one_of_consecutive_spans(histories, reads, cut):
    histories.play(reads)
    db = histories.path
    frame = frames.transfers(db, amounts="exact")
    assert frame["observed_at"].is_monotonic_increasing
    found = Counter()
    for row in frame.itertuples():
        assert not row.observed_after >= row.observed_at
        kinds = {"transfer": (True, True), "sent": (True, False), "received": (False, True)}
        assert (pd.notna(row.from_wallet_id), pd.notna(row.to_wallet_id)) == kinds[row.kind]
        found[row.from_wallet_id, row.token_id, -1, row.amount] += pd.notna(row.from_wallet_id)
        found[row.to_wallet_id, row.token_id, 1, row.amount] += pd.notna(row.to_wallet_id)
    expected = Counter()
    for change in histories.log():
        old, new = size(change.old), size(change.new)
        known = isinstance(old, int) and isinstance(new, int)
        if not change.baseline and old != new and (known or 0 in (old, new)):
            sign = 1 if old == 0 or (known and new > old) else -1
            expected[change.wallet, change.token, sign, abs(new - old) if known else None] += 1
    assert +found == expected
    spans = ({"end": moment(cut)}, {"start": moment(cut + 1)})
    parts = [frames.transfers(db, amounts="exact", **span) for span in spans]
    whole, first, second = (rows_of(part, list(frame)) for part in (frame, *parts))
    assert first + second == whole


def history(rng: random.Random, *, single: bool) -> tuple[list[Moved], list[Read], list[float]]:
    """Return transfers, reads, and the times between the reads of two transfers.

    The transfers are of single NFTs, with reads of the two wallets alone, as after webhooks; or of
    parts of editions, also with the outside. Then each wallet is read once before and once after,
    so that no two windows span two movements.
    """
    held: Counter[tuple[int, int]] = Counter()
    for token in TOKENS:
        for wallet in rng.sample(WALLETS, 1 if single else rng.randint(1, 3)):
            held[wallet, token] = 1 if single else rng.choice((1, 1, 2, 5))
    truth, reads, ends, wallets = [], [], [], list(WALLETS)
    for turn in range(rng.randint(2, 12)):
        if turn:
            token = rng.choice(TOKENS)
            sides = rng.sample((*WALLETS, OUTSIDE), 2)
            wallets = [*rng.sample(WALLETS, len(WALLETS)), *WALLETS]
            if single:
                sender = next(wallet for wallet in WALLETS if held[wallet, token])
                sides = [sender, rng.choice([wallet for wallet in WALLETS if wallet != sender])]
                wallets = rng.sample(sides, 2)
            sender, receiver = sides
            amount = rng.choice((1, 2, 3))
            if sender != OUTSIDE:
                amount = min(amount, held[sender, token])
            held[sender, token] -= amount
            held[receiver, token] += amount
            truth += [Moved(sender, receiver, token, amount)] if amount else []
        for wallet in wallets:
            amounts = {token: str(n) for (who, token), n in held.items() if who == wallet and n}
            reads.append(Read(2, wallet, amounts, whole=True, started=2 * len(reads) + 1.5))
        ends.append(2 * len(reads))
    return truth, reads, ends


def counterparties(diff: pd.DataFrame, moved: list[Moved]) -> dict[tuple[str, str], str]:
    """Return the other side of each wallet and token with a single transfer of its net change."""
    found = {}
    for row in diff.itertuples():
        wallet, token = NUMBERS[row.wallet_id], NUMBERS[row.token_id]
        own = [one for one in moved if one.token == token and wallet in one[:2]]
        before, after = (0 if pd.isna(one) else one for one in (row.before, row.after))
        if len(own) == 1 and OUTSIDE not in own[0][:2]:
            gains = own[0].receiver == wallet
            if after - before == own[0].amount * (1 if gains else -1):
                found[row.wallet_id, row.token_id] = wallet_id(own[0][not gains])
    return found


@pytest.mark.parametrize("single", [False, True])
def test_observed_transfers_are_exact_and_diff_names_a_counterparty_of_a_single_one(
    histories, single
):
    named = 0
    for seed in range(25):
        rng = random.Random(seed)
        truth, reads, ends = history(rng, single=single)
        histories.play(reads)
        assert listed(frames.transfers(histories.path)) == truth, seed
        # After a step, all reads that its transfer needs are stored.
        span = [moment(end) for end in sorted(rng.sample(ends, 2))]
        diff, between = (read(histories.path, *span) for read in (frames.diff, frames.transfers))
        known = diff[diff["counterparty_wallet_id"].notna()]
        keys = zip(known["wallet_id"], known["token_id"], strict=True)
        found = dict(zip(keys, known["counterparty_wallet_id"], strict=True))
        later = between[between["observed_at"] > pd.Timestamp(span[0])]
        assert found == counterparties(diff, listed(later)), seed
        named += len(found)
    assert named > 10


@pytest.fixture
def log(build):
    """Two tokens, and three wallets that were read completely at 1."""
    for wallet in (1, 2, 3):
        group = "house" if wallet == 2 else None
        build.wallet(wallet, label=f"Wallet {wallet}", wallet_group=group)
        build.state(wallet, 1, 1, 2)
    build.token(1, contract_address="0x" + "aB" * 20, name="One")
    build.token(2, contract_address="KT1", name="Two")
    return build


COLUMNS = ["token_id", "contract", "name", "from_wallet_id", "to_wallet_id", "kind", "observed_at"]
COLUMNS += ["observed_after", "amount", "from_label", "to_label", "webhook_id"]


def test_columns_filters_and_spans_of_a_transfer_and_an_arrival(log):
    log.change(1, 1, "5", "0", 10)
    log.state(2, 3, 3, 4)
    log.change(2, 1, None, "5", 13)
    log.change(3, 2, None, str(2**200), 14)
    whole = frames.transfers(log.path)
    assert [tuple(row.values()) for row in rows_of(whole, COLUMNS)] == [
        (
            *(token_id(1), "0x" + "ab" * 20, "One", wallet_id(1), wallet_id(2), "transfer"),
            # The later of the reads before it, the earlier of the changes.
            *(at(10), at(3), 5, "Wallet 1", "Wallet 2", None),
        ),
        (
            *(token_id(2), "KT1", "Two", None, wallet_id(3), "received"),
            *(at(14), at(1), 2**200, None, "Wallet 3", None),
        ),
    ]
    one = {"wallet": wallet_id(1).upper()}
    for filters, names in (
        *((one, ["One"]), ({"wallet": [wallet_id(2), "Wallet 3"]}, ["One", "Two"])),
        *(
            ({"exclude": wallet_id(2)}, ["Two"]),
            ({"wallet": []}, []),
            ({"group": "house"}, ["One"]),
        ),
        *(({"contract": "KT1"}, ["Two"]), ({"contract": "0x" + "Ab" * 20}, ["One"])),
        *(({"start": at(10), "end": at(10)}, ["One"]), ({"end": at(9)}, [])),
        *(({"start": at(11)}, ["Two"]), ({"start": at(11), "end": at(13)}, [])),
    ):
        expected = whole[whole["name"].isin(names)].reset_index(drop=True)
        assert frames.transfers(log.path, amounts="exact", **filters).equals(expected), filters
    assert str(frames.transfers(log.path, at(2), at(10))["amount"].dtype) == "Int64"
    # The other side of a row of `diff` may be a wallet that is left out.
    diff = frames.diff(log.path, at(8))
    assert diff["counterparty_label"].fillna("").tolist() == ["Wallet 2", "Wallet 1", ""]
    for filters, kept in ((one, [0]), ({"exclude": wallet_id(1)}, [1, 2]), ({"wallet": []}, [])):
        expected = diff.iloc[kept].reset_index(drop=True)
        assert frames.diff(log.path, at(8), amounts="exact", **filters).equals(expected)
    with pytest.raises(InputError, match="is after end"):
        frames.transfers(log.path, at(12), at(11))


def test_the_webhook_is_that_of_the_first_observation_or_of_the_second(log):
    log.change(2, 1, None, "1", 10, webhook_id="w-gain")
    log.change(1, 1, "1", None, 11, webhook_id="w-loss")
    log.change(2, 2, None, "1", 12)
    log.change(1, 2, "1", None, 13, webhook_id="w-other")
    assert list(frames.transfers(log.path)["webhook_id"]) == ["w-gain", "w-other"]


def test_changes_of_unusable_amounts_are_listed_and_at_that_time_nothing_is_paired(log):
    log.change(1, 1, "1", None, 10)
    log.change(2, 1, None, "1", 10)
    log.change(3, 1, None, "1.5", 10)
    log.change(3, 1, "1.5", None, 20)
    log.change(3, 2, "1", "1.5", 20)
    warning = "^1 change excluded: an amount is not a whole number; "
    with pytest.warns(NftsyncWarning, match=warning):
        frame = frames.transfers(log.path)
    columns = ["kind", "amount", "from_label", "to_label"]
    assert [tuple(row.values()) for row in rows_of(frame, columns)] == [
        ("sent", 1, "Wallet 1", None),
        ("received", 1, None, "Wallet 2"),
        ("received", None, None, "Wallet 3"),
        ("sent", None, "Wallet 3", None),
    ]
    assert len(frames.transfers(log.path, wallet=wallet_id(1))) == 1, "and does not warn"


def test_initial_holdings_and_holdings_after_incomplete_reads_have_no_sender(log):
    """They may have been there before; an equal amount is not a transfer at all."""
    for row in ((1, 1, "1", None), (1, 2, "1", "01"), (2, 2, "0", None), (2, 1, "1", None)):
        log.change(*row, 10)
    log.wallet(4)
    log.change(4, 2, None, "1", 5, baseline=1)
    log.change(4, 1, None, "1", 10)
    log.wallet(5)
    log.change(5, 1, None, "1", 10, baseline=1)
    rows = rows_of(frames.transfers(log.path), ["kind", "observed_after"])
    assert [tuple(row.values()) for row in rows] == [
        *(("sent", at(1)), ("sent", at(1)), ("received", None))
    ]
