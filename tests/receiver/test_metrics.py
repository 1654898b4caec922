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

import pytest

from nftsync.serve.log import log_lines
from tests.receiver.world import Running, body


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level = root.level
    handler = log_lines(logging.DEBUG, stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_flood_of_refused_webhooks_is_a_few_lines_and_a_count(
    receiver: Running, log: io.StringIO
) -> None:
    for _ in range(100):
        receiver.post(b"x", "wrong")
    time.sleep(1)
    receiver.post(b"x", "wrong")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    lines = [line for line in lines if line["logger"] == "nftsync.receiver"]
    assert sum(line.get("suppressed", 0) for line in lines) + len(lines) == 101
    by_second = Counter(line["time"][:19] for line in lines)
    assert max(by_second.values()) == 10


def test_a_locked_database_is_logged_once_and_its_end_once(
    receiver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(receiver.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert [receiver.post(body()) for _ in range(2)] == [503, 503]
    receiver.post(body())
    messages = [x.getMessage() for x in caplog.records if x.name == "nftsync.receiver"]
    assert messages == ["cannot store webhooks", "webhooks are stored again"]
