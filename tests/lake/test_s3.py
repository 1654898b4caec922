"""A lake on S3: as any other, and of writers at once one is refused by the store itself."""

from __future__ import annotations

import json
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
from tests.kit.lake_cluster import (
    Cluster,
    check_lake,
    cluster_of,
    driver,
    files,
    held,
)
from tests.kit.provider import Provider, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome, mirrored
from tests.lake.conftest import race, refused

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
WALLETS = [wallet(number) for number in range(12)]
SLOW = f"/v1/wallets/{WALLETS[5]}/nft-balances"
HELD = {
    (each, token(number)): f"{number}00000000000000000.5" for number, each in enumerate(WALLETS)
}


VARIABLES = {"AWS_ACCESS_KEY_ID": "the-key-id", "AWS_SECRET_ACCESS_KEY": SECRET}
VARIABLES |= {"AWS_REGION": "eu-central-1", "AWS_ALLOW_HTTP": "true"}


class Store(NamedTuple):
    """An S3, and what it was asked."""

    url: str
    log: Path

    def requests(self) -> list[tuple[str, str, str, str]]:
        """Of each its method, path, `If-None-Match` and status."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(method, path, match, status) for method, path, match, status in lines]

    def ask(self, method: str, path: str) -> bytes:
        somebody = "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request"
        request = Request(self.url + path, method=method, headers={"Authorization": somebody})
        with urlopen(request) as answer:
            found: bytes = answer.read()
        return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    log = tmp_path_factory.mktemp("s3") / "log"
    with object_store(log) as variables:
        found = Store(variables["AWS_ENDPOINT_URL"], log)
        for bucket in ("holdings", "unsure", "forgetful"):
            found.ask("PUT", f"/{bucket}")
        yield found


@pytest.fixture(scope="module")
def workers(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Workers that have the store's variables."""
    variables = VARIABLES | {"AWS_ENDPOINT_URL": store.url}
    with cluster_of(tmp_path_factory.mktemp("workers"), 1, variables) as running:
        yield running


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def on_s3(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    return store


@pytest.fixture
def where(provider: Provider, workers: Cluster, tmp_path: Path) -> tuple[object, ...]:
    """Words of a sync into a lake on S3."""
    for (each, nft), amount in HELD.items():
        provider.holds(each, entry(nft, amount))
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
    more = ("--scheduler", workers.address, "--wallets-file", tmp_path / "wallets.txt")
    return ("--base-url", provider.url, *more)


def test_of_two_drivers_on_s3_one_begins_and_the_lake_is_as_any_other(
    on_s3: Store,
    provider: Provider,
    where: tuple[object, ...],
    command: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    url = "s3://holdings/lake"
    more = ("--buckets", 2, "--takeover-after", "12s")
    ended = race(provider, SLOW, url, *where, *more, folder=tmp_path)
    assert json.loads(ended[0][0])["balances"]["added"] == len(HELD)
    again = command("lake", "sync", url, *where, "--json")
    assert again.json["wallets"]["unchanged"] == len(WALLETS)
    assert files(url, 1) == files(url, 2)
    assert held(url) == HELD
    check_lake(url)
    assert sorted(frames.holdings(url)["amount_text"].compute()) == sorted(HELD.values())
    status = command("lake", "status", url, "--json")
    assert status.json["tables"]["balance_changes"]["rows"] == len(HELD)
    export = command("lake", "export", url, "copy.db")
    assert (export.code, mirrored(Path("copy.db"))) == (0, HELD)
    asked = on_s3.requests()
    puts = [(path, match) for method, path, match, _ in asked if method == "PUT"]
    # Each commit is one that the store lets nobody else make.
    commits = [x for path, x in puts if "/_delta_log/" in path and path.endswith(".json")]
    assert {*commits} == {"*"}
    kept = {path for path, _ in puts if path.count("/") > 2 and "/steps/" not in path}
    stored = b"".join(on_s3.ask("GET", path) for path in kept if "_last_check" not in path)
    assert SECRET.encode() not in stored
    said = [*ended[0], *ended[75], again.said, status.said, export.said]
    assert SECRET not in "".join(said)


def test_commits_that_the_store_made_and_did_not_confirm_are_not_another_drivers(
    on_s3: Store, where: tuple[object, ...], command: Callable[..., Outcome]
) -> None:
    url = "s3://unsure/lake"
    for new in (("--buckets", 2), (), ()):
        outcome = command("lake", "sync", url, *where, *new)
        assert outcome.code == 0, outcome.err
    assert held(url) == HELD
    check_lake(url)


def test_an_unchanged_run_and_what_reads_the_manifest_need_few_requests(
    on_s3: Store, where: tuple[object, ...], command: Callable[..., Outcome]
) -> None:
    url, buckets = "s3://holdings/counted", 4

    def asked(*words: object) -> list[str]:
        before = len(on_s3.requests())
        outcome = command("lake", words[0], url, *words[1:])
        assert outcome.code == 0, outcome.err
        return [f"{method} {path}" for method, path, *_ in on_s3.requests()[before:]]

    where = (*where, "--takeover-after", "1h")  # no heartbeats
    asked("sync", *where, "--buckets", buckets)
    counts = []
    for _ in range(5):
        sync = asked("sync", *where)
        of_buckets = [x for x in sync if "/counted/buckets/" in x or "/steps/run-" in x]
        assert len(of_buckets) <= 4 * buckets, of_buckets
        counts.append(len(sync) - len(of_buckets))
    # In one of them, Delta writes a checkpoint of the ledger.
    assert [count for count in counts if count > 50] == [max(counts)] < [100], counts
    for name in ("status", "runs", "removals"):
        assert len(requests := asked(name)) <= 10, requests


def test_of_drivers_that_begin_at_once_the_store_refuses_all_but_one(on_s3: Store) -> None:
    lake, drivers, late = Lake("s3://holdings/fought"), 4, threading.Event()
    create_lake(lake)
    late.set()  # who sees another one's run does not wait for its heartbeats
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
            if any("/fought/runs/" in path and x == "412" for _, path, _, x in on_s3.requests()):
                return
    pytest.fail("none was refused by the store: it proves nothing")


# What cannot work ---------------------------------------------------------------------------------

#: What S3 answers, as its documentation has it, with parts of the request in it.
BODY = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>{}</Message>'
    f"<StringToSign>x-amz-security-token:{SECRET}</StringToSign></Error>"
)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "NoSuchBucket", "the bucket does not exist"),
        (403, "InvalidAccessKeyId", "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (403, "SignatureDoesNotMatch", "refuses the credentials (SignatureDoesNotMatch)"),
        (403, "AccessDenied", "must list, read, write and delete there"),
        (400, "AuthorizationHeaderMalformed", "Set AWS_REGION"),
        (501, "NotImplemented", "conditional puts"),
        (400, "WhoKnows", "(WhoKnows)"),
    ],
)
def test_what_the_store_answers_is_said_in_one_line_without_its_body(
    status: int,
    code: str,
    said: str,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", provider.url)
    provider.always(reply(BODY.format(code, "no").encode(), status))
    # Not in this process: its threads stop while Delta lists files.
    asking = driver("s3://holdings/lake", folder=tmp_path, command=("lake", "runs"))
    out, err = asking.communicate(timeout=PATIENCE)
    refused(Outcome(asking.returncode, out, err), 1, said, "s3://holdings/lake")
    assert SECRET not in err
    assert "\x1b" not in err


def test_where_nothing_answers_and_without_credentials_it_is_said_in_seconds(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = ("lake", "status", "s3://holdings/lake")
    with socket.create_server(("127.0.0.1", 0)) as full:
        nobody = f"127.0.0.1:{full.getsockname()[1]}"
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
def test_what_is_no_address_of_a_lake_is_a_mistake_of_the_caller(
    address: str, said: str, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    for words in ((), ("--base-url", "http://127.0.0.1:9")):
        outcome = command("lake", "sync" if words else "runs", address, *words)
        refused(outcome, 2, said)
        assert SECRET not in outcome.said
    assert not list(tmp_path.iterdir())


def test_a_store_that_passes_over_conditions_in_silence_is_told_of_each_time(
    on_s3: Store, where: tuple[object, ...], provider: Provider, command: Callable[..., Outcome]
) -> None:
    for _ in range(2):
        refused(command("lake", "sync", "s3://forgetful/lake", *where), 1, "conditional puts")
    assert not provider.requests()


def test_a_worker_without_credentials_says_that_it_has_none() -> None:
    error = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP")
    assert reason_of(error, "s3://x/y").endswith("here and on every worker")
    error = OSError("GET http://169.254.169.254/computeMetadata/v1/x?audience=y")
    assert "GOOGLE_SERVICE_ACCOUNT" in reason_of(error, "gs://x/y")
    error = OSError("GET http://u:p@h/x?sig=1 in 2ms:\n\x1b[31m↳\x1b[0m no")
    assert reason_of(error, "s3://x") == "GET http://h/x in 2ms: no"
