"""A lake on S3: as in a folder, and the store itself refuses all but one of several writers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from benchmarks.lake_costs import object_store
from nftsync import lake as frames
from nftsync.errors import SyncRunning
from nftsync.lake.ledger import Ledger
from nftsync.lake.ledger_table import LakeRun
from nftsync.lake.reasons import reason_of
from nftsync.lake.setup import create_lake
from nftsync.lake.storage import Lake
from tests.kit.lake_cluster import Cluster, check_lake, cluster_of, command, files, held
from tests.kit.provider import Provider, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, mirrored
from tests.lake.lakes import refused, show

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
WALLETS = [wallet(number) for number in range(12)]
AMOUNT = "700000000000000000.5"
VARIABLES = {"AWS_ACCESS_KEY_ID": "the-key-id", "AWS_SECRET_ACCESS_KEY": SECRET}
VARIABLES |= {"AWS_REGION": "eu-central-1", "AWS_ALLOW_HTTP": "true"}


class Store(NamedTuple):
    """An S3 and its log."""

    url: str
    log: Path

    def requests(self) -> list[tuple[str, str, str, str]]:
        """Return the method, path, `If-None-Match` and status of each request."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(method, path, match, status) for method, path, match, status in lines]

    def ask(self, method: str, path: str) -> bytes:
        credentials = "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request"
        request = Request(self.url + path, method=method, headers={"Authorization": credentials})
        with urlopen(request) as answer:
            body: bytes = answer.read()
        return body


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    log = tmp_path_factory.mktemp("s3") / "log"
    with object_store(log) as variables:
        store = Store(variables["AWS_ENDPOINT_URL"], log)
        for bucket in ("holdings", "unsure", "forgetful"):
            store.ask("PUT", f"/{bucket}")
        yield store


