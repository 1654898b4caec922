"""A lake on S3: as in a folder, and the store itself refuses all but one of several writers."""

import os
import re
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
from tests.kit import lakes
from tests.kit.lake_cluster import BUCKETS, Cluster, cluster_of, refused, show, sync_words
from tests.kit.provider import token, wallet
from tests.kit.worlds import PATIENCE, Outcome, mirrored
from tests.kit.worlds import run_command as command

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
WALLETS = [wallet(number) for number in range(12)]
AMOUNT = "700000000000000000.5"
HELD = {(each, token(number)): AMOUNT for number, each in enumerate(WALLETS)}
VARIABLES = {"AWS_ACCESS_KEY_ID": "the-key-id", "AWS_SECRET_ACCESS_KEY": SECRET}


class Seen(NamedTuple):
    method: str
    path: str
    match: str
    status: str


@pytest.fixture(scope="module", autouse=True)
def requests(tmp_path_factory) -> Iterator[Callable[[], list[Seen]]]:
    """Requests to an S3 that the environment names."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with object_store(log) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in (variables | VARIABLES | {"AWS_REGION": "eu-central-1"}).items():
            patch.setenv(name, value)
        yield lambda: [Seen(*line.split()) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def workers(requests, tmp_path_factory) -> Iterator[Cluster]:
    with cluster_of(tmp_path_factory.mktemp("workers"), 1) as running:
        yield running


@pytest.fixture
def sync(provider, workers) -> Callable[[str], Outcome]:
    """Sync into a lake on S3, without heartbeats."""
    show(provider, WALLETS, AMOUNT)

    def run(url: str) -> Outcome:
        words = sync_words(url, WALLETS, provider.url, workers)
        return command(*words, "--takeover-after", "1h", "--json")

    return run


def test_a_lake_on_s3_is_as_in_a_folder_with_conditional_commits_and_few_requests(requests, sync):
    url = "s3://lakes/whole"
    outcomes = [sync(url).says()]
    counts, before = [], len(requests())
    for _ in range(5):
        outcomes.append(sync(url).says())
        paths = [seen.path for seen in requests()[before:]]
        before += len(paths)
        of_buckets = [x for x in paths if "/whole/buckets/" in x or "/steps/run-" in x]
        assert len(of_buckets) <= 4 * BUCKETS, of_buckets
        counts.append(len(paths) - len(of_buckets))
    # In one of them, Delta writes a checkpoint of the ledger.
    assert [count for count in counts if count > 50] == [max(counts)] < [100], counts
    for name in ("status", "runs", "removals"):
        before = len(requests())
        outcomes.append(command("lake", name, url, "--json").says())
        assert len(requests()) - before <= 10, name
    assert outcomes[0].json["balances"]["added"] == len(HELD)
    assert outcomes[5].json["wallets"]["unchanged"] == len(WALLETS)
    assert outcomes[6].json["tables"]["balance_changes"]["rows"] == len(HELD)
    assert lakes.files(url, 1) == lakes.files(url, 6)
    lakes.check_lake(url)
    assert set(frames.holdings(url)["amount_text"].compute()) == {AMOUNT}
    outcomes.append(command("lake", "export", url, "copy.db").says())
    assert mirrored(Path("copy.db")) == HELD
    puts = [seen for seen in requests() if seen.method == "PUT"]
    commits = [x for x in puts if "/_delta_log/" in x.path and x.path.endswith(".json")]
    assert {seen.match for seen in commits} == {"*"}
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request"}
    passing = re.compile("/lakes/?|.*/(steps|_last_check).*")
    for path in {seen.path for seen in puts if not passing.fullmatch(seen.path)}:
        with urlopen(Request(os.environ["AWS_ENDPOINT_URL"] + path, headers=headers)) as answer:
            assert SECRET.encode() not in answer.read()
    assert SECRET not in "".join(outcome.said for outcome in outcomes)


def test_commits_that_the_store_made_but_did_not_confirm_are_not_another_drivers(sync):
    for _ in range(3):
        sync("s3://lakes/unsure").says()
    assert lakes.held("s3://lakes/unsure") == HELD
    lakes.check_lake("s3://lakes/unsure")


def test_a_store_that_ignores_conditions_is_refused_each_time(sync, provider):
    for _ in range(2):
        refused(sync("s3://lakes/forgetful"), 1, "conditional puts")
    assert not provider.requests()


def test_of_drivers_that_begin_at_once_the_store_refuses_all_but_one(requests):
    lake, drivers, late = Lake("s3://lakes/fought"), 4, threading.Event()
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
            if any("/fought/runs/" in x.path and x.status == "412" for x in requests()):
                return
    pytest.fail("the store refused none: this proves nothing")


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
def test_an_error_of_the_store_is_one_line_without_the_body(error, said):
    url = f"s3://lakes/{error}/lake"
    outcome = command("lake", "runs", url)
    refused(outcome, 1, said, url)
    assert "hush" not in outcome.err
    assert "\x1b" not in outcome.err


def test_a_missing_store_and_missing_credentials_are_one_line_within_seconds(monkeypatch):
    status = ("lake", "status", "s3://lakes/lake")
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
        (f"s3://key:{SECRET}@lakes/lake", "in the environment"),
        (f"az://lakes/lake?sig={SECRET}", "in the environment"),
    ],
)
def test_an_invalid_address_is_a_usage_error(address, said, tmp_path):
    for words in (("runs",), ("sync", "--base-url", "http://127.0.0.1:9")):
        outcome = command("lake", words[0], address, *words[1:])
        refused(outcome, 2, said)
        assert SECRET not in outcome.said
    assert not list(tmp_path.iterdir())


def test_a_worker_without_credentials_reports_that_they_are_missing():
    error = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP")
    assert reason_of(error, "s3://x/y").endswith("here and on every worker")
    error = OSError("GET http://169.254.169.254/computeMetadata/v1/x?audience=y")
    assert "GOOGLE_SERVICE_ACCOUNT" in reason_of(error, "gs://x/y")
    error = OSError("GET http://u:p@h/x?sig=1 in 2ms:\n\x1b[31m↳\x1b[0m no")
    assert reason_of(error, "s3://x") == "GET http://h/x in 2ms: no"
