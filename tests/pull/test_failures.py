"""Syncs of a provider that fails, misleads or does not answer: no stored data is lost."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from nftsync.records import WalletRead
from nftsync.store.mirror import Mirror as Store
from nftsync.times import now, shifted
from tests.kit.faults import FAULTS, FINAL
from tests.kit.provider import (
    CountedAnswer,
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
from tests.kit.worlds import mirrored, replayed
from tests.pull.mirror import MANY, errors

PATH = path_of(1)
FAILS = [FAULTS[name].answer for name in ("500", "503", "reset")]


def test_failed_wallets_keep_their_holdings_and_are_read_again_if_the_failure_may_pass(mirror):
    """The others are read once. A process of its own reads so many wallets."""
    mirror.provider.always(one_token_each)
    mirror.run(range(MANY))
    faults = [(answer, 6) for answer in FAILS * 3]
    faults += [(fault.answer, 1) for fault in FINAL.values()]
    faults.append((reply(b'{"nftTokenBalances": ['), 3))
    requests = dict.fromkeys(range(MANY), 2)
    for number, (answer, count) in zip(range(3, MANY, 7), faults, strict=False):
        requests[number] = 1 + count
        mirror.provider.on(path_of(number), answer)
    failing = [wallet(number) for number in range(3, MANY, 7)][: len(faults)]
    times = f"SELECT synced_at FROM wallets WHERE wallet_id IN {(*failing,)} ORDER BY wallet_id"
    before, read_at = mirror.held(), mirror.query(times)
    result = mirror.run(range(MANY))
    asked = mirror.provider.attempts()
    assert asked == {path_of(number): count for number, count in requests.items()}
    ok = MANY - len(faults)
    assert (result.status, result.wallets.ok, result.balances.removed) == ("partial", ok, 0)
    counts = (asked.total() - MANY, asked.total() - 2 * MANY)
    assert (result.requests, result.retries) == counts
    runs = mirror.query("SELECT requests, retries, status FROM sync_runs ORDER BY run_id")
    assert runs[1:] == [(*counts, "partial")]
    assert sum("(after 3 attempts)" in error for error in errors(result).values()) == 10
    failed = mirror.query("SELECT wallet_id, error FROM wallets WHERE status = 'failed'")
    assert dict(failed) == errors(result)
    assert sorted(errors(result)) == failing
    assert (mirror.held(), mirror.query(times)) == (before, read_at)
    for number in range(MANY):
        mirror.provider.on(path_of(number))
    mirror.provider.on(PATH, reply(balances(entry(token(99)))))
    again = mirror.run(range(MANY))
    assert (again.status, again.balances.removed) == ("ok", 1)
    assert mirror.held() == before | {wallet(1): {token(99): "1"}}


def test_the_second_round_does_not_wait_for_held_removals(mirror):
    mirror.provider.always(one_token_each)
    mirror.run(range(6))
    for number in range(6):
        answer = reply(balances()) if number < 4 else reply(status=500)
        mirror.provider.on(path_of(number), answer)
    mirror.run(range(6))
    again = {path: count - 1 for path, count in mirror.provider.attempts().items()}
    assert again == {path_of(number): 1 if number < 4 else 6 for number in range(6)}
    assert len(mirrored(mirror.database)) == 2


def test_a_wallet_or_token_that_fails_only_at_first_is_read_at_the_end(mirror):
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


def test_a_provider_that_is_down_gets_one_round(mirror):
    mirror.provider.always(reply(status=500))
    mirror.provider.on(path_of(2), one_token_each)
    result = mirror.run(range(12))
    assert (result.status, result.wallets.failed) == ("partial", 11)
    asked = mirror.provider.attempts()
    assert asked == {path_of(number): 1 if number == 2 else 3 for number in range(12)}
    assert (result.requests, result.retries) == (34, 22)


def stopped_after(mirror, requests, wallets, concurrency):
    """Run a sync with long waits between attempts, and stop it after this many requests."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        options = {"first_wait": 100.0, "stopped": stopped, "concurrency": concurrency}
        running = thread.submit(mirror.run, range(wallets), **options)
        try:
            mirror.provider.wait_for(requests)
            time.sleep(0.3)  # for more requests
        finally:
            stopped.set()
        return running.result()


