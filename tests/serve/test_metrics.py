"""Metrics and health of `serve`, and a log without secrets."""

from pathlib import Path

import httpx

from nftsync.sandbox.server import SandboxServer
from tests.kit.inbox import Outbox
from tests.kit.serve_process import (
    SECRET,
    free_port,
    scraped,
    serving,
    signed,
    states,
    webhook,
)
from tests.kit.waiting import wait_until

NOBODY = "00000000-0000-4000-8000-0000000000ff"
PREVIOUS = "the-secret-before-it"


def test_metrics_count_requests_and_no_secret_is_logged(
    synced: Path, provider: SandboxServer
) -> None:
    port = free_port()
    outbox = Outbox(synced)
    outbox.fill(5)
    for number, state in enumerate(("done", "dead", "failed")):
        outbox.settle(number, state)
    outbox.run("INSERT INTO stopped_destinations VALUES ('ops', '2026', 'HTTP 410')")
    wallets = provider.world.wallets()
    good = [webhook("Wallet", wallet, changes={"note": "private"}) for wallet in wallets]
    unrouted, missing = webhook("Payment", NOBODY), webhook("Wallet", NOBODY)
    wrong = webhook("Wallet", wallets[0])
    token = "token-that-never-shows"
    with serving(
        synced.parent,
        provider.url,
        *("--metrics-port", port),
        variables={"NFTSYNC_WEBHOOK_SECRET_PREVIOUS": PREVIOUS, "NFTSYNC_API_TOKEN": token},
    ) as server:
        assert server.get("/healthz") == server.get("/readyz") == 200
        for body in [*good, unrouted, missing, good[0]]:
            assert server.post(body) == 200
        assert server.post(webhook("Wallet", wallets[0]), secret=PREVIOUS) == 200
        assert server.post(b"private nonsense") == 200
        assert server.post(wrong, secret="another") == 401
        bare = httpx.post(server.url, content=wrong, trust_env=False, verify=False)
        assert bare.status_code == 401
        assert server.post(b"x" * (256 * 1024 + 1)) == 413
        assert server.get("/webhooks") == 405
        assert server.get("/metrics") == 404
        wait_until(lambda: not {"pending", "running"} & set(states(synced).values()))
        wait_until(lambda: scraped(port)['nftsync_replay_webhooks_total{state="done"}'] == 5)
        figures = scraped(port)
        assert server.stop() == 0
    expected = {
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
    assert {name: figures[name] for name in expected} == expected
    assert figures["nftsync_replay_reads_total"] >= 5
    assert figures['nftsync_outbox_oldest_seconds{destination="ops"}'] > 1e8
    assert figures["nftsync_commit_seconds_count"] >= 1
    log = "".join(server.raw)
    assert all(line.startswith("{") for line in server.raw)
    hidden = [SECRET, PREVIOUS, token, "private", "another", good[0].decode()]
    hidden += [*signed(wrong)][:1]  # the header's name
    pairs = [(body, SECRET) for body in [*good, b"private nonsense"]]
    pairs += [(wrong, "another"), (good[0], PREVIOUS)]
    hidden += [next(iter(signed(*pair).values())) for pair in pairs]
    assert not [text for text in hidden if text in log]
