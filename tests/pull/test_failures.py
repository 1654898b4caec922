"""Syncs of a provider that fails, misleads or does not answer: no stored data is lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.faults import FAULTS, FINAL
from tests.kit.provider import (
    CountedAnswer,
    Peer,
    Sender,
    balances,
    entry,
    head,
    one_token_each,
    path_of,
    raw,
    reply,
    silence,
    token,
    wallet,
)
from tests.kit.worlds import Outcome, mirrored, replayed
from tests.pull.mirror import MANY, Mirror, errors

PATH = path_of(1)
TWO = balances(entry(token(1)), entry(token(2)))
ONE = balances(entry(token(1)))
BOTH = {wallet(1): {token(1): "1", token(2): "1"}}
FAILS = [FAULTS[name].answer for name in ("500", "503", "reset")]
#: Faults of different kinds.
SOME = ("404", "500", "reset", "HTML", "cut in the middle", "two amounts of a token", "206")


def test_failed_wallets_keep_their_holdings_and_do_not_stop_the_others(mirror: Mirror) -> None:
    wallets = mirror.fill(30)
    mirror.sync(wallets)
    before = mirror.held()
    read_at = dict(mirror.query("SELECT wallet_id, synced_at FROM wallets"))
    faults = [*(FAULTS[name] for name in (*SOME, "429 for a day"))]
    for number, fault in enumerate(faults):
        mirror.provider.on(path_of(number), fault.answer)
    mirror.provider.on(path_of(len(faults)), silence())
    result = mirror.sync(timeout=0.5)
    count = len(faults) + 1
    assert (result.status, result.wallets.total, result.wallets.failed) == ("partial", 30, count)
    assert set(errors(result)) == set(wallets[:count])
    assert "no complete response within 0.5 s" in errors(result)[wallets[len(faults)]]
    assert (mirror.held(), result.balances.removed) == (before, 0)
    failed = mirror.query("SELECT wallet_id, error, synced_at FROM wallets WHERE status = 'failed'")
    assert {x[0]: x[1] for x in failed} == errors(result)
    assert all(synced_at == read_at[wallet_id] for wallet_id, _, synced_at in failed)
    for number in range(count):
        mirror.provider.holds(wallet(number), entry(token(2 * number), "9"))
        mirror.provider.on(path_of(number))
    again = mirror.sync()
    assert (again.status, again.balances.removed) == ("ok", count)
    assert mirror.held()[wallet(1)] == {token(2): "9"}


# Attempts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "seed"), [(40, 1), (MANY, 3)])
def test_failed_wallets_get_a_second_round_and_the_others_one_request(
    mirror: Mirror, count: int, seed: int
) -> None:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    mirror.provider.always(one_token_each)
    failing = dict(zip(numbers[:9], FAILS * 3, strict=True))
    for number, fault in failing.items():
        mirror.provider.on(path_of(number), fault)
    result = mirror.run(sorted(numbers, key=lambda number: number * seed % 7))
    asked = mirror.provider.attempts()
    assert asked == {path_of(number): 6 if number in failing else 1 for number in numbers}
    assert (result.status, result.wallets.ok, result.wallets.failed) == ("partial", count - 9, 9)
    counts = (asked.total(), asked.total() - count)
    assert (result.requests, result.retries) == counts
    ledger = mirror.query("SELECT requests, retries, status FROM sync_runs")
    assert ledger == [(*counts, "partial")]
    assert set(errors(result)) == set(map(wallet, failing))
    assert all(error.endswith(" (after 3 attempts)") for error in errors(result).values())
    assert len(mirrored(mirror.database)) == count - 9


def test_the_second_round_does_not_wait_for_held_removals(mirror: Mirror) -> None:
    mirror.provider.always(one_token_each)
    mirror.run(range(6))
    for number in range(6):
        answer = reply(balances()) if number < 4 else reply(status=500)
        mirror.provider.on(path_of(number), answer)
    mirror.run(range(6))
    again = {path: count - 1 for path, count in mirror.provider.attempts().items()}
    assert again == {path_of(number): 1 if number < 4 else 6 for number in range(6)}
    assert len(mirrored(mirror.database)) == 2


def test_a_wallet_or_token_that_fails_only_at_first_is_read_at_the_end(mirror: Mirror) -> None:
    provider = mirror.provider
    provider.always(one_token_each)
    for number, times in ((3, 2), (5, 3), (7, 5)):
        provider.on(path_of(number), *[reply(status=500)] * times, one_token_each)
    for number in range(8):
        good = reply(b'{"id": "%s"}' % token(number).encode())
        provider.on(f"/v1/tokens/{token(number)}", *[reply(status=500)] * (4 * (number == 4)), good)
    provider.on(f"/v1/tokens/{token(6)}", reply(status=404))
    result = mirror.run(range(8), tokens=True)
    assert [(x.wallet_id, x.token_id) for x in result.failures] == [(wallet(6), token(6))]
    assert (result.status, result.wallets.ok) == ("partial", 8)
    asked = provider.attempts()
    assert [asked[path_of(number)] for number in (3, 5, 7)] == [3, 4, 6]
    assert [asked[f"/v1/tokens/{token(number)}"] for number in (4, 6)] == [5, 1]
    assert (result.requests, result.retries) == (asked.total(), asked.total() - 16)
    assert len(mirrored(mirror.database)) == 8


def test_final_faults_get_no_second_round(mirror: Mirror) -> None:
    mirror.provider.always(one_token_each)
    numbers = range(100, 100 + len(FINAL))
    for number, fault in zip(numbers, FINAL.values(), strict=True):
        mirror.provider.on(path_of(number), fault.answer)
    mirror.provider.on(path_of(99), reply(b'{"nftTokenBalances": ['))
    result = mirror.run([*range(100), *numbers])
    assert (result.status, result.wallets.failed) == ("partial", len(FINAL) + 1)
    asked = mirror.provider.attempts()
    assert {asked[path_of(number)] for number in numbers} == {1}
    assert asked[path_of(99)] == 3


def test_a_provider_that_is_down_gets_one_round(mirror: Mirror) -> None:
    mirror.provider.always(reply(status=500))
    mirror.provider.on(path_of(2), one_token_each)
    result = mirror.run(range(12))
    assert (result.status, result.wallets.failed) == ("partial", 11)
    asked = mirror.provider.attempts()
    assert asked == {path_of(number): 1 if number == 2 else 3 for number in range(12)}
    assert (result.requests, result.retries) == (34, 22)


# Interruption -----------------------------------------------------------------------------------


def stopped_after(mirror: Mirror, requests: int, wallets: int, **more: Any) -> Any:
    """Run a sync with long waits between attempts, and stop it after this many requests."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        options = {"first_wait": 100.0, "stopped": stopped, **more}
        running = thread.submit(mirror.run, range(wallets), **options)
        try:
            mirror.provider.wait_for(requests)
            time.sleep(0.5)
        finally:
            stopped.set()
        return running.result()


