"""Syncs of a provider that answers some wallets and not others."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from nftsync.provider.client import access_to
from nftsync.provider.config import ClientConfig
from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror
from nftsync.times import now
from tests.kit.provider import Peer, Provider, Sender, balances, entry, raw, reply, token, wallet
from tests.kit.worlds import Outcome, mirrored, replayed
from tests.pull.runs import MANY, attempts, one_token_each, path_of, run

FAILS: dict[str, Sender] = {
    "500": reply(status=500),
    "503": reply(status=503),
    "broken": raw(then="reset"),
}


@pytest.mark.parametrize(("count", "seed"), [(40, 1), (MANY, 3)])
def test_those_that_fail_are_given_two_rounds_and_the_others_one_request(
    lying: Provider, database: Path, count: int, seed: int
) -> None:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    lying.always(one_token_each)
    failing = dict(zip(numbers[:9], [*FAILS.values()] * 3, strict=True))
    for number, fault in failing.items():
        lying.on(path_of(number), fault)
    result = run(lying, database, sorted(numbers, key=lambda number: number * seed % 7))
    asked = attempts(lying)
    assert asked == {path_of(number): 6 if number in failing else 1 for number in numbers}
    assert (result.status, result.wallets.ok, result.wallets.failed) == ("partial", count - 9, 9)
    counts = (asked.total(), asked.total() - count)
    assert (result.requests, result.retries) == counts
    with closing(sqlite3.connect(database)) as connection:
        ledger = connection.execute("SELECT requests, retries, status FROM sync_runs").fetchall()
    assert ledger == [(*counts, "partial")]
    assert {failure.wallet_id for failure in result.failures} == set(map(wallet, failing))
    assert all(failure.error.endswith(" (after 3 attempts)") for failure in result.failures)
    assert len(mirrored(database)) == count - 9


def test_failed_reads_get_a_second_round_also_if_all_others_wait_with_removals(
    lying: Provider, database: Path
) -> None:
    lying.always(one_token_each)
    run(lying, database, range(6))
    for number in range(4):
        lying.on(path_of(number), reply(balances()))
    for number in (4, 5):
        lying.on(path_of(number), reply(status=500))
    run(lying, database, range(6))
    again = {path: count - 1 for path, count in attempts(lying).items()}
    assert again == {path_of(number): 1 if number < 4 else 6 for number in range(6)}
    assert len(mirrored(database)) == 2


def test_a_repeat_that_is_waited_for_holds_up_nobody(lying: Provider, database: Path) -> None:
    """Two slots, ten wallets that fail first and would wait for minutes: all others are read."""
    lying.always(one_token_each)
    for number in range(10):
        lying.on(path_of(number), [*FAILS.values()][number % 3])
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(
            run, lying, database, range(60), concurrency=2, first_wait=100.0, stopped=stopped
        )
        try:
            lying.wait_for(60)
        finally:
            stopped.set()
        result = running.result()
    assert attempts(lying).total() == 60
    # What has been answered is told, and counted, though it would have been asked again.
    assert (result.status, result.requests, result.retries) == ("interrupted", 60, 0)
    assert (result.wallets.ok, result.wallets.failed) == (50, 10)
    lying.always(one_token_each)
    for number in range(10):
        lying.on(path_of(number))
    again = run(lying, database, [], resume=True)
    assert (again.run_id, again.status, again.wallets.ok) == (result.run_id, "ok", 60)
    assert attempts(lying).total() == 70
    assert replayed(database) == mirrored(database)


def test_what_had_failed_when_a_run_was_cut_off_is_read_as_it_goes_on(
    lying: Provider, database: Path
) -> None:
    """Also what had been read in part; and neither counts as failed any more."""
    stopped = threading.Event()

    def last(peer: Peer) -> bool:
        stopped.set()
        return one_token_each(peer)

    lying.always(one_token_each)
    lying.on(path_of(1), reply(status=404))
    lying.on(path_of(2), reply(balances(nextPage="more")))
    lying.on(path_of(4), last)
    result = run(lying, database, range(9), concurrency=1, stopped=stopped)
    assert (result.status, result.wallets.failed) == ("interrupted", 2)
    for number in (1, 2, 4):
        lying.on(path_of(number), one_token_each)
    again = run(lying, database, [], resume=True)
    assert (again.run_id, again.status) == (result.run_id, "ok")
    assert (again.wallets.ok, again.wallets.failed) == (9, 0)
    assert len(mirrored(database)) == 9


def test_a_read_that_another_overtook_is_made_again(lying: Provider, database: Path) -> None:
    """A replay beside the sync reads the wallet later, and has applied it sooner."""

    def overtaken(peer: Peer) -> bool:
        with Mirror(database) as mirror, mirror.transaction() as transaction:
            later = WalletRead(
                wallet_id=wallet(1),
                sequence=mirror.numbers.take(),
                started_at=now(),
                outcome="ok",
                entries=[(token(1), "2", None)],
            )
            transaction.apply([later])
        return one_token_each(peer)

    lying.always(one_token_each)
    lying.on(path_of(1), overtaken, reply(balances(entry(token(1), "3"))))
    result = run(lying, database, range(3))
    assert (result.status, result.wallets.ok) == ("ok", 3)
    assert attempts(lying)[path_of(1)] == 2
    assert mirrored(database)[wallet(1), token(1)] == "3"


def test_a_wallet_that_fails_only_at_first_is_read_at_the_end(
    lying: Provider, database: Path
) -> None:
    lying.always(one_token_each)
    for number, times in ((3, 2), (5, 3), (7, 5)):
        lying.on(path_of(number), *[reply(status=500)] * times, one_token_each)
    lying.on(
        f"/v1/tokens/{token(4)}",
        *[reply(status=500)] * 4,
        reply(b'{"id": "%s"}' % token(4).encode()),
    )
    lying.on(f"/v1/tokens/{token(6)}", reply(status=404))
    for number in (0, 1, 2, 3, 5, 7):
        lying.on(f"/v1/tokens/{token(number)}", reply(b'{"id": "%s"}' % token(number).encode()))
    result = run(lying, database, range(8), tokens=True)
    assert [failure.token_id for failure in result.failures] == [token(6)]
    assert (result.wallets.total, result.wallets.ok, result.wallets.failed) == (8, 8, 0)
    asked = attempts(lying)
    assert [asked[path_of(number)] for number in (3, 5, 7)] == [3, 4, 6]
    assert asked[f"/v1/tokens/{token(4)}"] == 5
    assert asked[f"/v1/tokens/{token(6)}"] == 1
    assert (result.requests, result.retries) == (asked.total(), asked.total() - 16)
    assert len(mirrored(database)) == 8


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (reply(status=401), 1),
        (reply(status=403), 1),
        (reply(status=404), 1),
        (reply(b"<html>"), 1),
        (reply(status=503, retry_after="301"), 1),
        (reply(b'{"nftTokenBalances": ['), 3),
    ],
)
def test_what_another_try_will_not_mend_is_not_tried_at_the_end(
    lying: Provider, database: Path, fault: Sender, times: int
) -> None:
    lying.always(one_token_each)
    lying.on(path_of(4), fault)
    result = run(lying, database, range(9))
    assert (result.status, result.wallets.failed) == ("partial", 1)
    assert attempts(lying)[path_of(4)] == times


def test_a_provider_that_is_down_as_a_whole_gets_one_round(lying: Provider, database: Path) -> None:
    lying.always(reply(status=500))
    lying.on(path_of(2), one_token_each)
    result = run(lying, database, range(12))
    assert (result.status, result.wallets.failed) == ("partial", 11)
    asked = attempts(lying)
    assert asked == {path_of(number): 1 if number == 2 else 3 for number in range(12)}
    assert (result.requests, result.retries) == (34, 22)


@pytest.mark.parametrize(
    ("status", "wallets", "asked"),
    [(500, 2_100, 2_000), (429, 9, 1)],
    ids=["after 2,000 failures in a row each holds its slot", "a 429 holds all back"],
)
def test_a_provider_that_answers_nobody_is_not_asked_at_full_speed(
    lying: Provider, database: Path, status: int, wallets: int, asked: int
) -> None:
    lying.always(reply(status=status))
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(
            run, lying, database, range(wallets), concurrency=1, first_wait=100.0, stopped=stopped
        )
        try:
            lying.wait_for(asked)
            time.sleep(0.5)
        finally:
            stopped.set()
        assert running.result().status == "interrupted"
    assert attempts(lying).total() == asked


def test_errors_of_one_kind_are_told_once(
    lying: Provider, database: Path, command: Callable[..., Outcome]
) -> None:
    lying.always(one_token_each)
    for number in range(6):
        lying.on(path_of(number), reply(status=500))
    wrong = {"tokenId": token(1), "amount": 1}
    lying.on(path_of(6), reply(balances(wrong)))
    lying.on(path_of(7), reply(balances(entry(token(9)), wrong)))
    lying.on(path_of(8), reply(status=404))
    Path("wallets.csv").write_text(
        f"wallet_id,label\n{wallet(0)},Treasury\n{wallet(8)},Cold \x1b[31m\n"
        + "".join(f"{wallet(number)},\n" for number in (*range(1, 8), *range(9, 30)))
    )
    asked = ("sync", "--base-url", lying.url, "-d", database, "--wallets-file", "wallets.csv")
    done = command(*asked, "--retries", "1")
    assert done.code == 1
    first, second, third, advice = done.err.splitlines()
    assert first.startswith("nftsync: 6 wallets: the provider answered 500 Internal Server Error: ")
    rest = ", …. Show all: --json or `nftsync wallets --status failed`"
    assert first.endswith(f": Treasury, 0000000a…0001, 0000000a…0002{rest}")
    assert second.startswith("nftsync: 2 wallets: $.nftTokenBalances[")
    assert third.startswith("nftsync: Cold")
    assert f"({wallet(8)}): the provider answered 404" in third
    assert "\x1b" not in third
    assert advice.endswith("nftsync wallets untrack WALLET...")
    listed = command("wallets", "--status", "failed", "--json", "-d", database).json
    assert len(listed) == 9
    assert len(command(*asked, "--retries", "1", "--json").json["failures"]) == 9


def test_a_large_sync_with_shared_access_reads_by_threads_that_keep_its_bound(
    lying: Provider, database: Path
) -> None:
    lock = threading.Lock()
    here = most = 0

    def answer(peer: Peer) -> bool:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        time.sleep(0.002)  # so that those that are read at once meet here
        # Before the answer: a client that has it may ask again while this thread still waits.
        with lock:
            here -= 1
        return one_token_each(peer)

    lying.always(answer)
    access = access_to(ClientConfig(base_url=lying.url), at_once=3)
    assert run(lying, database, range(MANY), access=access).wallets.ok == MANY
    assert most <= 3
