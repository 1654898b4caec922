"""The consumers of nftsync's messages that the sandbox plays, and their faults."""

import base64
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest

from tests.kit.waiting import wait_until

FAULTS = "/sandbox/faults"
CONSUMER = "/sandbox/consumer"
OPS = f"{CONSUMER}/ops"
#: httpx's words for a response that breaks off in its body.
HALF = "without sending complete message body"
SIGNED = {
    "webhook-id": "msg_1",
    "webhook-timestamp": "1790000000",
    "webhook-signature": "v1,c2lnbmF0dXJl",
}


def bodies(client: httpx.Client, path: str = OPS) -> list[str]:
    return [record["body"] for record in client.get(path).json()]


def answers(client: httpx.Client, count: int) -> list[int]:
    return [client.post(OPS, content=str(number)).status_code for number in range(count)]


def test_messages_are_recorded_per_consumer_with_their_signature(client):
    forwarded = {"X-Service-Webhook-Hmac": "aG1hYw=="}
    assert client.post(OPS, content="ключ", headers=SIGNED | {"Other": "x"}).status_code == 200
    client.post(OPS, content=b"\xff\0", headers=forwarded)
    client.post(CONSUMER, content=b"")
    first, second = client.get(OPS).json()
    assert first.pop("at") <= second.pop("at")
    assert first == {"headers": SIGNED, "body": "ключ", "status": 200}
    assert second == {
        "headers": {"x-service-webhook-hmac": "aG1hYw=="},
        "bodyBase64": base64.b64encode(b"\xff\0").decode(),
        "status": 200,
    }
    assert bodies(client, CONSUMER) == [""]
    assert client.get(f"{CONSUMER}/unknown").json() == []


def test_only_the_newest_messages_are_kept(server, client):
    for number in range(1_003):
        server.consumers.receive("ops", {}, str(number).encode())
    assert bodies(client) == [str(number) for number in range(3, 1_003)]


def test_a_list_of_faults_is_for_the_next_messages_and_a_single_fault_lasts(client):
    script: list[object] = [500, None, 410, "redirect", {"429": 7}, {"slow": 0.01}]
    sent = {"consumers": {"ops": script}}
    assert client.post(FAULTS, json=sent).json() == sent
    assert client.post(CONSUMER, content="x").status_code == 200
    statuses = [500, 200, 410, 307, 429, 200, 200]
    assert answers(client, 7) == statuses
    assert [record["status"] for record in client.get(OPS).json()] == statuses
    client.post(FAULTS, json={"consumers": {"ops": [410] * 5}})
    for fault, expected in ((500, [500] * 3), ([410], [410, 500]), (None, [200] * 2)):
        client.post(FAULTS, json={"consumers": {"ops": fault}})
        assert answers(client, len(expected)) == expected


def test_a_redirect_a_late_answer_and_half_a_response(client):
    script = ["redirect", {"slow": 0.01, "429": 90_000}, "close"]
    client.post(FAULTS, json={"consumers": {"ops": script}})
    redirected = client.post(OPS, content="1", follow_redirects=True)
    assert (redirected.status_code, bodies(client, f"{CONSUMER}/redirected")) == (200, ["1"])
    assert client.post(OPS, content="2").headers["retry-after"] == "90000"
    with pytest.raises(httpx.RemoteProtocolError, match=HALF):
        client.post(OPS, content="3")
    assert answers(client, 1) == [200]
    assert [record["status"] for record in client.get(OPS).json()] == [307, 429, None, 200]


@pytest.mark.parametrize(("fault", "outcome"), [("hang", None), ({"slow": 30}, 200)])
def test_a_waiting_message_delays_neither_others_nor_a_stop(server, client, fault, outcome):
    client.post(FAULTS, json={"consumers": {"ops": [fault]}})

    send = partial(httpx.post, server.url + OPS, content="1", timeout=30, trust_env=False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send)
        wait_until(lambda: client.get(OPS).json())
        assert client.post(OPS, content="2").status_code == 200
        assert not waiting.done()
        server.close()
        if outcome is not None:
            assert waiting.result().status_code == outcome
        else:
            with pytest.raises(httpx.RemoteProtocolError, match=HALF):
                waiting.result()


def test_bad_faults_are_refused_and_change_nothing(client):
    slow: list[Any] = [{"slow": -1}, {"slow": 61}, {"slow": None}]
    wrong = [200, True, "drop", [[500]], *slow, {"429": -1}, {"429": 10**30}, {"other": 1}]
    refused: list[Any] = [{"consumers": {"ops": fault}} for fault in wrong]
    refused += [{"consumers": {"ops": [500, fault]}} for fault in wrong]
    refused += [{"consumers": None}, {"consumers": ["ops"]}]
    refused += [{"consumers": {"ops": [500]}, "webhooks": [1]}]
    for body in refused:
        answer = client.post(FAULTS, json=body)
        assert (answer.status_code, answer.json().keys()) == (400, {"error"}), body
    assert client.post(FAULTS, content=b"{}").json()["error"].endswith("missing")
    assert answers(client, 1) == [200]