def test_a_wait_for_a_retry_blocks_no_other_wallet(mirror: Mirror) -> None:
    """Ten failing wallets wait for minutes, and two threads read all others."""
    mirror.provider.always(one_token_each)
    for number in range(10):
        mirror.provider.on(path_of(number), FAILS[number % 3])
    result = stopped_after(mirror, 60, 60, concurrency=2)
    assert mirror.provider.attempts().total() == 60
    # Failed reads are reported although a retry was pending.
    assert (result.status, result.requests, result.retries) == ("interrupted", 60, 0)
    assert (result.wallets.ok, result.wallets.failed) == (50, 10)
    for number in range(10):
        mirror.provider.on(path_of(number))
    again = mirror.run([], resume=True)
    assert (again.run_id, again.status, again.wallets.ok) == (result.run_id, "ok", 60)
    assert mirror.provider.attempts().total() == 70
    assert replayed(mirror.database) == mirrored(mirror.database)


@pytest.mark.parametrize(
    ("status", "wallets", "requests"),
    [(500, 2_100, 2_000), (429, 9, 1)],
    ids=["2,000 failures in a row", "a 429"],
)
def test_a_provider_that_answers_no_read_gets_few_requests(
    mirror: Mirror, status: int, wallets: int, requests: int
) -> None:
    mirror.provider.always(reply(status=status))
    result = stopped_after(mirror, requests, wallets, concurrency=1)
    assert result.status == "interrupted"
    assert mirror.provider.attempts().total() == requests


