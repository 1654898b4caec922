"""Metrics and health of `serve`; of a webhook, nothing is logged."""

import httpx

from tests.kit.inbox import Outbox
from tests.kit.provider import wallet
from tests.kit.serve_process import SECRET, free_port, scraped, signed, states, webhook
from tests.kit.waiting import wait_until

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