def test_a_wait_for_a_retry_blocks_no_other_wallet(mirror):
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
def test_a_provider_that_answers_no_read_gets_few_requests(mirror, status, wallets, requests):
    mirror.provider.always(reply(status=status))
    assert stopped_after(mirror, requests, wallets, concurrency=1).status == "interrupted"
    assert mirror.provider.attempts().total() == requests


def test_a_resumed_run_reads_failed_and_incomplete_wallets_again(mirror):
    stopped = threading.Event()
    mirror.provider.always(one_token_each)
    mirror.provider.on(path_of(1), reply(status=404))
    mirror.provider.on(path_of(2), reply(balances(nextPage="more")))
    mirror.provider.on(path_of(4), lambda peer: stopped.set() or one_token_each(peer))
    result = mirror.run(range(9), concurrency=1, stopped=stopped)
    assert (result.status, result.wallets.failed) == ("interrupted", 2)
    for number in (1, 2, 4):
        mirror.provider.on(path_of(number))
    again = mirror.run([], resume=True)
    assert (again.run_id, again.status) == (result.run_id, "ok")
    assert (again.wallets.ok, again.wallets.failed) == (9, 0)
    assert again.seconds > result.seconds
    assert len(mirrored(mirror.database)) == 9


@pytest.mark.parametrize("read", [4, 0], ids=["", "every finished read failed"])
def test_ctrl_c_does_not_wait_for_a_silent_provider_and_keeps_all_reads(mirror, read):
    wallets = [*map(wallet, range(12))]
    mirror.provider.always(one_token_each)
    for number in range(read, 12):
        mirror.provider.on(path_of(number), reply(status=404) if number < 4 else silence())

    def press():
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


def test_a_stale_read_is_repeated(mirror):
    """A replay beside the sync applies a later read of the wallet first."""

    def overtaken(peer):
        with Store(mirror.database) as store, store.transaction() as transaction:
            origin = {"sequence": store.numbers.take(), "started_at": now(), "outcome": "ok"}
            read = WalletRead(wallet_id=wallet(1), entries=[(token(1), "2", None)], **origin)
            transaction.apply([read])
        return one_token_each(peer)

    mirror.provider.always(one_token_each)
    mirror.provider.on(PATH, overtaken, reply(balances(entry(token(1), "3"))))
    result = mirror.run(range(3))
    assert (result.status, result.wallets.ok) == ("ok", 3)
    assert mirror.provider.attempts()[PATH] == 2
    assert mirror.held()[wallet(1)] == {token(1): "3"}


def test_wrong_credentials_end_a_run_after_20_responses(mirror):
    """Requests in flight add to them."""
    mirror.provider.always(reply(status=401))
    result = mirror.sync(map(wallet, range(MANY)), concurrency=16)
    assert result.status == "failed"
    assert "first 20 responses were all 401 or 403" in str(result.error)
    assert 20 <= len(mirror.provider.requests()) < 20 + 16


def test_an_unreachable_provider_ends_the_run(mirror):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    result = mirror.sync(map(wallet, range(200)), base_url=url)
    assert "50 requests in a row got no connection (no connection to " in str(result.error)
    assert 50 <= result.requests < 200
    assert mirror.query("SELECT status, error FROM sync_runs") == [("failed", result.error)]


def test_a_server_without_tls_ends_the_run_after_the_second_handshakes(mirror):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        result = mirror.sync(map(wallet, range(40)), base_url=url, timeout=1, retries=5)
    assert result.status == "failed"
    advice = "does the server speak TLS on this port? If not, use http:// in base_url"
    assert f"no connection to {url}: the TLS handshake timed out; {advice}" in str(result.error)
    assert result.requests <= 2 * 4


