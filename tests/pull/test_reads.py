"""Work of a sync: its requests and writes are counted, and reads have the order of requests."""

import hashlib
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext

import pytest

from nftsync.provider.client import Client, access_to
from nftsync.provider.config import ClientConfig, Paging
from nftsync.pull.loop import Policy, ReadLoop
from nftsync.pull.reads import Pool, Reader, WalletTask, read, subject_of
from nftsync.records import CONTENT_COLUMNS, Applied, SequenceNumbers, WalletRead
from nftsync.store.mirror import BatchSize
from nftsync.store.mirror import Mirror as Store
from nftsync.times import now
from tests.kit.provider import Provider, balances, entry, path_of, reply, token, wallet
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

WALLETS = 20
TABLES = "balance_rows", "balance_change_rows", "tokens", "token_change_rows", "wallet_state_rows"


def test_a_sync_sends_one_request_for_each_wallet_and_writes_only_changes(mirror):
    """Each wallet holds a token of its own, and one that all share; responses have ETags."""

    def sizes():
        return [mirror.query(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES]

    for number in range(WALLETS):
        body = balances(entry(token(number)), entry(token(WALLETS)))
        mirror.provider.on(path_of(number), reply(body, etag='"1"'), reply(status=304))
    wallets = [wallet(number) for number in range(WALLETS)]
    assert mirror.sync(wallets).requests == WALLETS
    before = sizes()
    for _ in range(2):
        result = mirror.sync(wallets)
        assert (result.requests, result.wallets.unchanged) == (WALLETS, WALLETS)
        assert sizes() == before
    assert mirror.provider.connections <= 3 * 4  # they are kept alive
    validators = [seen.headers.get("if-none-match") for seen in mirror.provider.requests()]
    assert validators == [None] * WALLETS + ['"1"'] * 2 * WALLETS
    changed = balances(entry(token(0), "2"), entry(token(WALLETS)))
    mirror.provider.on(path_of(0), reply(changed, etag='"2"'))
    assert mirror.sync(wallets).wallets.unchanged == WALLETS - 1
    added = [after - size for after, size in zip(sizes(), before, strict=True)]
    assert added == [0, 1, 0, 0, 1]
    mirror.provider.always(reply(b'{"id": "x"}'))
    assert mirror.sync(wallets, tokens=True).requests == WALLETS + WALLETS + 1
    assert len(mirror.provider.attempts()) == 2 * WALLETS + 1


def test_applying_a_read_takes_as_many_steps_of_sqlite_in_a_large_database(tmp_path):
    """Each wallet has twenty NFTs."""

    def found(number, amount="1", outcome="ok"):
        ids = [hashlib.sha256(f"{number} {each}".encode()).hexdigest()[:36] for each in range(20)]
        content = ("organization", *[None] * (len(CONTENT_COLUMNS) - 1))
        return WalletRead(
            wallet_id=wallet(number),
            sequence=store.numbers.take(),
            started_at=now(),
            outcome=outcome,
            entries=[(each, amount, content) for each in ids if outcome == "ok"],
            digest=f"{number} {amount}",
        )

    def steps(*reads):
        counted = []
        store.connection.set_progress_handler(lambda: counted.append(None), 10)
        with store.transaction() as transaction:
            transaction.apply(reads)
        store.connection.set_progress_handler(None, 10)
        return 10 * len(counted)

    results = []
    for size in (600, 60):
        with Store(tmp_path / f"{size}.db", write_gap=0.0) as store:
            steps(*map(found, range(size)))
            reads = found(size), found(size // 2, "2"), found(size // 3, "1", "unchanged")
            results.append([steps(each) for each in reads])
    for large, small in zip(*results, strict=True):
        assert 0 < large < 1.3 * small + 100


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [(10.0, [500, 250, 200, 200]), (0.12, [1_000] * 4), (0.0, [2_000, 4_000, 8_000, 8_000])],
)
def test_slow_transactions_make_smaller_ones_and_fast_ones_larger(seconds, sizes):
    size = BatchSize()
    size.learn(500, 10.0)  # a small transaction does not count
    for expected in sizes:
        size.learn(size.entries, seconds)
        assert size.entries == expected


#: Both wallets hold the same token; its name tells the responses apart.
OLD, NEW = (balances(entry(token(1), metadata={"name": name})) for name in ("Old", "New"))
FIRST, SECOND = WalletTask(wallet(1)), WalletTask(wallet(2))


@pytest.mark.parametrize(("status", "headers"), [(503, {}), (429, {"retry_after": "1"})])
def test_a_response_after_refusals_is_newer_than_one_received_meanwhile(mirror, status, headers):
    was_read = threading.Event()
    is_last = False

    def first(peer):
        """Refuse, once more after the other wallet was read, and then answer."""
        nonlocal is_last
        if is_last:
            return reply(NEW)(peer)
        is_last = was_read.is_set()
        return reply(b"", status, **headers)(peer)

    def second(peer):
        sent = reply(OLD)(peer)
        was_read.set()
        return sent

    mirror.provider.on(path_of(1), first)
    mirror.provider.on(path_of(2), second)
    # With one thread, a 429 would delay the other wallet, too.
    threads = 1 if status == 503 else 2
    result = mirror.run([1, 2], attempts=100, first_wait=0.02, concurrency=threads)
    assert result.status == "ok"
    assert mirror.query("SELECT name FROM tokens") == [("New",)]


def test_a_read_that_waited_for_the_rate_limit_is_newer_than_one_that_overtook_it(lying, database):
    others_wait = threading.Event()
    lying.on(path_of(3), lambda peer: others_wait.wait(PATIENCE) and reply(OLD)(peer))
    lying.on(path_of(2), reply(OLD))
    lying.on(path_of(1), reply(NEW))
    config = ClientConfig(base_url=lying.url)
    access = access_to(config, at_once=1)
    with Store(database) as store:
        ordinary = Pool(config, store.numbers, 2, access)
        urgent = Pool(config, store.numbers, 1, access, urgent=True)
        with closing(ordinary), closing(urgent):
            ordinary.submit([WalletTask(wallet(3))])
            lying.wait_for(1)
            for waiting, (pool, number) in enumerate(((ordinary, 1), (urgent, 2)), start=1):
                pool.submit([WalletTask(wallet(number))])
                wait_until(lambda waiting=waiting: access.limiter.waiting >= waiting)
            others_wait.set()
            reads = urgent.take(100, timeout=PATIENCE) + ordinary.take(100, timeout=PATIENCE)
        assert [seen.path for seen in lying.requests()][1:] == [path_of(2), path_of(1)]
        with store.transaction() as transaction:
            transaction.apply(reads)
        assert store.connection.execute("SELECT name FROM tokens").fetchall() == [("New",)]


def ended(steps):
    """End a read whose steps end at the wait for a retry, or with the read; return it."""
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


@pytest.fixture
def numbers():
    return SequenceNumbers(0, 0)


def test_a_failed_read_has_the_number_and_the_time_of_its_last_attempt(lying, numbers):
    lying.on(path_of(1), reply(status=500))
    lying.on(path_of(2), reply(OLD))
    with Client(ClientConfig(base_url=lying.url, attempts=2)) as client:
        failing = read(client, numbers, FIRST)
        next(failing)
        meanwhile = ended(read(client, numbers, SECOND))
        failed = ended(failing)
    assert failed.outcome == "failed"
    assert failed.sequence > meanwhile.sequence
    assert failed.started_at >= meanwhile.started_at


@pytest.mark.parametrize("first_is_repeated", [True, False])
def test_pages_have_the_number_of_the_request_of_the_first_page(lying, numbers, first_is_repeated):
    pages = [reply(balances(next="2")), reply(status=503), reply(balances())]
    if first_is_repeated:
        pages.insert(0, reply(status=503))
    lying.on(path_of(1), *pages)
    lying.on(path_of(2), reply(OLD))
    paging = Paging(next="next", param="page")
    with Client(ClientConfig(base_url=lying.url, paging=paging)) as client:
        paged = read(client, numbers, FIRST)
        next(paged)
        meanwhile = ended(read(client, numbers, SECOND))
        if first_is_repeated:
            next(paged)
        whole = ended(paged)
    assert whole.outcome == "ok"
    assert (whole.sequence > meanwhile.sequence) == first_is_repeated


def test_a_number_is_taken_when_the_connection_exists(lying, numbers, certificates):
    """Connecting may take seconds, and other reads happen meanwhile."""
    began, may_connect = threading.Event(), threading.Event()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates.server)

    tls.sni_callback = lambda *_: began.set() or (may_connect.wait(PATIENCE) and None)
    lying.on(path_of(2), reply(OLD))
    with Provider(tls=tls) as secure, ThreadPoolExecutor(1) as thread:
        secure.on(path_of(1), reply(NEW))
        config = ClientConfig(base_url=secure.url, ca_file=certificates.ca, timeout=2 * PATIENCE)
        with Client(config) as slow, Client(ClientConfig(base_url=lying.url)) as client:
            connecting = thread.submit(ended, read(slow, numbers, FIRST))
            assert began.wait(PATIENCE)
            meanwhile = ended(read(client, numbers, SECOND))
            may_connect.set()
            assert connecting.result().sequence > meanwhile.sequence


