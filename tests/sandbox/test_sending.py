import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.webhooks import RETRY_SECONDS
from tests.kit.provider import Peer, endless, head, reply
from tests.kit.waiting import wait_until
from tests.sandbox.conftest import UNKNOWN, enable, finished, is_signed

SCALE = 2e-5


@pytest.fixture
def sandbox(receiver) -> Iterator[Callable[..., SandboxServer]]:
    """Start a sandbox whose nft webhooks go to the receiver."""
    with ExitStack() as stack:

        def start(time_scale: float = SCALE) -> SandboxServer:
            made = SandboxServer(generate(wallets=2, nfts=2), time_scale=time_scale)
            enable(stack.enter_context(made), receiver)
            return made

        yield start


def emit(server: SandboxServer, kind: str = "X") -> str:
    return server.sandbox.emit("nft", kind, UNKNOWN, "create")[0]


def statuses(delivery: dict[str, Any]) -> list[int | None]:
    return [attempt["status"] for attempt in delivery["attempts"]]


def test_the_same_bytes_go_out_at_growing_intervals_and_then_no_more(receiver, sandbox):
    receiver.always(reply(status=500))
    server = sandbox()
    ids = [emit(server), emit(server)]
    ended = finished(server)
    assert [each["id"] for each in ended] == ids
    spreads = set()
    for delivery in ended:
        assert (delivery["state"], delivery["nextAttemptAt"]) == ("failed", None)
        assert statuses(delivery) == [500] * 8
        assert delivery["attempts"][7]["nextAttemptAt"] is None
        for attempt, seconds in zip(delivery["attempts"], RETRY_SECONDS, strict=False):
            at, due = map(datetime.fromisoformat, (attempt["at"], attempt["nextAttemptAt"]))
            wait = (due - at).total_seconds() - attempt["ms"] / 1000
            assert wait == pytest.approx(seconds * SCALE, rel=0.2, abs=1e-5)
            spreads.add(round(wait / seconds / SCALE, 3))
        bodies = [each.body for each in receiver.requests() if delivery["id"].encode() in each.body]
        assert (len(bodies), len(set(bodies))) == (8, 1)
    assert len(spreads) > 10
    assert len({each.headers["x-service-webhook-hmac"] for each in receiver.requests()}) == 2


def test_only_a_200_is_success_and_no_redirect_is_followed(receiver, sandbox):
    answers = [201, 202, 302, 404, 500, 200]
    receiver.always(*(reply(status=each, location=f"{receiver.url}/there") for each in answers))
    server = sandbox()
    emit(server)
    [delivery] = finished(server)
    assert (delivery["state"], statuses(delivery)) == ("delivered", answers)
    assert {each.path for each in receiver.requests()} == {"/webhooks"}


def test_an_answer_that_drips_past_3_seconds_is_none(receiver, sandbox):
    receiver.always(endless(b"a", head("content-length: 10000"), pause=0.1))
    server = sandbox(time_scale=1)
    emit(server)
    wait_until(lambda: server.sandbox.deliveries()[0]["attempts"])
    [delivery] = server.sandbox.deliveries()
    [attempt] = delivery["attempts"]
    assert (attempt["status"], attempt["error"]) == (None, "no complete response within 3 s")
    assert attempt["ms"] >= 3000
    assert delivery["state"] == "pending"


def test_scripted_webhooks_come_twice_or_after_the_next_one_or_never_or_later(receiver, sandbox):
    server = sandbox()
    server.sandbox.script.extend(["reorder", "drop", "duplicate", {"delay": 90}, {"delay": 0.4}])
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
    came = [json.loads(each.body)["resourceType"] for each in receiver.requests()]
    assert came[0] == "twice"
    assert sorted(came) == ["delayed", "reordered", "twice", "twice"]
    assert len({each.body for each in receiver.requests()}) == 3
    [far] = [each for each in server.sandbox.deliveries() if each["resourceType"] == "far"]
    made, due = (datetime.fromisoformat(far[name]) for name in ("createdAtUtc", "nextAttemptAt"))
    assert due - made >= timedelta(seconds=90)


@pytest.mark.parametrize("fault", ["corrupt", "old_secret", None])
def test_a_wrong_signature_comes_once_and_then_the_right_one(receiver, sandbox, fault):
    """Each attempt is signed with the secret of its moment, unless a script says otherwise."""

    def check(peer: Peer) -> bool:
        if fault is None and peer.seen.number == 0:
            server.sandbox.configure(b'{"sharedSecret": "new"}')
        return reply(status=200 if is_signed(peer.seen, "new") else 401)(peer)

    receiver.always(check)
    server = sandbox()
    if fault is not None:
        for _ in range(2):
            server.sandbox.configure(b'{"sharedSecret": "new"}')
        server.sandbox.script.append(fault)
    emit(server)
    [delivery] = finished(server)
    assert statuses(delivery) == [401, 200]
    wrong, right = receiver.requests()
    assert wrong.body == right.body
    signature = wrong.headers["x-service-webhook-hmac"]
    assert len(base64.b64decode(signature, validate=True)) == 32
    assert is_signed(wrong) == (fault != "corrupt")
