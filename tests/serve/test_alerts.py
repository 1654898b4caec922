"""docs/operate/alerts.yml: metrics of a real `serve` raise its alerts, and health raises none."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Outbox
from tests.kit.provider import wallet
from tests.kit.serve_process import (
    SECRET,
    Serve,
    configure,
    free_port,
    query,
    scraped,
    signed,
    states,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed

RULES = Path(__file__).parents[2] / "docs" / "operate" / "alerts.yml"
NOWHERE = "http://127.0.0.1:9"
_RAISED = 'max by (alertname) (max_over_time(ALERTS{alertstate="firing"}[3h]))'


def assert_raised(folder: Path, scrapes: Sequence[dict[str, float]], *alerts: str) -> None:
    """Have Prometheus see ten minutes of each scrape and two hours of the last, with the rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool, which is a part of Prometheus")
    minutes = [*[10] * (len(scrapes) - 1), 120]
    series = []
    for name in [name for name in scrapes[-1] if not name.startswith("nftsync_commit")]:
        held = zip(scrapes, minutes, strict=True)
        values = " ".join(f"{each.get(name, 0.0):.6f}+0x{count - 1}" for each, count in held)
        series.append({"series": name, "values": values})
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)]
    expected = {"expr": _RAISED, "eval_time": f"{sum(minutes) - 1}m", "exp_samples": samples}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (file := folder / "alerts-test.yml").write_text(json.dumps(tests))
    ran = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def move_back(database: Path, seconds: float, *columns: str) -> None:
    """Move the times of columns (`table.column`) back."""
    for table, column in (name.split(".") for name in columns):
        earlier = f"strftime('%Y-%m-%dT%H:%M:%f000Z', {column}, '-{seconds} seconds')"
        query(database, f"UPDATE {table} SET {column} = {earlier}")


def transfer(provider: SandboxServer, giver: int, taker: int) -> tuple[str, str, str, int]:
    """Return the arguments of a transfer between two wallets."""
    wallets = provider.world.wallets()
    token = next(token for holder, token in listed(provider.world) if holder == wallets[giver])
    return wallets[giver], wallets[taker], token, 1


def send_webhooks(server: Serve, provider: SandboxServer, database: Path) -> None:
    """Transfer an NFT, and wait until its webhooks are done."""
    configure(provider, server.url)
    wait_until_done(database, *provider.sandbox.transfer(*transfer(provider, 1, 0)))


def test_health_raises_no_alert_also_after_a_restart(serve, synced, provider, tmp_path):
    flags = ("--metrics-port", port := free_port(), "--sync-every", "6h")
    with serve(provider.url, *flags) as server:
        before = scraped(port)
        send_webhooks(server, provider, synced)
        after = scraped(port)
    with serve(provider.url, *flags):
        again = scraped(port)
    expected = {
        'nftsync_wallets{status="ok"}': 4,
        'nftsync_changes_total{source="webhook"}': 2,
        "nftsync_changes_untold_total": 0,
        'nftsync_last_sync_status{status="ok"}': 1,
        "nftsync_sync_overdue_seconds": 0,
    }
    for figures in (after, again):
        assert {name: figures[name] for name in expected} == expected
        assert figures['nftsync_changes_total{source="first read"}'] > 4
    (row,) = query(synced, "SELECT unixepoch(finished_at), seconds FROM sync_runs WHERE reads_all")
    ends = [int(again[f"nftsync_last_{x}sync_timestamp_seconds"]) for x in ("", "good_")]
    assert (*ends, again["nftsync_last_sync_seconds"]) == (row[0], *row)
    assert "nftsync_last_webhook_age_seconds" not in before
    assert again["nftsync_last_webhook_age_seconds"] >= 0
    assert_raised(tmp_path, [before, after, again])