class Waiting(Reader):
    """A reader whose reads finish when a test calls `finish`."""

    reason = None

    def __init__(self):
        super().__init__()
        self.submitted = []

    def submit(self, tasks):
        super().submit(tasks)
        self.submitted += tasks

    def withdraw(self):
        tasks, self.submitted = self.submitted, []
        self._pending.clear()
        return tasks

    def finish(self, sequence=1):
        origin = {"sequence": sequence, "started_at": "", "outcome": "ok"}
        self._put([WalletRead(wallet_id=FIRST.wallet_id, **origin)])

    def stop(self):
        self._pending.clear()


class Listing(Policy):
    """Collects the reads, and calls a function in their transaction."""

    transaction = nullcontext

    def __init__(self, more, result="ok"):
        self.reads = []
        self.more = more
        self.result = result

    def apply(self, _, reads, __):
        self.reads += reads
        return [Applied(read, self.result) for read in reads]

    def in_transaction(self, *_):
        self.more()


@pytest.mark.parametrize("change", ["request", "cancel"])
def test_a_finished_read_of_a_stopped_loop_may_request_or_cancel_others(change):
    reader = Waiting()
    policy = Listing(
        lambda: (
            loop.request(SECOND, after=0)
            if change == "request"
            else loop.cancel(subject_of(SECOND))
        )
    )
    loop = ReadLoop(reader, policy)
    loop.request(FIRST, after=0)
    loop.step(0.0)
    reader.finish()
    if change == "cancel":
        loop.request(SECOND, after=0)
        loop.withdraw()
    submitted = list(reader.submitted)
    loop.stop()
    assert [subject_of(read) for read in policy.reads] == [subject_of(FIRST)]
    assert reader.submitted == submitted
    assert loop.idle


def test_a_read_from_before_its_request_is_repeated_and_not_stale():
    reader = Waiting()
    policy = Listing(lambda: None)
    loop = ReadLoop(reader, policy)
    loop.request(FIRST, after=5)
    for sequence in range(1, 7):
        loop.step(0.0)
        assert not loop.idle
        reader.finish(sequence)
        loop.step(0.0)
    assert loop.idle
    assert [read.sequence for read in policy.reads] == [1, 2, 3, 4, 5, 6]


def test_a_read_that_later_ones_overtake_each_time_fails_in_the_end():
    reader = Waiting()
    loop = ReadLoop(reader, Listing(lambda: None, "stale"))
    loop.request(FIRST, after=0)
    results = []
    for sequence in range(1, 5):
        loop.step(0.0)
        reader.finish(sequence)
        results += [applied.result for applied in loop.step(0.0)]
    assert (results, loop.idle) == (["stale", "stale", "stale", "failed"], True)