def test_a_resumed_run_reads_failed_and_incomplete_wallets_again(mirror: Mirror) -> None:
    stopped = threading.Event()

    def last(peer: Peer) -> bool:
        stopped.set()
        return one_token_each(peer)

    mirror.provider.always(one_token_each)
    mirror.provider.on(path_of(1), reply(status=404))
    mirror.provider.on(path_of(2), reply(balances(nextPage="more")))
    mirror.provider.on(path_of(4), last)
    result = mirror.run(range(9), concurrency=1, stopped=stopped)
    assert (result.status, result.wallets.failed) == ("interrupted", 2)
    for number in (1, 2, 4):
        mirror.provider.on(path_of(number))
    again = mirror.run([], resume=True)
    assert (again.run_id, again.status) == (result.run_id, "ok")
    assert (again.wallets.ok, again.wallets.failed) == (9, 0)
    assert len(mirrored(mirror.database)) == 9


@pytest.mark.parametrize("read", [4, 0])
def test_ctrl_c_does_not_wait_for_a_silent_provider_and_keeps_all_reads(
    mirror: Mirror, read: int
) -> None:
    """The status is `interrupted` even if every finished read failed."""
    wallets = mirror.fill(12)
    for number in range(read, 12):
        mirror.provider.on(path_of(number), reply(status=404) if number < 4 else silence())

    def press() -> None:
        mirror.provider.wait_for(8)  # four answered, four silent
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    result = mirror.sync(wallets, timeout=10_000)
    thread.join()
    assert (result.status, result.wallets.ok) == ("interrupted", read)
    assert set(errors(result)) == set(wallets[read:4])
    assert set(mirror.held()) == set(wallets[:read])
    for number in range(12):
        mirror.provider.on(path_of(number))
    resumed = mirror.sync(resume=True)
    assert (resumed.run_id, resumed.status, resumed.wallets.ok) == (result.run_id, "ok", 12)
    assert set(mirror.held()) == set(wallets)


def test_a_stale_read_is_repeated(mirror: Mirror) -> None:
    """A replay beside the sync applies a later read of the wallet first."""

    def overtaken(peer: Peer) -> bool:
        mirror.apply(1, "2")
        return one_token_each(peer)

    mirror.provider.always(one_token_each)
    mirror.provider.on(PATH, overtaken, reply(balances(entry(token(1), "3"))))
    result = mirror.run(range(3))
    assert (result.status, result.wallets.ok) == ("ok", 3)
    assert mirror.provider.attempts()[PATH] == 2
    assert mirrored(mirror.database)[wallet(1), token(1)] == "3"


# The give-up rule -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "renewable"), [(200, True), (MANY, False)])
def test_wrong_credentials_end_a_run_after_20_responses(
    mirror: Mirror, tmp_path: Path, count: int, renewable: bool
) -> None:
    """Requests in flight add to them. Reads are made by threads, and by a process."""
    concurrency, runs = 16, tmp_path / "runs"
    command = f"token_command = 'sh -c \"echo x >> {runs}; echo token\"'\n" if renewable else ""
    mirror.provider.always(reply(status=401))
    result = mirror.sync(map(wallet, range(count)), concurrency=concurrency, toml=command)
    assert result.status == "failed"
    assert "first 20 responses were all 401 or 403" in str(result.error)
    # Each request with the first token may be in flight when it is refused.
    first_token = concurrency if renewable else 0
    assert 20 <= len(mirror.provider.requests()) < first_token + 20 + concurrency


def test_an_unreachable_provider_ends_the_run(mirror: Mirror) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    result = mirror.sync(map(wallet, range(600)), base_url=url)
    assert "50 requests in a row got no connection (no connection to " in str(result.error)
    assert 50 <= result.requests < 600
    assert mirror.query("SELECT status, error FROM sync_runs") == [("failed", result.error)]


def test_a_server_without_tls_ends_the_run_after_the_second_handshakes(mirror: Mirror) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        result = mirror.sync(map(wallet, range(40)), base_url=url, timeout=2, retries=5)
    assert result.status == "failed"
    advice = "does the server speak TLS on this port? If not, use http:// in base_url"
    assert f"no connection to {url}: the TLS handshake timed out; {advice}" in str(result.error)
    assert result.requests <= 2 * 4


# Incomplete lists -------------------------------------------------------------------------------