def test_a_failing_sync_raises_alerts_after_an_hour_and_a_week(serve, synced, tmp_path):
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1h", "--retries", 1)
    scrapes = []
    for moved, *raised in ((9_000, "SyncFails"), (691_200, "SyncFails", "SyncFailsForAWeek")):
        move_back(synced, moved, "sync_runs.started_at", "sync_runs.finished_at")
        with serve(NOWHERE, *flags) as server:
            wait_until(lambda server=server: server.logged("synced"))
            scrapes.append(scraped(port))
        assert scrapes[-1]['nftsync_last_sync_status{status="failed"}'] == 1
        assert_raised(tmp_path, scrapes, *raised, "WalletsFail")


def test_a_sync_that_never_succeeded_raises_an_alert(serve, database, tmp_path):
    """Not even entered into the ledger, as the list of wallets is missing."""
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1h", "--wallets-file", "no")
    with serve(NOWHERE, *flags) as server:
        wait_until(lambda: server.logged("sync failed"))
        assert "nftsync_last_good_sync_timestamp_seconds" not in scraped(port)
        made = "strftime('%Y-%m-%dT%H:%M:%f+00:00', applied_at, '-2 hours')"
        query(database, f"UPDATE _sqlite_migrations SET applied_at = {made}")
        assert_raised(tmp_path, [scraped(port)], "SyncFails")


def test_missing_webhooks_raise_alerts(serve, synced, provider, tmp_path):
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1s")
    with serve(provider.url, *flags) as server:
        send_webhooks(server, provider, synced)
        before = scraped(port)
        provider.sandbox.configure(b'{"enabled": false}')
        provider.world.transfer(*transfer(provider, 2, 3))  # between wallets that no webhook named
        # A sync may have been quicker than the webhook.
        found = before["nftsync_changes_untold_total"] + 2
        wait_until(lambda: scraped(port)["nftsync_changes_untold_total"] == found)
        after = scraped(port)
        move_back(synced, 90_000, "webhooks.received_at")
        silent = scraped(port)
    assert_raised(tmp_path, [before, after], "WebhooksMissing")
    assert_raised(tmp_path, [silent], "WebhooksStopped")


def test_a_growing_backlog_raises_alerts(serve, synced, tmp_path):
    with serve(NOWHERE, "--metrics-port", port := free_port(), "--retries", 1) as server:
        few = scraped(port)
        assert {server.post(webhook("Wallet", wallet(99))) for _ in range(101)} == {200}
        many = scraped(port)
        move_back(synced, 400, "webhooks.received_at")
        old = scraped(port)
    ages = [old[f'nftsync_inbox_oldest_seconds{{state="{s}"}}'] for s in ("pending", "failed")]
    assert max(ages) >= 400
    assert_raised(tmp_path, [few, many], "BacklogGrows")
    assert_raised(tmp_path, [old], "WebhooksWait")


def test_states_that_need_a_person_raise_alerts(serve, synced, provider, tmp_path):
    with serve(provider.url, "--metrics-port", port := free_port()) as server:
        well = scraped(port)
        assert {server.post(webhook("Wallet", wallet(99)), "another") for _ in range(6)} == {401}
        assert server.post(webhook("Payment", wallet(99))) == 200
        wait_until(lambda: scraped(port)['nftsync_inbox_webhooks{state="unrouted"}'] == 1)
        query(synced, "INSERT INTO new_fields VALUES ('metadata.a', 'text', NULL, 't', '2026')")
        ill = scraped(port)
        move_back(synced, 90_000, "wallets.synced_at")
        query(
            synced,
            "INSERT INTO removal_rows (wallet_no, token_no, old_amount, emptied, held, observed_at,"
            " read_at) VALUES (1, 1, '1', 0, 1, '2026', '2026')",
        )
        stale = scraped(port)
    assert ill["nftsync_new_fields"] == well["nftsync_new_fields"] + 1
    assert_raised(tmp_path, [well, ill], "WrongSignatures", "WebhooksNeedAPerson", "NewField")
    assert_raised(tmp_path, [stale], "RemovalsHeld", "WalletStale", "WebhooksNeedAPerson")
    assert_raised(tmp_path, [{}], "NftsyncGone")