def test_an_incomplete_read_stores_its_entries_and_removes_nothing(mirror):
    holds = mirror.provider.holds
    holds(wallet(1), entry(token(1), "1"), entry(token(2), "1"))
    mirror.sync([wallet(1)])
    (read_at,) = mirror.query("SELECT synced_at FROM wallets")
    holds(wallet(1), entry(token(1), "7"), entry(token(3), "1"), nextPage="abc")
    result = mirror.sync()
    assert (result.status, result.wallets.failed) == ("failed", 1)
    (error,) = errors(result).values()
    assert "'nextPage'" in error
    assert "ignore_fields" in error
    assert (result.balances.added, result.balances.changed, result.balances.removed) == (1, 1, 0)
    assert mirror.held() == {wallet(1): {token(1): "7", token(2): "1", token(3): "1"}}
    stored = mirror.query("SELECT status, error, synced_at FROM wallets")
    assert stored == [("incomplete", error, *read_at)]
    again = mirror.sync(toml='ignore_fields = ["nextPage"]\n')
    assert (again.status, again.balances.removed) == ("ok", 1)
    assert mirror.held() == {wallet(1): {token(1): "7", token(3): "1"}}
    assert mirror.query("SELECT status, error FROM wallets") == [("ok", None)]
    first, last = balances(entry(token(1), "7"), nextPage="abc"), balances(entry(token(4), "2"))
    mirror.provider.on(PATH, reply(first), reply(last))
    paged = mirror.sync(toml='[paging]\nnext = "nextPage"\nparam = "c"\n')
    assert (paged.status, mirror.provider.requests()[-1].query) == ("ok", "c=abc")
    assert mirror.held() == {wallet(1): {token(1): "7", token(4): "2"}}


def test_a_constant_validator_hides_changes_for_a_day_at_most(mirror):
    etag = 'W/"1"'
    body = balances(entry(token(1)), entry(token(2)))

    def answer(peer):
        known = "if-none-match" in peer.seen.headers
        return (reply(status=304, etag=etag) if known else reply(body, etag=etag))(peer)

    mirror.provider.on(PATH, answer)
    mirror.sync([wallet(1)])
    body = balances(entry(token(1)))
    assert mirror.sync().wallets.unchanged == 1
    mirror.query("UPDATE wallets SET synced_at = ?", shifted(now(), -timedelta(hours=24)))
    result = mirror.sync()
    assert (result.balances.removed, mirror.held()) == (1, {wallet(1): {token(1): "1"}})
    sent = [seen.headers.get("if-none-match") for seen in mirror.provider.requests()]
    assert sent == [None, etag, None]


def test_large_responses_wait_for_each_other_and_are_all_read(mirror):
    for number in range(40):
        body = balances(*(entry(token(3 * number + n)) for n in range(3)))
        start = head(f"content-length: {len(body)}") + body[:-1]
        mirror.provider.on(path_of(number), raw(start, body[-1:], pause=0.02, then="keep"))
    result = mirror.run(range(40), large_bytes=300)
    assert (result.status, len(mirrored(mirror.database))) == ("ok", 40 * 3)
    assert result.requests == len(mirror.provider.requests()) == 40


def test_a_large_sync_with_shared_access_keeps_its_limit_of_requests(mirror):
    answer = CountedAnswer(one_token_each, seconds=0.002)
    mirror.provider.always(answer)
    assert mirror.run(range(MANY), at_once=3).wallets.ok == MANY
    assert answer.most_at_once <= 3


def test_errors_of_one_kind_are_printed_once(mirror, command):
    wrong = {"tokenId": token(1), "amount": 1}
    answers = [reply(status=500)] * 6
    answers += [reply(balances(wrong)), reply(balances(entry(token(9)), wrong)), reply(status=404)]
    mirror.provider.always(one_token_each)
    for number, answer in enumerate(answers):
        mirror.provider.on(path_of(number), answer)
    labels = {0: "Treasury", 8: "Cold \x1b[31m"}
    lines = [f"{wallet(number)},{labels.get(number, '')}" for number in (0, 8, *range(1, 8), 9)]
    Path("wallets.csv").write_text("\n".join(["wallet_id,label", *lines]))
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