def test_an_incomplete_read_stores_its_entries_and_removes_nothing(mirror: Mirror) -> None:
    holds = mirror.provider.holds
    holds(wallet(1), entry(token(1), "1"), entry(token(2), "1"))
    mirror.sync([wallet(1)])
    (read_at,) = mirror.query("SELECT synced_at FROM wallets")
    holds(wallet(1), entry(token(1), "7"), entry(token(3), "1"), nextPage="abc")
    result = mirror.sync()
    assert (result.status, result.wallets.failed) == ("failed", 1)
    assert "'nextPage'" in errors(result)[wallet(1)]
    assert "ignore_fields" in errors(result)[wallet(1)]
    assert (result.balances.added, result.balances.changed, result.balances.removed) == (1, 1, 0)
    assert mirror.held() == {wallet(1): {token(1): "7", token(2): "1", token(3): "1"}}
    ((status, error, synced_at),) = mirror.query("SELECT status, error, synced_at FROM wallets")
    assert (status, synced_at) == ("incomplete", *read_at)
    assert "'nextPage'" in error
    again = mirror.sync(toml='ignore_fields = ["nextPage"]\n')
    assert (again.status, again.balances.removed) == ("ok", 1)
    assert mirror.held() == {wallet(1): {token(1): "7", token(3): "1"}}
    assert mirror.query("SELECT status, error FROM wallets") == [("ok", None)]
    first, last = balances(entry(token(1), "7"), nextPage="abc"), balances(entry(token(4), "2"))
    mirror.provider.on(PATH, reply(first), reply(last))
    paged = mirror.sync(toml='[paging]\nnext = "nextPage"\nparam = "c"\n')
    assert (paged.status, mirror.provider.requests()[-1].query) == ("ok", "c=abc")
    assert mirror.held() == {wallet(1): {token(1): "7", token(4): "2"}}


@pytest.mark.parametrize("etag", ['"1"', 'W/"1"'])
def test_a_constant_validator_hides_changes_for_a_day_at_most(mirror: Mirror, etag: str) -> None:
    body = TWO

    def answer(peer: Peer) -> bool:
        known = "if-none-match" in peer.seen.headers
        return (reply(status=304, etag=etag) if known else reply(body, etag=etag))(peer)

    mirror.provider.on(PATH, answer)
    mirror.sync([wallet(1)])
    body = ONE
    assert mirror.sync().wallets.unchanged == 1
    day_ago = (datetime.now(UTC) - timedelta(hours=24)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    mirror.query("UPDATE wallets SET synced_at = ?", day_ago)
    result = mirror.sync()
    assert (result.balances.removed, mirror.held()) == (1, {wallet(1): {token(1): "1"}})
    sent = [seen.headers.get("if-none-match") for seen in mirror.provider.requests()]
    assert sent == [None, etag, None]


# Limits and messages ----------------------------------------------------------------------------


def test_large_responses_wait_for_each_other_and_are_all_read(mirror: Mirror) -> None:
    for number in range(40):
        body = balances(*(entry(token(3 * number + n)) for n in range(3)))
        start = head(f"content-length: {len(body)}") + body[:-1]
        mirror.provider.on(path_of(number), raw(start, body[-1:], pause=0.02, then="keep"))
    result = mirror.run(range(40), large_bytes=300)
    assert (result.status, len(mirrored(mirror.database))) == ("ok", 40 * 3)
    assert result.requests == len(mirror.provider.requests()) == 40


def test_a_large_sync_with_shared_access_keeps_its_limit_of_requests(mirror: Mirror) -> None:
    answer = CountedAnswer(one_token_each, seconds=0.002)
    mirror.provider.always(answer)
    assert mirror.run(range(MANY), at_once=3).wallets.ok == MANY
    assert answer.most_at_once <= 3


def test_errors_of_one_kind_are_printed_once(
    mirror: Mirror, command: Callable[..., Outcome]
) -> None:
    wrong = {"tokenId": token(1), "amount": 1}
    answers: list[Sender] = [reply(status=500)] * 6
    answers += [reply(balances(wrong)), reply(balances(entry(token(9)), wrong)), reply(status=404)]
    mirror.provider.always(one_token_each)
    for number, answer in enumerate(answers):
        mirror.provider.on(path_of(number), answer)
    Path("wallets.csv").write_text(
        f"wallet_id,label\n{wallet(0)},Treasury\n{wallet(8)},Cold \x1b[31m\n"
        + "".join(f"{wallet(number)},\n" for number in (*range(1, 8), *range(9, 30)))
    )
    where = ("-d", mirror.database)
    asked = ("sync", "--base-url", mirror.provider.url, *where, "--wallets-file", "wallets.csv")
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
    assert len(command("wallets", "--status", "failed", "--json", *where).json) == 9
    assert len(command(*asked, "--retries", "1", "--json").json["failures"]) == 9