PREVIOUS = "the-secret-before-it"
COUNTS = {
    "nftsync_webhooks_received_total": 12,
    "nftsync_webhooks_stored_total": 7,
    "nftsync_webhooks_duplicate_total": 1,
    "nftsync_webhooks_quarantined_total": 1,
    "nftsync_webhooks_not_stored_total": 0,
    'nftsync_webhooks_refused_total{reason="wrong"}': 1,
    'nftsync_webhooks_refused_total{reason="missing"}': 1,
    'nftsync_webhooks_refused_total{reason="too large"}': 1,
    'nftsync_webhooks_accepted_total{secret="current"}': 8,
    'nftsync_webhooks_accepted_total{secret="previous"}': 1,
    'nftsync_replay_webhooks_total{state="unrouted"}': 1,
    'nftsync_replay_webhooks_total{state="failed"}': 1,
    'nftsync_inbox_webhooks{state="unrouted"}': 1,
    'nftsync_inbox_webhooks{state="failed"}': 1,
    'nftsync_inbox_webhooks{state="quarantined"}': 1,
    'nftsync_inbox_webhooks{state="pending"}': 0,
    "nftsync_inbox_oldest_pending_seconds": 0,
    'nftsync_outbox_messages{destination="ops",state="pending"}': 2,
    'nftsync_outbox_messages{destination="ops",state="failed"}': 1,
    'nftsync_outbox_messages{destination="ops",state="dead"}': 1,
    'nftsync_outbox_last_sent_timestamp_seconds{destination="ops"}': 1_577_836_800,
    'nftsync_destination_stopped{destination="ops"}': 1,
}


def test_metrics_count_requests_and_no_content_or_signature_is_logged(serve, synced, provider):
    port = free_port()
    outbox = Outbox(synced)
    outbox.fill(5)
    for number, state in enumerate(("done", "dead", "failed")):
        outbox.settle(number, state)
    outbox.run("INSERT INTO stopped_destinations VALUES ('ops', '2026', 'HTTP 410')")
    wallets = provider.world.wallets()
    good = [webhook("Wallet", each, changes={"note": "private"}) for each in wallets]
    unrouted, missing, wrong = (webhook(x, wallet(1)) for x in ("Payment", "Wallet", "Wallet"))
    posted = [(body, SECRET, 200) for body in (*good, unrouted, missing, good[0])]
    posted += [(webhook("Wallet", wallets[0]), PREVIOUS, 200), (b"private nonsense", SECRET, 200)]
    posted += [(wrong, "another", 401), (b"x" * (256 * 1024 + 1), SECRET, 413)]
    variables = {"NFTSYNC_WEBHOOK_SECRET_PREVIOUS": PREVIOUS}
    with serve(provider.url, "--metrics-port", port, variables=variables) as server:
        assert server.get("/healthz") == server.get("/readyz") == 200
        for body, secret, status in posted:
            assert server.post(body, secret) == status
        bare = httpx.post(server.url, content=wrong, trust_env=False, verify=False)
        assert bare.status_code == 401
        assert [server.get("/webhooks"), server.get("/metrics")] == [405, 404]
        wait_until(lambda: not {"pending", "running"} & set(states(synced).values()))
        wait_until(lambda: scraped(port)['nftsync_replay_webhooks_total{state="done"}'] == 5)
        figures = scraped(port)
    assert {name: figures[name] for name in COUNTS} == COUNTS
    assert figures["nftsync_replay_reads_total"] >= 5
    assert figures['nftsync_outbox_oldest_seconds{destination="ops"}'] > 1e8
    assert figures["nftsync_commit_seconds_count"] >= 1
    assert all(line.startswith("{") for line in server.raw)
    hidden = ["private", "another", good[0].decode(), *signed(wrong)][:4]
    hidden += [next(iter(signed(body, secret).values())) for body, secret, _ in posted[:-1]]
    assert not [text for text in hidden if text in "".join(server.raw)]
