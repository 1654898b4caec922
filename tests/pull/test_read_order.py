"""The order of reads is the order of their requests: the newer response wins."""

from __future__ import annotations

import sqlite3
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nftsync.provider.client import Client, access_to
from nftsync.provider.config import ClientConfig, Paging
from nftsync.pull.plan import SyncRequest
from nftsync.pull.reads import Pool, WalletTask, read
from nftsync.pull.run import sync_wallets
from nftsync.records import Read, SequenceNumbers
from nftsync.store.mirror import Mirror
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Peer, Provider, balances, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE

#: Both wallets hold the same token, whose name says which response is the newer one.
FIRST, SECOND = wallet(1), wallet(2)
OLD, NEW = (balances(entry(token(1), metadata={"name": name})) for name in ("Old", "New"))


def path_of(wallet_id: str) -> str:
    return f"/v1/wallets/{wallet_id}/nft-balances"


def refused_until_other_was_read(
    status: int, headers: dict[str, str], other_was_read: Callable[[], bool]
) -> Callable[[Peer], bool]:
    """Refuse, once more after the other wallet was read, and then send the newer response."""
    is_last = False

    def answer(peer: Peer) -> bool:
        nonlocal is_last
        if is_last:
            return reply(NEW)(peer)
        is_last = other_was_read()
        return reply(b"", status, **headers)(peer)

    return answer


@pytest.mark.parametrize(
    ("status", "headers"),
    [(503, {}), (503, {"retry_after": "1"}), (429, {}), (429, {"retry_after": "1"})],
)
def test_a_response_after_refusals_is_newer_than_one_that_came_meanwhile(
    lying: Provider, database: Path, status: int, headers: dict[str, str]
) -> None:
    was_read = threading.Event()

    def answer(peer: Peer) -> bool:
        sent = reply(OLD)(peer)
        was_read.set()
        return sent

    lying.on(path_of(FIRST), refused_until_other_was_read(status, headers, was_read.is_set))
    lying.on(path_of(SECOND), answer)
    config = ClientConfig(base_url=lying.url, attempts=100, first_wait=0.02)
    request = SyncRequest(wallets=[WalletLine(FIRST), WalletLine(SECOND)])
    # With one thread, a 429 would keep the other wallet back for as long as it comes.
    threads = 1 if status == 503 and not headers else 2
    result = sync_wallets(database, config, request, concurrency=threads, progress=False)
    assert result.status == "ok"
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT name FROM tokens").fetchall() == [("New",)]


def test_a_read_that_waited_for_the_rate_limit_is_newer_than_one_that_went_before_it(
    lying: Provider, database: Path
) -> None:
    others_wait = threading.Event()
    lying.on(path_of(wallet(3)), lambda peer: others_wait.wait(PATIENCE) and reply(OLD)(peer))
    lying.on(path_of(SECOND), reply(OLD))
    lying.on(path_of(FIRST), reply(NEW))
    config = ClientConfig(base_url=lying.url)
    access = access_to(config, at_once=1)

    def wait_for(in_line: int) -> None:
        until = time.monotonic() + PATIENCE
        while access.limiter.waiting < in_line:
            assert time.monotonic() < until
            time.sleep(0.001)

    with Mirror(database) as mirror:
        ordinary = Pool(config, mirror.numbers, 2, access)
        urgent = Pool(config, mirror.numbers, 1, access, urgent=True)
        with closing(ordinary), closing(urgent):
            ordinary.submit([WalletTask(wallet(3))])
            lying.wait_for(1)
            ordinary.submit([WalletTask(FIRST)])
            wait_for(1)
            urgent.submit([WalletTask(SECOND)])
            wait_for(2)
            others_wait.set()
            reads = urgent.take(100, timeout=PATIENCE) + ordinary.take(100, timeout=PATIENCE)
        assert [seen.path for seen in lying.requests()][1:] == [path_of(SECOND), path_of(FIRST)]
        with mirror.transaction() as transaction:
            transaction.apply(reads)
        assert mirror.connection.execute("SELECT name FROM tokens").fetchall() == [("New",)]


# Which request it is, by the steps of one read --------------------------------------------------


class Steps:
    """A read that is made step by step: each step ends at a wait for a repeat, or at the end."""

    def __init__(self, client: Client, numbers: SequenceNumbers, wallet_id: str) -> None:
        self._steps = read(client, numbers, WalletTask(wallet_id))

    def waits(self) -> None:
        next(self._steps)

    def ends(self) -> Read:
        with pytest.raises(StopIteration) as end:
            next(self._steps)
        result: Read = end.value.value
        return result


@pytest.fixture
def numbers() -> SequenceNumbers:
    return SequenceNumbers(0, 0)


def test_a_failed_read_has_the_number_and_the_time_of_its_last_attempt(
    lying: Provider, numbers: SequenceNumbers
) -> None:
    lying.on(path_of(FIRST), reply(status=500))
    lying.on(path_of(SECOND), reply(OLD))
    with Client(ClientConfig(base_url=lying.url, attempts=2)) as client:
        failing = Steps(client, numbers, FIRST)
        failing.waits()
        meanwhile = Steps(client, numbers, SECOND).ends()
        failed = failing.ends()
    assert failed.outcome == "failed"
    assert failed.sequence > meanwhile.sequence
    assert failed.started_at >= meanwhile.started_at


@pytest.mark.parametrize("first_is_repeated", [True, False])
def test_a_list_of_pages_has_the_number_of_the_request_of_its_first_page(
    lying: Provider, numbers: SequenceNumbers, first_is_repeated: bool
) -> None:
    pages = [reply(balances(next="2")), reply(status=503), reply(balances())]
    if first_is_repeated:
        pages.insert(0, reply(status=503))
    lying.on(path_of(FIRST), *pages)
    lying.on(path_of(SECOND), reply(OLD))
    paging = Paging(next="next", param="page")
    with Client(ClientConfig(base_url=lying.url, paging=paging)) as client:
        paged = Steps(client, numbers, FIRST)
        paged.waits()
        meanwhile = Steps(client, numbers, SECOND).ends()
        if first_is_repeated:
            paged.waits()
        whole = paged.ends()
    assert whole.outcome == "ok"
    assert (whole.sequence > meanwhile.sequence) == first_is_repeated


def test_a_number_is_taken_once_there_is_a_connection_to_send_the_request_over(
    lying: Provider, numbers: SequenceNumbers, certificates: Any
) -> None:
    """Connecting may take seconds, in which other requests are sent and answered."""
    began, may_connect = threading.Event(), threading.Event()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server)

    def greeted(*_: object) -> None:
        began.set()
        may_connect.wait(PATIENCE)

    tls.sni_callback = greeted
    lying.on(path_of(SECOND), reply(OLD))
    with Provider(tls=tls) as secure, ThreadPoolExecutor(1) as thread:
        secure.on(path_of(FIRST), reply(NEW))
        config = ClientConfig(base_url=secure.url, ca_file=certificates.ca, timeout=2 * PATIENCE)
        with Client(config) as slow, Client(ClientConfig(base_url=lying.url)) as client:
            connecting = thread.submit(Steps(slow, numbers, FIRST).ends)
            assert began.wait(PATIENCE)
            meanwhile = Steps(client, numbers, SECOND).ends()
            may_connect.set()
            assert connecting.result().sequence > meanwhile.sequence
