"""Whole syncs against a provider that fails, lies and falls silent: nothing is lost by it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nftsync.pull.result import SyncResult
from tests.kit.provider import Provider, balances, entry, raw, reply, silence, token, wallet
from tests.pull.runs import path_of

Sync = Callable[..., SyncResult]


def fill(lying: Provider, count: int) -> list[str]:
    """Let `count` wallets hold two tokens each."""
    for number in range(count):
        lying.holds(wallet(number), *(entry(token(2 * number + n), str(n)) for n in (0, 1)))
    return [wallet(number) for number in range(count)]


def errors(result: SyncResult) -> dict[str, str]:
    return {failure.wallet_id: failure.error for failure in result.failures}


def test_pages_are_put_together(lying: Provider, sync: Sync, held: Any) -> None:
    pages = {
        "": balances(entry(token(1)), cursor="two"),
        "c=two": balances(entry(token(2), "5"), cursor=None),
    }
    lying.on(path_of(0), lambda peer: reply(pages[peer.seen.query])(peer))
    toml = '[paging]\nnext = "cursor"\nparam = "c"\n'
    assert sync([wallet(0)], toml=toml).status == "ok"
    assert held() == {wallet(0): {token(1): "1", token(2): "5"}}
    assert sync(toml=toml).wallets.unchanged == 1


# Failures ---------------------------------------------------------------------------------------

FAULTS = {
    "not found": (reply(status=404), "404"),
    "down": (reply(status=500), "500"),
    "broken": (raw(b"HTTP/1.1 200 OK\r\n", then="reset"), "the connection broke"),
    "HTML": (reply(b"<html>"), "it looks like HTML"),
    "cut short": (reply(balances(entry(token(1)))[:-9]), "cut short"),
    "silent": (silence(), "no complete response within 0.5 s"),
    "another shape": (reply(b'{"nftTokenBalances": {}}'), "$.nftTokenBalances: expected array"),
    "one token, two amounts": (
        reply(balances(entry(token(1), "1"), entry(token(1), "2"))),
        f"token {token(1)} is listed twice, with the amounts '1' and '2'",
    ),
    "moved": (reply(status=301, location="/"), "a redirect"),
    "wait for a day": (reply(status=429, retry_after="86400"), "asks to wait 86400 s"),
}


def test_wallets_that_fail_are_listed_and_keep_what_they_held_while_the_others_go_on(
    lying: Provider, sync: Sync, held: Any, query: Any
) -> None:
    wallets = fill(lying, 30)
    sync(wallets)
    before, read_at = held(), dict(query("SELECT wallet_id, synced_at FROM wallets"))
    faulty = {wallet(number): fault for number, fault in enumerate(FAULTS)}
    for number, (answer, _) in enumerate(FAULTS.values()):
        lying.on(path_of(number), answer)
    result = sync(timeout=0.5)
    assert (result.status, result.wallets.total, result.wallets.failed) == (
        "partial", 30, len(FAULTS),
    )  # fmt: skip
    assert set(errors(result)) == set(faulty)
    for wallet_id, error in errors(result).items():
        assert FAULTS[faulty[wallet_id]][1] in error
        assert "\n" not in error
    assert (held(), result.balances.removed) == (before, 0)
    failed = query("SELECT wallet_id, error, synced_at FROM wallets WHERE status = 'failed'")
    assert {x[0]: x[1] for x in failed} == errors(result)
    assert all(synced_at == read_at[wallet_id] for wallet_id, _, synced_at in failed)
    for number in range(len(FAULTS)):
        lying.holds(wallet(number), entry(token(2 * number), "9"))
        lying.on(path_of(number))
    again = sync()
    assert (again.status, again.balances.removed) == ("ok", len(FAULTS))
    assert held()[wallet(1)] == {token(2): "9"}


# Incomplete reads -------------------------------------------------------------------------------


def test_an_incomplete_read_stores_what_it_shows_and_removes_nothing(
    lying: Provider, sync: Sync, held: Any, query: Any
) -> None:
    lying.holds(wallet(1), entry(token(1), "1"), entry(token(2), "1"))
    sync([wallet(1)])
    (read_at,) = query("SELECT synced_at FROM wallets")
    lying.holds(wallet(1), entry(token(1), "7"), entry(token(3), "1"), nextPage="abc")
    result = sync()
    assert (result.status, result.wallets.failed) == ("failed", 1)
    assert "'nextPage'" in errors(result)[wallet(1)]
    assert "ignore_fields" in errors(result)[wallet(1)]
    assert (result.balances.added, result.balances.changed, result.balances.removed) == (1, 1, 0)
    assert held() == {wallet(1): {token(1): "7", token(2): "1", token(3): "1"}}
    ((status, error, synced_at),) = query("SELECT status, error, synced_at FROM wallets")
    assert (status, synced_at) == ("incomplete", *read_at)
    assert "'nextPage'" in error
    again = sync(toml='ignore_fields = ["nextPage"]\n')
    assert (again.status, again.balances.removed) == ("ok", 1)
    assert held() == {wallet(1): {token(1): "7", token(3): "1"}}
    assert query("SELECT status, error FROM wallets") == [("ok", None)]


# Empty lists for everyone -----------------------------------------------------------------------


def test_wallets_that_never_held_anything_may_all_be_empty(lying: Provider, sync: Sync) -> None:
    wallets = [wallet(number) for number in range(40)]
    for wallet_id in wallets:
        lying.holds(wallet_id)
    assert [sync(wallets).status for _ in range(2)] == ["ok", "ok"]


# Runs that have no point ------------------------------------------------------------------------


# By threads, and by a process of its own.
@pytest.mark.parametrize(("count", "renewable"), [(200, True), (520, False)])
def test_wrong_credentials_end_a_run_after_20_responses_and_the_requests_in_flight(
    lying: Provider, sync: Sync, tmp_path: Path, count: int, renewable: bool
) -> None:
    concurrency, runs = 16, tmp_path / "runs"
    command = f"token_command = 'sh -c \"echo x >> {runs}; echo token\"'\n" if renewable else ""
    lying.always(reply(status=401))
    wallets = [wallet(number) for number in range(count)]
    result = sync(wallets, concurrency=concurrency, toml=command)
    assert result.status == "failed"
    assert "first 20 responses were all 401 or 403" in str(result.error)
    # Each request of the first token may be in flight when that is found to be refused.
    first_token = concurrency if renewable else 0
    assert 20 <= len(lying.requests()) < first_token + 20 + concurrency


def test_an_unreachable_provider_stops_the_run(sync: Sync, query: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    result = sync([wallet(number) for number in range(600)], base_url=url)
    assert "50 requests in a row got no connection (no connection to " in str(result.error)
    assert 50 <= result.requests < 600
    assert query("SELECT status, error FROM sync_runs") == [("failed", result.error)]


def test_a_server_without_tls_stops_the_run_with_the_second_handshakes(sync: Sync) -> None:
    concurrency = 4
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        wallets = [wallet(number) for number in range(40)]
        result = sync(wallets, base_url=url, timeout=2, concurrency=concurrency, retries=5)
    assert result.status == "failed"
    assert "does the server speak TLS on this port?" in str(result.error)
    assert result.requests <= 2 * concurrency


# Tokens by their id -----------------------------------------------------------------------------


def test_tokens_are_read_by_id_and_one_that_fails_is_listed_with_its_wallet(
    lying: Provider, sync: Sync, query: Any
) -> None:
    wallets = fill(lying, 2)
    for number in range(3):
        body = b'{"id": "%s", "contractAddress": "c%d"}' % (token(number).encode(), number)
        lying.on(f"/v1/tokens/{token(number)}", reply(body))
    result = sync(wallets, tokens=True)
    assert (result.status, result.requests) == ("partial", 6)
    (failure,) = result.failures
    assert (failure.wallet_id, failure.token_id) == (wallet(1), token(3))
    assert "404" in failure.error
    assert query("SELECT contract_address FROM tokens ORDER BY token_id") == [
        ("c0",), ("c1",), ("c2",), (None,),
    ]  # fmt: skip


# Interruption -----------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [4, 0])
def test_ctrl_c_does_not_wait_for_a_silent_provider_and_keeps_what_was_read(
    lying: Provider, sync: Sync, held: Any, read: int
) -> None:
    """Interrupted is interrupted, also where all that has ended so far has failed."""
    wallets = fill(lying, 12)
    for number in range(read, 12):
        lying.on(path_of(number), reply(status=404) if number < 4 else silence())
    pressed: list[float] = []

    def press() -> None:
        lying.wait_for(8)  # four answered, four silent
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    result = sync(wallets, timeout=60)
    thread.join()
    assert time.monotonic() - pressed[0] < 15
    assert (result.status, result.wallets.ok) == ("interrupted", read)
    assert set(errors(result)) == set(wallets[read:4])
    assert set(held()) == set(wallets[:read])
    for number in range(12):
        lying.on(path_of(number))
    resumed = sync(resume=True)
    assert (resumed.run_id, resumed.status, resumed.wallets.ok) == (result.run_id, "ok", 12)
    assert set(held()) == set(wallets)
