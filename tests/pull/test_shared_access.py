"""A sync beside other readers of the same process: one pace for all, and a stop from outside."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nftsync.provider.access import access_to
from nftsync.provider.client import Client, finish
from nftsync.provider.config import ClientConfig
from nftsync.pull.run import SyncRequest, sync_wallets
from nftsync.records import Effort
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Peer, Provider, balances, entry, reply, silence, token, wallet
from tests.kit.worlds import mirrored

#: More than what makes a sync without shared access start a process of its own.
MANY = 520


def config_of(provider: Provider) -> ClientConfig:
    return ClientConfig(base_url=provider.url, timeout=60.0)


def request(count: int, *, resume: bool = False) -> SyncRequest:
    return SyncRequest(
        wallets=[WalletLine(wallet(number)) for number in range(count)], resume=resume
    )


def one_token_each(peer: Peer) -> bool:
    number = int(peer.seen.path.split("/")[3][-12:], 16)
    return reply(balances(entry(token(number))))(peer)


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
    config = config_of(lying)
    access = access_to(config, at_once=3)
    result = sync_wallets(database, config, request(MANY), progress=False, access=access)
    assert (result.status, result.wallets.ok) == ("ok", MANY)
    assert len(mirrored(database)) == MANY
    assert most <= 3


def test_an_urgent_reader_gets_its_answers_while_a_sync_waits_for_every_slot(
    lying: Provider, database: Path
) -> None:
    """16 threads of the sync are in line before each urgent read, and yet it is the very next."""
    lying.always(one_token_each)
    for number in range(10):
        lying.on(f"/v1/tokens/{token(number)}", reply(b'{"id": "%s"}' % token(number).encode()))
    config = ClientConfig(base_url=lying.url, rate_limit=40.0)
    access = access_to(config)
    stopped = threading.Event()
    urgent = Client(config, access, urgent=True)
    with ThreadPoolExecutor(1) as thread, urgent:
        running = thread.submit(
            sync_wallets, database, config, request(MANY), access=access, stopped=stopped
        )
        try:
            lying.wait_for(3)
            for number in range(10):
                while access.limiter.waiting < 8:
                    time.sleep(0.001)
                before = len(lying.requests())
                finish(urgent.token(token(number), Effort()))
                paths = [seen.path for seen in lying.requests()[before:]]
                # A busy machine lets some go first, but never all eight in line before it.
                assert f"/v1/tokens/{token(number)}" in paths[:8]
        finally:
            stopped.set()
        assert running.result().status == "interrupted"


@pytest.mark.parametrize(("shared", "count"), [(False, MANY), (True, 20)])
def test_a_stop_from_another_thread_ends_a_sync_that_the_provider_keeps_waiting(
    lying: Provider, database: Path, shared: bool, count: int
) -> None:
    """As after Ctrl-C: what was read is saved, and --resume reads only the rest."""
    lying.always(silence())
    for number in range(5):
        lying.on(f"/v1/wallets/{wallet(number)}/nft-balances", one_token_each)
    config = config_of(lying)
    access = access_to(config) if shared else None
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(
            sync_wallets,
            database,
            config,
            request(count),
            concurrency=8,
            progress=False,
            access=access,
            stopped=stopped,
        )
        try:
            lying.wait_for(13)
            assert not running.done()
        finally:
            stopped.set()  # or a test that fails would wait for ever
        result = running.result()
    assert (result.status, result.wallets.ok, result.failures) == ("interrupted", 5, [])
    lying.always(one_token_each)
    again = sync_wallets(database, config, request(count, resume=True), progress=False)
    assert (again.status, again.run_id, again.wallets.ok) == ("ok", result.run_id, count)
    assert len(lying.requests()) == 13 + count - 5


def test_a_stop_leaves_other_readers_of_the_access_alone(lying: Provider, database: Path) -> None:
    lying.always(one_token_each)
    config = config_of(lying)
    access = access_to(config, at_once=2)
    stopped = threading.Event()
    stopped.set()
    result = sync_wallets(
        database, config, request(3), progress=False, access=access, stopped=stopped
    )
    assert (result.status, result.wallets.ok) == ("interrupted", 0)
    with Client(config, access) as other, ThreadPoolExecutor(2) as threads:
        reads = threads.map(
            lambda number: finish(other.balances(wallet(number), Effort())), range(8)
        )
        assert all(read.entries for read in reads)
