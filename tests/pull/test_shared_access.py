"""A sync beside other readers of the same process: one pace for all, and a stop from outside."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nftsync.provider.access import access_to
from nftsync.provider.client import Client, finish
from nftsync.provider.config import ClientConfig
from nftsync.pull.run import SyncRequest, sync_wallets
from nftsync.records import Effort
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet
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
