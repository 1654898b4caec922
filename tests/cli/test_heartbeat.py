"""Reports of runs to a heartbeat monitor, and runs whose monitor fails."""

import threading

import pytest

from nftsync.store.database import sync_lock
from tests.kit.database import begun
from tests.kit.processes import ended, start
from tests.kit.provider import (
    Provider,
    endless,
    entry,
    head,
    path_of,
    reply,
    silence,
    token,
    wallet,
    wallets_file,
)
from tests.kit.serve_process import serving

CHECK = "/ping/canary-check-4711"


@pytest.fixture
def monitor(monkeypatch, lying):
    """A monitor of a check; a provider has one wallet with one token."""
    lying.holds(wallet(1), entry(token(1)))
    monkeypatch.setenv("NFTSYNC_BASE_URL", lying.url)
    with Provider() as running:
        running.always(reply(b"OK"))
        monkeypatch.setenv("NFTSYNC_PING_URL", running.url + CHECK)
        yield running


def reports(monitor):
    """Return the method, the rest of the path, and the body of each request."""
    return [
        (seen.method, seen.path.removeprefix(CHECK), seen.body.decode())
        for seen in monitor.requests()
    ]


STARTED, SUCCEEDED = ("GET", "/start", ""), ("GET", "", "")


def test_a_sync_reports_its_start_and_its_end(monitor, lying, command):
    assert command("sync", wallet(1)).code == 0
    assert reports(monitor) == [STARTED, SUCCEEDED]
    assert command("sync", wallet(1), wallet(2)).code == 1
    started, (method, path, reason) = reports(monitor)[2:]
    assert (started, method, path) == (STARTED, "POST", "/fail")
    assert reason.startswith("Run 2: partial. 1 wallet read (1 unchanged), 1 failed; ")
    assert reason.endswith("the provider answered 404: no such object")
    assert monitor.requests()[-1].headers["content-type"] == "text/plain; charset=utf-8"


def test_a_sync_that_cannot_begin_reports_the_error(monitor, command):
    command("sync", "--wallets-file", "missing.csv").tells("missing.csv")
    ((method, path, reason),) = reports(monitor)
    assert (method, path, "missing.csv" in reason) == ("POST", "/fail", True)


def test_a_killed_sync_has_reported_only_its_start(monitor, lying, tmp_path):
    lying.on(path_of(1), silence())
    variables = {"NFTSYNC_BASE_URL": lying.url, "NFTSYNC_PING_URL": monitor.url + CHECK}
    sync = start("sync", wallet(1), folder=tmp_path, variables=variables)
    monitor.wait_for(1)
    lying.wait_for(1)
    sync.kill()
    assert ended(sync).code == -9
    assert reports(monitor) == [STARTED]


def test_a_sync_that_another_one_prevents_reports_nothing(monitor, tmp_path, command):
    database = begun(tmp_path / "nftsync.db")
    with sync_lock(database):
        assert command("sync", wallet(1), "-d", database).code == 75
    assert reports(monitor) == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(silence(), "no complete response within", id="never answers"),
        pytest.param(
            endless(b"x", head("content-length: 60000"), pause=0.1),
            "no complete response within",
            id="answers a byte at a time",
        ),
        pytest.param(
            lambda peer: reply(peer.seen.path.encode(), 404)(peer), "it answered 404", id="unknown"
        ),
        pytest.param(reply(status=302, location="/elsewhere"), "it answered 302", id="redirects"),
        pytest.param(
            lambda peer: peer.sock.sendall(peer.seen.path.encode() + b"\r\n\r\n"),
            "the connection broke",
            id="speaks no HTTP",
        ),
    ],
)
def test_a_monitor_that_fails_is_one_warning_and_no_failure(
    monitor, command, caplog, answer, problem
):
    monitor.always(answer)
    command("sync", wallet(1)).says()
    (warning,) = caplog.messages
    assert warning.startswith("cannot report to the heartbeat monitor (ping_url): ")
    assert problem in warning
    assert "4711" not in warning
    assert reports(monitor) == [STARTED, SUCCEEDED]
    assert [each for each in threading.enumerate() if "heartbeat" in each.name] == []


@pytest.mark.parametrize(
    ("query", "start_query", "failure"),
    [
        pytest.param("status=up&msg=OK", None, "status=down&msg=Run+2%3A+", id="Uptime Kuma"),
        pytest.param("state=complete", "state=run", "state=fail&message=Run+2%3A+", id="Cronitor"),
    ],
)
def test_a_monitor_with_a_parameter_for_the_state_gets_it_there(
    monitor, monkeypatch, command, query, start_query, failure
):
    monkeypatch.setenv("NFTSYNC_PING_URL", f"{monitor.url}{CHECK}?{query}")
    command("sync", wallet(1))
    command("sync", wallet(2))
    seen = monitor.requests()
    assert {(each.method, each.path) for each in seen} == {("GET", CHECK)}
    *others, last = (each.query for each in seen)
    begun = [start_query] if start_query else []
    assert others == [*begun, query, *begun]
    assert last.startswith(failure)


def test_another_query_stays_behind_the_path(monitor, monkeypatch, command):
    monkeypatch.setenv("NFTSYNC_PING_URL", f"{monitor.url}{CHECK}/?create=1")
    command("sync", wallet(1))
    paths = [(seen.path.removeprefix(CHECK), seen.query) for seen in monitor.requests()]
    assert paths == [("/start", "create=1"), ("/", "create=1")]


def test_verify_reports_differences_as_a_failure_and_its_repair_only_once(monitor, lying, command):
    command("sync", wallet(1))
    lying.holds(wallet(1), entry(token(2)))
    assert command("verify").code == 1
    *_, started, (_, path, reason) = reports(monitor)
    assert (started, path, reason[:22]) == (STARTED, "/fail", "1 of 1 wallet compared")
    assert command("verify", "--repair").code == 0
    assert reports(monitor)[4:] == [STARTED, SUCCEEDED]


def test_a_lake_sync_reports_its_start_and_its_end(monitor, command):
    given = ("--workers", 1, "--buckets", 1, "--wallets-file", wallets_file([1, 2]))
    assert command("lake", "sync", "lake", *given).code == 1
    started, (_, path, reason) = reports(monitor)
    assert (started, path, reason[:15]) == (STARTED, "/fail", "Run 1: partial.")


def test_serve_reports_each_of_its_syncs(monitor, lying, tmp_path):
    variables = {
        "NFTSYNC_PING_URL": monitor.url + CHECK,
        "NFTSYNC_WALLETS_FILE": str(tmp_path / wallets_file([1])),
    }
    with serving(tmp_path, lying.url, "--sync-every", "1s", variables=variables) as serve:
        monitor.wait_for(4)
        assert serve.stop() == 0
    assert reports(monitor)[:4] == [STARTED, SUCCEEDED] * 2


def test_an_unusable_url_is_a_settings_error_that_does_not_show_it(monkeypatch, command):
    for url in ("hc-ping.com/canary", "https://me:canary@host/", "https://host/ünï-canary"):
        monkeypatch.setenv("NFTSYNC_PING_URL", url)
        told = command("sync").tells("ping_url (NFTSYNC_PING_URL) must be an http or https URL")
        assert "canary" not in told.said
