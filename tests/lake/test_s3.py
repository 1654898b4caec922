"""A lake on S3: as any other, and of writers at once one is refused by the store itself."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from nftsync import lake as frames
from nftsync.lake.reasons import reason_of
from nftsync.lake.rows import schema_of
from nftsync.lake.setup import create_tables
from nftsync.lake.storage import ONE_VERSION, Lake
from tests.kit.lake_cluster import Cluster, cluster_of, environment
from tests.kit.provider import Provider, entry, reply, token, wallet
from tests.kit.worlds import PATIENCE, Outcome
from tests.lake.conftest import race, refused

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
WALLETS = [wallet(number) for number in range(12)]
SLOW = f"/v1/wallets/{WALLETS[5]}/nft-balances"
HELD = {
    (each, token(number)): f"{number}00000000000000000.5" for number, each in enumerate(WALLETS)
}


class Store(NamedTuple):
    """An S3 with a bucket, and what it was asked."""

    port: int
    log: Path

    def requests(self) -> list[tuple[str, str, str, str]]:
        """Of each its method, path, `If-None-Match` and status."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [(method, path, match, status) for method, path, match, status in lines]

    def ask(self, method: str, path: str) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            somebody = "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request"
            connection.request(method, path, headers={"Authorization": somebody})
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("s3")
    server = [sys.executable, Path(__file__).with_name("s3_server.py"), folder / "log"]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(
            server, env=environment(), stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = Store(int(process.stdout.readline()), folder / "log")
            found.ask("PUT", "/holdings")
            found.ask("PUT", "/unsure")
            yield found
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of this machine, and credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")


@pytest.fixture
def on_s3(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
    return store


@pytest.fixture
def provider(provider: Provider) -> Provider:
    for (each, held), amount in HELD.items():
        provider.holds(each, entry(held, amount))
    return provider


@pytest.fixture
def run(command: Callable[..., Outcome], cluster: Cluster) -> Callable[..., Outcome]:
    """A command on a lake; a sync on the cluster, as it would start one of its own first."""

    def run(name: str, url: str, base_url: str = "http://127.0.0.1:9") -> Outcome:
        where = ("--base-url", base_url, "--scheduler", cluster.address)
        return command("lake", name, url, *(where if name == "sync" else ()))

    return run


@pytest.fixture
def cluster_on_s3(on_s3: Store, tmp_path: Path) -> Iterator[Cluster]:
    """Workers that have the store's variables."""
    with cluster_of(tmp_path, 1) as running:
        yield running


def test_of_two_drivers_on_s3_one_begins_and_the_lake_is_as_any_other(
    on_s3: Store,
    provider: Provider,
    cluster_on_s3: Cluster,
    command: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    url = "s3://holdings/lake"
    (tmp_path / "wallets.txt").write_text("\n".join(WALLETS))
    where = (url, "--wallets-file", "wallets.txt", "--base-url", provider.url)
    where = (*where, "--scheduler", cluster_on_s3.address)
    more = ("--buckets", 2, "--takeover-after", "12s")
    ended = race(provider, SLOW, *where, *more, folder=tmp_path)
    assert json.loads(ended[0][0])["balances"]["added"] == len(HELD)
    again = command("lake", "sync", *where, "--json")
    assert again.code == 0, again.err
    assert again.json["wallets"]["unchanged"] == len(WALLETS)

    said = [*ended[0], *ended[75], again.said]
    runs = command("lake", "runs", url, "--json")
    assert [run["run_id"] for run in runs.json] == [1, 2]
    one, two = (run["versions"] for run in runs.json)
    for name in ("balances", "tokens", "balance_changes", "token_changes"):
        assert one[name] == two[name]
    held = frames.holdings(url).compute()
    found = zip(held["wallet_id"], held["token_id"], held["amount_text"], strict=True)
    assert sorted(found) == sorted((*key, amount) for key, amount in HELD.items())
    status = command("lake", "status", url, "--json")
    assert {each["name"]: each["rows"] for each in status.json["tables"]}["balance_changes"] == 12
    export = command("lake", "export", url, "copy.db")
    assert (status.code, export.code) == (0, 0), status.err + export.err
    with closing(sqlite3.connect("copy.db")) as connection:
        rows = connection.execute("SELECT wallet_id, token_id, amount FROM balances").fetchall()
    assert {(row[0], row[1]): row[2] for row in rows} == HELD

    # Each commit is one that the store lets nobody else make.
    commits = [
        (match, status)
        for method, path, match, status in on_s3.requests()
        if method == "PUT" and "/_delta_log/" in path and path.endswith(".json")
    ]
    assert {match for match, _ in commits} == {"*"}
    said += [runs.said, status.said, export.said]
    kept = [
        path
        for method, path, *_ in on_s3.requests()
        if method == "PUT" and path.count("/") > 2 and "/steps/" not in path
    ]
    stored = b"".join(on_s3.ask("GET", path) for path in {*kept} if "_last_check" not in path)
    assert SECRET not in "".join(said)
    assert SECRET.encode() not in stored


def test_commits_that_the_store_made_and_did_not_confirm_are_not_another_drivers(
    on_s3: Store, provider: Provider, cluster_on_s3: Cluster, command: Callable[..., Outcome]
) -> None:
    Path("wallets.txt").write_text("\n".join(WALLETS))
    where = ("--base-url", provider.url, "--scheduler", cluster_on_s3.address)
    url, new = "s3://unsure/lake", ("--wallets-file", "wallets.txt", "--buckets", 2)
    for more in (new, (), ()):
        outcome = command("lake", "sync", url, *where, *more, "--json")
        assert outcome.code == 0, outcome.err
    held = frames.holdings(url).compute()
    assert len(held) == len(HELD)
    assert len(frames.changes(url).compute()) == len(HELD)


def test_of_writers_of_the_same_version_the_store_refuses_all_but_one(on_s3: Store) -> None:
    lake = Lake("s3://holdings/fought")
    create_tables(lake)
    writers = 4
    together = threading.Barrier(writers)

    def write(run_id: int, version: int) -> bool:
        row = {"bucket": 1, "wallet_id": str(run_id), "token_id": str(version)}
        rows = pa.Table.from_pylist([row], schema_of("removals"))
        own = Lake(lake.url)
        file = own.write_file("removals", 1, rows.to_batches())
        table = own.open("removals", version)
        together.wait(PATIENCE)
        try:
            table.create_write_transaction(
                [file.action()],
                "overwrite",
                table.schema(),
                ["bucket"],
                [("bucket", "in", ["1"])],
                commit_properties=ONE_VERSION,
            )
        except CommitFailedError:
            return False
        return True

    def refused() -> int:
        return sum(
            (match, status) == ("*", "412") and "/fought/removals/" in path
            for _, path, match, status in on_s3.requests()
        )

    with ThreadPoolExecutor(writers) as threads:
        for version in range(40):
            won = list(threads.map(write, range(1, 1 + writers), [version] * writers))
            assert Counter(won) == {True: 1, False: writers - 1}
            assert lake.open("removals").version() == version + 1
            newest = {"removals": version + 1}
            rows = list(lake.rows("removals", newest, "true", ("wallet_id",)))
            assert rows == [(str(1 + won.index(True)),)]
            if refused():
                break
    assert refused(), "none was refused by the store: it proves nothing"


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
    run: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", provider.url)
    provider.always(reply(BODY.format(code, "no").encode(), status))
    for name in ("runs", "sync"):
        outcome = run(name, "s3://holdings/lake", provider.url)
        refused(outcome, 1, said, "s3://holdings/lake")
        assert SECRET not in outcome.said
        assert "\x1b" not in outcome.said


@pytest.mark.parametrize("name", ["sync", "status"])
def test_where_nothing_answers_and_without_credentials_it_is_said_in_seconds(
    name: str, run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as full:
        nobody = f"127.0.0.1:{full.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{nobody}")
    refused(run(name, "s3://holdings/lake"), 1, f"nothing answers at {nobody}")
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    refused(run(name, "s3://holdings/lake"), 1, "AWS_ALLOW_HTTP=true")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{nobody}")
    said = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    refused(run(name, "s3://holdings/lake"), 1, said)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("foo://x/lake", "foo://x/lake is not a lake address"),
        ("s3://", "names no bucket"),
        ("s3:///lake", "names no bucket"),
        ("s3://[/lake", "address is invalid"),
        (f"s3://key:{SECRET}@holdings/lake", "in the environment"),
        (f"az://holdings/lake?sig={SECRET}", "in the environment"),
    ],
)
def test_what_is_no_address_of_a_lake_is_a_mistake_of_the_caller(
    address: str, said: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    for name in ("runs", "sync"):
        outcome = run(name, address)
        refused(outcome, 2, said)
        assert SECRET not in outcome.said
    assert not list(tmp_path.iterdir())


def test_a_store_that_passes_over_conditions_in_silence_is_told_of(
    on_s3: Store, provider: Provider, run: Callable[..., Outcome]
) -> None:
    """Each time: nothing is read into a lake that would lose what it commits."""
    on_s3.ask("PUT", "/forgetful")
    for _ in range(2):
        refused(run("sync", "s3://forgetful/lake", provider.url), 1, "conditional puts")
    assert not provider.requests()


def test_a_worker_without_credentials_says_that_it_has_none() -> None:
    error = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP")
    assert reason_of(error, "s3://x/y").endswith("here and on every worker")
    assert "GOOGLE_SERVICE_ACCOUNT" in reason_of(
        OSError("GET http://169.254.169.254/computeMetadata/v1/x?audience=y"), "gs://x/y"
    )
    assert reason_of(
        OSError("GET http://u:p@h/x?sig=1 in 2ms:\n\x1b[31m↳\x1b[0m no"), "s3://x"
    ) == ("GET http://h/x in 2ms: no")
