"""How webhooks leave: attempts, retries, time limits, scripted faults."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.webhooks import RETRY_SECONDS
from tests.kit.waiting import wait_until
from tests.kit.webhook_receiver import SECRET, UNKNOWN, Received, Receiver, enable, finished


@contextmanager
def sandbox(receiver: Receiver, time_scale: float = 1e-5) -> Iterator[SandboxServer]:
    """A sandbox whose nft webhooks go to a receiver."""
    with SandboxServer(generate(wallets=2, nfts=2), time_scale=time_scale) as server:
        enable(server, receiver)
        yield server


def emit(server: SandboxServer, kind: str = "X") -> str:
    return server.sandbox.emit("nft", kind, UNKNOWN, "create")[0]


def kinds(received: list[Received]) -> list[str]:
    return [json.loads(each.body)["resourceType"] for each in received]


def statuses(delivery: dict[str, Any]) -> list[int | None]:
    return [attempt["status"] for attempt in delivery["attempts"]]


def waits(delivery: dict[str, Any]) -> list[float]:
    """Seconds from the end of each attempt that was followed by one to when that was planned."""
    return [
        datetime.fromisoformat(each["nextAttemptAt"]).timestamp()
        - datetime.fromisoformat(each["at"]).timestamp()
        - each["ms"] / 1000
        for each in delivery["attempts"]
        if each["nextAttemptAt"] is not None
    ]


def test_the_same_bytes_go_out_at_growing_intervals_and_then_no_more(receiver):
    receiver.answer = lambda _received, _number: 500
    scale = 2e-5
    with sandbox(receiver, time_scale=scale) as server:
        ids = [emit(server), emit(server)]
        ended = finished(server)
    assert [each["id"] for each in ended] == ids
    spreads = set()
    for delivery in ended:
        assert (delivery["state"], delivery["nextAttemptAt"]) == ("failed", None)
        assert statuses(delivery) == [500] * 8
        for wait, figure in zip(waits(delivery), RETRY_SECONDS, strict=True):
            assert wait == pytest.approx(figure * scale, rel=0.2, abs=1e-5)
            spreads.add(round(wait / figure / scale, 3))
        bodies = [each.body for each in receiver.got if delivery["id"].encode() in each.body]
        assert (len(bodies), len(set(bodies))) == (8, 1)
    assert len(spreads) > 10
    assert len({each.headers["x-service-webhook-hmac"] for each in receiver.got}) == 2


def test_only_a_200_is_success_and_no_redirect_is_followed(receiver):
    answers = [201, 202, 302, 404, 500, 200]
    receiver.answer = lambda _received, number: answers[number]
    with sandbox(receiver) as server:
        emit(server)
        [delivery] = finished(server)
    assert (delivery["state"], statuses(delivery)) == ("delivered", answers)
    assert {each.path for each in receiver.got} == {"/webhooks"}


def test_an_answer_that_drips_past_3_seconds_is_none(receiver):
    receiver.drips = "body"
    with sandbox(receiver, time_scale=1) as server:
        emit(server)
        wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])
        [delivery] = server.sandbox.deliveries()
    [attempt] = delivery["attempts"]
    assert (attempt["status"], attempt["error"]) == (None, "no complete response within 3 s")
    assert attempt["ms"] >= 3000
    assert delivery["state"] == "pending"


def test_scripted_webhooks_come_twice_or_after_the_next_one_or_never_or_later(receiver):
    with sandbox(receiver) as server:
        server.sandbox.script.extend(
            ["reorder", "drop", "duplicate", {"delay": 90}, {"delay": 0.4}]
        )
        for kind in ("reordered", "dropped"):
            emit(server, kind)
        listed = server.sandbox.deliveries()
        assert [(each["state"], each["nextAttemptAt"]) for each in listed] == [
            ("pending", None),
            ("dropped", None),
        ]
        for kind in ("twice", "far", "delayed"):
            emit(server, kind)
        receiver.wait_for(4)
        listed = server.sandbox.deliveries()
    came = kinds(receiver.got)
    assert came[0] == "twice"
    assert sorted(came) == ["delayed", "reordered", "twice", "twice"]
    assert len({each.body for each in receiver.got}) == 3
    [far] = [each for each in listed if each["resourceType"] == "far"]
    made, due = (datetime.fromisoformat(far[name]) for name in ("createdAtUtc", "nextAttemptAt"))
    assert due - made >= timedelta(seconds=90)


@pytest.mark.parametrize("fault", ["corrupt", "old_secret", None])
def test_a_wrong_signature_comes_once_and_then_the_right_one(receiver, fault):
    """Each attempt is signed with the secret of its moment, unless a script says otherwise."""

    def check(received: Received, number: int) -> int:
        if fault is None and number == 0:
            server.sandbox.configure(b'{"sharedSecret": "new"}')
        return 200 if received.is_signed_with("new") else 401

    receiver.answer = check
    with sandbox(receiver) as server:
        if fault is not None:
            for _ in range(2):
                server.sandbox.configure(b'{"sharedSecret": "new"}')
            server.sandbox.script.append(fault)
        emit(server)
        [delivery] = finished(server)
    assert statuses(delivery) == [401, 200]
    wrong, right = receiver.got
    assert wrong.body == right.body
    signature = wrong.headers["x-service-webhook-hmac"]
    assert len(base64.b64decode(signature, validate=True)) == 32
    assert wrong.is_signed_with(SECRET) == (fault != "corrupt")