@pytest.fixture(scope="module")
def workers(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A worker that has the store's variables."""
    variables = VARIABLES | {"AWS_ENDPOINT_URL": store.url}
    with cluster_of(tmp_path_factory.mktemp("workers"), 1, variables) as running:
        yield running


@pytest.fixture(autouse=True)
def _variables(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (*VARIABLES.items(), ("AWS_ENDPOINT_URL", store.url)):
        monkeypatch.setenv(name, value)


Sync = Callable[..., Outcome]


@pytest.fixture
def sync(provider: Provider, workers: Cluster, tmp_path: Path) -> Sync:
    """Sync into a lake on S3, without heartbeats."""
    show(provider, WALLETS, AMOUNT)
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
    words = ("--base-url", provider.url, "--scheduler", workers.address, "--takeover-after", "1h")

    def run(url: str, *more: object) -> Outcome:
        return command("lake", "sync", url, *words, "--wallets-file", "wallets.txt", *more)

    return run


HELD = {(each, token(number)): AMOUNT for number, each in enumerate(WALLETS)}


def test_a_lake_on_s3_is_as_in_a_folder_with_conditional_commits_and_few_requests(
    store: Store, sync: Sync
) -> None:
    url, buckets = "s3://holdings/lake", 4
    outcomes = [sync(url, "--json", "--buckets", buckets).says()]
    counts, before = [], len(store.requests())
    for _ in range(5):
        outcomes.append(sync(url, "--json").says())
        paths = [path for _, path, *_ in store.requests()[before:]]
        before += len(paths)
        of_buckets = [x for x in paths if "/lake/buckets/" in x or "/steps/run-" in x]
        assert len(of_buckets) <= 4 * buckets, of_buckets
        counts.append(len(paths) - len(of_buckets))
    # In one of them, Delta writes a checkpoint of the ledger.
    assert [count for count in counts if count > 50] == [max(counts)] < [100], counts
    for name in ("status", "runs", "removals"):
        before = len(store.requests())
        outcomes.append(command("lake", name, url, "--json").says())
        assert len(store.requests()) - before <= 10, name
    assert outcomes[0].json["balances"]["added"] == len(HELD)
    assert outcomes[5].json["wallets"]["unchanged"] == len(WALLETS)
    assert outcomes[6].json["tables"]["balance_changes"]["rows"] == len(HELD)
    assert files(url, 1) == files(url, 6)
    assert held(url) == HELD
    check_lake(url)
    assert set(frames.holdings(url)["amount_text"].compute()) == {AMOUNT}
    outcomes.append(command("lake", "export", url, "copy.db").says())
    assert mirrored(Path("copy.db")) == HELD
    puts = [(path, match) for method, path, match, _ in store.requests() if method == "PUT"]
    commits = [match for path, match in puts if "/_delta_log/" in path and path.endswith(".json")]
    assert {*commits} == {"*"}
    kept = {path for path, _ in puts if path.count("/") > 2 and "/steps/" not in path}
    stored = b"".join(store.ask("GET", path) for path in kept if "_last_check" not in path)
    assert SECRET.encode() not in stored
    assert SECRET not in "".join(outcome.said for outcome in outcomes)


def test_commits_that_the_store_made_but_did_not_confirm_are_not_another_drivers(
    sync: Sync,
) -> None:
    for new in (("--buckets", 2), (), ()):
        sync("s3://unsure/lake", *new).says()
    assert held("s3://unsure/lake") == HELD
    check_lake("s3://unsure/lake")


def test_a_store_that_ignores_conditions_is_refused_each_time(
    sync: Sync, provider: Provider
) -> None:
    for _ in range(2):
        refused(sync("s3://forgetful/lake"), 1, "conditional puts")
    assert not provider.requests()


def test_of_drivers_that_begin_at_once_the_store_refuses_all_but_one(store: Store) -> None:
    lake, drivers, late = Lake("s3://holdings/fought"), 4, threading.Event()
    create_lake(lake)
    late.set()  # a driver that sees another's run does not wait for its heartbeats
    together = threading.Barrier(drivers)

    def begin(ledger: Ledger) -> list[tuple[Ledger, LakeRun]]:
        together.wait(PATIENCE)
        with suppress(SyncRunning, KeyboardInterrupt):
            return [(ledger, ledger.begin("", 2, PATIENCE, wallets=1, interrupted=late))]
        return []

    with ThreadPoolExecutor(drivers) as threads:
        for number in range(1, 41):
            ledgers = [Ledger(lake) for _ in range(drivers)]
            ((ledger, run),) = [x for began in threads.map(begin, ledgers) for x in began]
            assert [row.run_id for row in ledger.runs()] == [*range(1, number + 1)]
            with ledger.heartbeat(run, PATIENCE):
                pass  # it is interrupted
            if any("/fought/runs/" in path and x == "412" for _, path, _, x in store.requests()):
                return
    pytest.fail("the store refused none: this proves nothing")


# Messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("404-NoSuchBucket", "the bucket does not exist"),
        ("403-InvalidAccessKeyId", "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("403-SignatureDoesNotMatch", "refuses the credentials (SignatureDoesNotMatch)"),
        ("403-AccessDenied", "must list, read, write and delete there"),
        ("400-AuthorizationHeaderMalformed", "Set AWS_REGION"),
        ("501-NotImplemented", "conditional puts"),
        ("400-Unknown", "(Unknown)"),
    ],
)
def test_an_error_of_the_store_is_one_line_without_the_body(error: str, said: str) -> None:
    url = f"s3://holdings/{error}/lake"
    outcome = command("lake", "runs", url)
    refused(outcome, 1, said, url)
    assert "hush" not in outcome.err
    assert "\x1b" not in outcome.err


def test_a_missing_store_and_missing_credentials_are_one_line_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = ("lake", "status", "s3://holdings/lake")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{nobody}")
    refused(command(*status), 1, f"nothing answers at {nobody}")
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    refused(command(*status), 1, "AWS_ALLOW_HTTP=true")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{nobody}")
    refused(command(*status), 1, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("foo://x/lake", "foo://x/lake is not a lake address"),
        ("s3:///lake", "names no bucket"),
        ("s3://[/lake", "address is invalid"),
        (f"s3://key:{SECRET}@holdings/lake", "in the environment"),
        (f"az://holdings/lake?sig={SECRET}", "in the environment"),
    ],
)
def test_an_invalid_address_is_a_usage_error(address: str, said: str, tmp_path: Path) -> None:
    for words in (("runs",), ("sync", "--base-url", "http://127.0.0.1:9")):
        outcome = command("lake", words[0], address, *words[1:])
        refused(outcome, 2, said)
        assert SECRET not in outcome.said
    assert not list(tmp_path.iterdir())


def test_a_worker_without_credentials_reports_that_they_are_missing() -> None:
    error = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP")
    assert reason_of(error, "s3://x/y").endswith("here and on every worker")
    error = OSError("GET http://169.254.169.254/computeMetadata/v1/x?audience=y")
    assert "GOOGLE_SERVICE_ACCOUNT" in reason_of(error, "gs://x/y")
    error = OSError("GET http://u:p@h/x?sig=1 in 2ms:\n\x1b[31m↳\x1b[0m no")
    assert reason_of(error, "s3://x") == "GET http://h/x in 2ms: no"
