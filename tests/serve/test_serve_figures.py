"""What `serve` tells of itself: metrics, health, and a log without secrets."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path

import httpx
from serve_process import (
    SECRET,
    id_of,
    query,
    run,
    serving,
    states,
    wait_until,
    wait_until_done,
    webhook,
)

from nftsync import frames
from nftsync.provider.webhooks import HEADER, sign
from nftsync.sandbox.server import SandboxServer

NOBODY = "00000000-0000-4000-8000-0000000000ff"
PREVIOUS = "the-secret-before-it"


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def metrics(port: int) -> dict[str, float]:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_counters_move_with_the_traffic_and_no_secret_is_logged(
    synced: Path, provider: SandboxServer
) -> None:
    port = free_port()
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
        bare = httpx.post(server.url, content=wrong, trust_env=False)
        assert bare.status_code == 401
        assert server.post(b"x" * (256 * 1024 + 1)) == 413
        assert server.get("/webhooks") == 405
        assert server.get("/metrics") == 404
        wait_until(lambda: not {"pending", "running"} & set(states(synced).values()))
        wait_until(lambda: metrics(port)['nftsync_replay_webhooks_total{state="done"}'] == 5)
        figures = metrics(port)
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
    }
    assert {name: figures[name] for name in expected} == expected
    assert figures["nftsync_replay_reads_total"] >= 5
    assert figures["nftsync_commit_seconds_count"] >= 1
    log = "".join(server.raw)
    assert all(line.startswith("{") for line in server.raw)
    hidden = [SECRET, PREVIOUS, token, "private", "another", HEADER, good[0].decode()]
    hidden += [sign(SECRET, body) for body in [*good, b"private nonsense"]]
    hidden += [sign("another", wrong), sign(PREVIOUS, good[0])]
    assert not [text for text in hidden if text in log]


def test_status_and_frames_tell_what_webhooks_did(synced: Path, provider: SandboxServer) -> None:
    database = synced
    first, second = provider.world.wallets()[:2]
    token = frames.holdings(database, wallet=first)["token_id"].iloc[0]
    provider.world.transfer(first, second, token, 1)
    provider.world.edit_metadata(token, {"name": "A new name"})
    moved = [webhook("Wallet", first), webhook("Wallet", second)]
    renamed = webhook("Token", token)
    unrouted, dead_end = webhook("Payment", NOBODY), webhook("Token", NOBODY)
    bodies = [*moved, renamed, unrouted, dead_end]
    with serving(database.parent, provider.url) as server:
        for body in bodies:
            assert server.post(body) == 200
        assert server.post(b"{}") == 200
        wait_until_done(database, *map(id_of, [*moved, renamed]))
        wait_until(lambda: not {"pending", "running"} & set(states(database).values()))
        assert server.stop() == 0
    done = run("status", "--json", "-d", database, cwd=database.parent)
    status = json.loads(done.stdout)
    assert status["inbox"] == {"done": 3, "failed": 1, "quarantined": 1, "unrouted": 1}
    assert status["oldest_pending_age_s"] is None
    assert status["last_sync"]["kind"] == "sync"
    assert status["last_replay"]["kind"] == "replay"
    assert status["last_replay"]["status"] == "partial"
    assert status["last_replay"]["finished_at"] is not None
    shown = frames.webhooks(database).set_index("webhook_id")
    assert [shown.loc[id_of(body), "state"] for body in bodies] == [
        *("done", "done", "done", "unrouted", "failed")
    ]
    assert "Payment" in shown.loc[id_of(unrouted), "last_error"]
    assert shown.loc[id_of(dead_end), "attempts"] == 1
    assert "404" in shown.loc[id_of(dead_end), "last_error"]
    assert set(shown.loc[list(map(id_of, moved)), "run_id"]) == {status["last_replay"]["run_id"]}
    changes = frames.changes(database)
    changes = changes[~changes["baseline"]]
    causes = dict(zip(changes["wallet_id"], changes["webhook_id"], strict=True))
    assert causes == {first: id_of(moved[0]), second: id_of(moved[1])}
    renames = frames.token_changes(database)
    assert renames["token_id"].tolist() == [token]
    assert set(renames["webhook_id"]) <= {id_of(body) for body in [*moved, renamed]}
    wallets = query(database, "SELECT wallet_id FROM wallets WHERE wallet_id = ?", NOBODY)
    assert wallets == []
