"""docs/operate/alerts.yml: metrics of a real `serve` raise its alerts, and health raises none."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from nftsync.sandbox.server import SandboxServer
from tests.kit.serve_process import (
    Serve,
    configure,
    free_port,
    query,
    scraped,
    serving,
    wait_until_done,
    webhook,
)
from tests.kit.waiting import wait_until
from tests.kit.worlds import listed

RULES = Path(__file__).parents[2] / "docs" / "operate" / "alerts.yml"
NOWHERE = "http://127.0.0.1:9"
NOBODY = "00000000-0000-4000-8000-0000000000ff"
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
    file = folder / "alerts-test.yml"
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(json.dumps(tests))
    ran = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def move_back(database: Path, seconds: float, *columns: tuple[str, str]) -> None:
    """Move times back, by table and column."""
    for table, column in columns:
        query(
            database,
            f"UPDATE {table} SET {column} ="
            f" strftime('%Y-%m-%dT%H:%M:%f000Z', {column}, '-{seconds} seconds')",
        )


def transfer_silently(provider: SandboxServer) -> None:
    """Transfer an NFT without webhooks, between wallets that no webhook named."""
    giver, taker = provider.world.wallets()[2:4]
    token = next(t for w, t in listed(provider.world) if w == giver)
    provider.world.transfer(giver, taker, token, 1)


def send_webhooks(server: Serve, provider: SandboxServer, database: Path) -> None:
    """Transfer an NFT, and wait until its webhooks are done."""
    configure(provider, server.url)
    giver, taker = provider.world.wallets()[:2]
    token = next(t for w, t in listed(provider.world) if w == taker)
    wait_until_done(database, *provider.sandbox.transfer(taker, giver, token, 1))


def test_health_raises_no_alert_also_after_a_restart(
    synced: Path, provider: SandboxServer, tmp_path: Path
) -> None:
    flags = ("--metrics-port", port := free_port(), "--sync-every", "6h")
    with serving(synced.parent, provider.url, *flags) as server:
        before = scraped(port)
        send_webhooks(server, provider, synced)
        after = scraped(port)
        assert server.stop() == 0
    with serving(synced.parent, provider.url, *flags) as server:
        again = scraped(port)
        assert server.stop() == 0
    for figures in (after, again):
        assert figures['nftsync_wallets{status="ok"}'] == 4
        assert figures['nftsync_changes_total{source="first read"}'] > 4
        assert figures['nftsync_changes_total{source="webhook"}'] == 2
        assert figures["nftsync_changes_untold_total"] == 0
        assert figures['nftsync_last_sync_status{status="ok"}'] == 1
        assert figures["nftsync_sync_overdue_seconds"] == 0
    (row,) = query(synced, "SELECT unixepoch(finished_at), seconds FROM sync_runs WHERE reads_all")
    good = "nftsync_last_good_sync_timestamp_seconds"
    assert int(again[good]) == int(again["nftsync_last_sync_timestamp_seconds"]) == row[0]
    assert again["nftsync_last_sync_seconds"] == row[1]
    assert "nftsync_last_webhook_age_seconds" not in before
    assert again["nftsync_last_webhook_age_seconds"] >= 0
    assert_raised(tmp_path, [before, after, again])


def test_a_failing_sync_raises_alerts_after_an_hour_and_a_week(
    synced: Path, tmp_path: Path
) -> None:
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1h", "--retries", 1)
    hour = []
    for moved, alerts in ((2.5 * 3600, 1), (8 * 86400, 2)):
        move_back(
            *(synced, moved, ("sync_runs", "started_at"), ("sync_runs", "finished_at")),
        )
        with serving(synced.parent, NOWHERE, *flags) as server:
            wait_until(lambda server=server: server.logged("synced"))
            hour.append(scraped(port))
            assert hour[-1]['nftsync_last_sync_status{status="failed"}'] == 1
            server.kill()
        raised = ["SyncFails", "SyncFailsForAWeek"][:alerts]
        assert_raised(tmp_path, hour, *raised, "WalletsFail")


def test_a_sync_that_never_succeeded_raises_an_alert(tmp_path: Path) -> None:
    """Not even entered into the ledger, as the list of wallets is missing."""
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1h", "--wallets-file", "no")
    with serving(tmp_path, NOWHERE, *flags) as server:
        wait_until(lambda: server.logged("sync failed"))
        assert "nftsync_last_good_sync_timestamp_seconds" not in scraped(port)
        made = "strftime('%Y-%m-%dT%H:%M:%f+00:00', applied_at, '-2 hours')"
        query(
            tmp_path / "nftsync.db",
            f"UPDATE _sqlite_migrations SET applied_at = {made}",
        )
        assert_raised(tmp_path, [scraped(port)], "SyncFails")


def test_missing_webhooks_raise_alerts(
    synced: Path, provider: SandboxServer, tmp_path: Path
) -> None:
    flags = ("--metrics-port", port := free_port(), "--sync-every", "1s")
    with serving(synced.parent, provider.url, *flags) as server:
        send_webhooks(server, provider, synced)
        before = scraped(port)
        provider.sandbox.configure(b'{"enabled": false}')
        transfer_silently(provider)
        # A sync may have been quicker than the webhook.
        found = before["nftsync_changes_untold_total"] + 2
        wait_until(lambda: scraped(port)["nftsync_changes_untold_total"] == found)
        after = scraped(port)
        move_back(synced, 90_000, ("webhooks", "received_at"))
        silent = scraped(port)
    assert_raised(tmp_path, [before, after], "WebhooksMissing")
    assert_raised(tmp_path, [silent], "WebhooksStopped")


def test_a_growing_backlog_raises_alerts(synced: Path, tmp_path: Path) -> None:
    port = free_port()
    with serving(synced.parent, NOWHERE, "--metrics-port", port, "--retries", 1) as server:
        few = scraped(port)
        for _ in range(101):
            assert server.post(webhook("Wallet", NOBODY)) == 200
        many = scraped(port)
        move_back(synced, 400, ("webhooks", "received_at"))
        old = scraped(port)
        ages = [old[f'nftsync_inbox_oldest_seconds{{state="{s}"}}'] for s in ("pending", "failed")]
        assert max(ages) >= 400
    assert_raised(tmp_path, [few, many], "BacklogGrows")
    assert_raised(tmp_path, [old], "WebhooksWait")


def test_states_that_need_a_person_raise_alerts(
    synced: Path, provider: SandboxServer, tmp_path: Path
) -> None:
    port = free_port()
    with serving(synced.parent, provider.url, "--metrics-port", port) as server:
        well = scraped(port)
        for _ in range(6):
            assert server.post(webhook("Wallet", NOBODY), "another") == 401
        assert server.post(webhook("Payment", NOBODY)) == 200
        wait_until(lambda: scraped(port)['nftsync_inbox_webhooks{state="unrouted"}'] == 1)
        ill = scraped(port)
        move_back(synced, 90_000, ("wallets", "synced_at"))
        query(
            synced,
            "INSERT INTO removal_rows (wallet_no, token_no, old_amount, emptied, held, observed_at,"
            " read_at) VALUES (1, 1, '1', 0, 1, '2026', '2026')",
        )
        stale = scraped(port)
    assert_raised(tmp_path, [well, ill], "WrongSignatures", "WebhooksNeedAPerson")
    assert_raised(tmp_path, [stale], "RemovalsHeld", "WalletStale", "WebhooksNeedAPerson")
    assert_raised(tmp_path, [{}], "NftsyncGone")
