"""What the receiver counts and logs, and what it keeps to itself."""

from __future__ import annotations

import io
import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from receiver_world import Running, body

from nftsync.receiver.telemetry import Backlog, Metrics, log_json_lines, serve_metrics
from nftsync.wsgi import HttpServer


def figures(port: int) -> dict[str, float]:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, verify=False).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines if "_created" not in name}


@pytest.fixture
def metrics_port() -> int:
    with HttpServer(lambda *_: []) as taken:
        return taken.port


def test_a_database_that_cannot_be_read_leaves_the_other_figures(
    tmp_path: Path, metrics_port: int
) -> None:
    metrics = Metrics()
    metrics.registry.register(Backlog(tmp_path / "gone.db"))
    metrics.received.inc()
    close = serve_metrics(metrics, metrics_port)
    try:
        found = figures(metrics_port)
    finally:
        close()
    assert found["nftsync_webhooks_received_total"] == 1
    assert not [name for name in found if "inbox" in name]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level = root.level
    handler = log_json_lines(logging.DEBUG, stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [
        line
        for line in map(json.loads, stream.getvalue().splitlines())
        if line["logger"] == "nftsync.receiver"
    ]


def test_a_flood_of_refused_webhooks_is_a_few_lines_and_a_count(
    receiver: Running, log: io.StringIO
) -> None:
    for _ in range(100):
        receiver.post(b"x", "wrong")
    time.sleep(1)
    receiver.post(b"x", "wrong")
    found = lines(log)
    assert sum(int(str(line.get("suppressed", 0))) for line in found) + len(found) == 101
    by_second = Counter(str(line["time"])[:19] for line in found)
    assert max(by_second.values()) == 10


def test_a_locked_database_is_logged_once_and_its_end_once(
    receiver: Running, log: io.StringIO
) -> None:
    with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert [receiver.post(body()) for _ in range(2)] == [503, 503]
    receiver.post(body())
    messages = [line["message"] for line in lines(log) if line["level"] == "WARNING"]
    assert messages == ["cannot store webhooks", "webhooks are stored again"]
