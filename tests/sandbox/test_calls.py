import json
import time
from datetime import datetime, timedelta
from typing import Any

import httpx

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import Faults, SandboxServer
from nftsync.sandbox.world import World
from tests.kit.provider import Provider
from tests.sandbox.conftest import CONFIG, SECRET, UNKNOWN, enable, finished, is_signed


def good(world: World) -> dict[str, dict[str, Any]]:
    """A body for each call of the simulation."""
    ann, ben = world.wallets()[:2]
    token = json.loads(world.balances_body(ann) or b"")["nftTokenBalances"][0]["tokenId"]
    transfer = {"fromWalletId": ann, "toWalletId": ben, "tokenId": token, "amount": "1"}
    webhook = {"type": "nft", "resourceType": "X", "resourceId": token, "action": "create"}
    return {
        "/sandbox/transfer": transfer,
        "/sandbox/mint": {"walletId": ann, "amount": "1", "metadata": {}},
        f"/sandbox/tokens/{token}": {"metadata": {}},
        "/sandbox/emit": webhook,
        "/sandbox/faults": {"webhooks": ["drop"]},
    }


def test_an_unchanged_answer_is_a_304_until_it_changes(server, client):
    transfer = good(server.world)["/sandbox/transfer"]
    path = f"/v1/wallets/{transfer['fromWalletId']}/nft-balances"
    etag = client.get(path).headers["etag"]
    assert etag.startswith('"')
    for match in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        again = client.get(path, headers={"If-None-Match": match})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    client.post("/sandbox/transfer", json=transfer)
    changed = client.get(path, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


def test_the_front_page_lists_calls_that_work(server, client):
    bodies = good(server.world)
    wallet = server.world.wallets()[0]
    token = bodies["/sandbox/transfer"]["tokenId"]
    calls = client.get("/").json()["calls"]
    assert len(calls) >= 11
    for call, about in calls.items():
        assert about
        method, path = call.split()
        target = path.replace("<wallet_id>", wallet).replace("<token_id>", token)
        body = None if method == "GET" else bodies.get(target, {})
        answer = client.request(method, target, json=body)
        assert answer.status_code == 200, (call, answer.text)


def test_delays_and_failures_hit_the_provider_paths_alone():
    with (
        SandboxServer(generate(wallets=1), latency=0.05, fail_rate=1) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        wallet = client.get("/sandbox/wallets").json()[0]
        began = time.monotonic()
        answers = [client.get(f"/v1/wallets/{wallet}/nft-balances") for _ in range(10)]
        answers.append(client.patch(CONFIG, json={"enabled": True}))
        answers.append(client.get("/v1/x"))
        assert time.monotonic() - began >= 12 * 0.05
        assert {answer.status_code for answer in answers} == {500, 503}
        assert all(answer.json()["error"] for answer in answers)
        assert client.get(f"/sandbox/images/{wallet}.svg").status_code == 200
        assert server.requests == {"balances": 10, "webhook_config": 1, "other": 1}


def test_some_requests_fail_and_the_seed_decides_which():
    def draw(seed: int) -> list[int | None]:
        disturbed = Faults(fail_rate=0.5, seed=seed)
        return [refusal and refusal.code for refusal in (disturbed.draw() for _ in range(40))]

    assert set(draw(1)) == {None, 500, 503}
    assert draw(1) == draw(1) != draw(2)


def test_past_the_rate_limit_comes_a_429_that_says_when_to_return():
    # So slow that no time the test may take earns another request.
    with (
        SandboxServer(generate(wallets=1), rate_limit=0.0001) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        path = f"/v1/wallets/{server.world.wallets()[0]}/nft-balances"
        answers = [client.get(path) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[1].headers["retry-after"] == "1"
        assert "requests per second" in answers[1].json()["error"]
        assert client.get("/sandbox/wallets").status_code == 200
    limited = Faults(rate_limit=1000)  # a second's worth is saved up
    assert [limited.draw() for _ in range(1000)] == [None] * 1000


def test_the_configuration_begins_disabled_and_only_sent_fields_change(client):
    config = {"url": None, "enabled": False, "webhookTypes": []}
    assert client.patch(CONFIG, json={}).json() == config
    url = "https://example.com:8443/in?a=1"
    for change in ({"url": url}, {"webhookTypes": ["nft", "kyc", "payment"]}, {"enabled": True}):
        config |= change
        assert client.patch(CONFIG, json=change).json() == config


def facts(receiver: Provider, count: int) -> list[tuple[str, str, str]]:
    """The objects and actions of the webhooks that came."""
    receiver.wait_for(count)
    bodies = [json.loads(each.body) for each in receiver.requests()]
    return sorted((each["resourceType"], each["resourceId"], each["action"]) for each in bodies)


def test_edits_send_webhooks_of_wallets_and_tokens(server, client, receiver):
    enable(server, receiver)
    body = good(server.world)["/sandbox/transfer"]
    ann, ben = body["fromWalletId"], body["toWalletId"]
    caused = client.post("/sandbox/transfer", json=body | {"fromWalletId": ann.upper()}).json()
    moved = [("Wallet", ann, "update"), ("Wallet", ben, "update")]
    assert facts(receiver, 2) == sorted(moved)
    assert body["tokenId"] in (server.world.balances_body(ben) or b"").decode()
    assert {json.loads(each.body)["id"] for each in receiver.requests()} == set(caused["webhooks"])

    text = f'{{"walletId": "{ann}", "amount": {2**256 - 1}, "metadata": {{"rate": 1.10}}}}'
    # As curl -d sends it: the Content-Type does not count.
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    caused = client.post("/sandbox/mint", content=text, headers=form).json()
    token = caused["tokenId"]
    minted = [("Token", token, "create"), ("Wallet", ann, "update")]
    assert facts(receiver, 4) == sorted(moved + minted)
    listed = {each["id"]: each["resourceType"] for each in client.get("/sandbox/deliveries").json()}
    assert [listed[each] for each in caused["webhooks"]] == ["Token", "Wallet"]
    assert b'"metadata":{"rate":1.10}' in (server.world.token_body(token) or b"")
    assert str(2**256 - 1).encode() in (server.world.balances_body(ann) or b"")

    renamed = client.post(f"/sandbox/tokens/{token.upper()}", json={"metadata": {"name": "B"}})
    assert len(renamed.json()["webhooks"]) == 1
    assert facts(receiver, 5) == sorted([*moved, *minted, ("Token", token, "update")])
    assert client.get(f"/v1/tokens/{token}").json()["metadata"] == {"name": "B"}


def test_a_webhook_is_as_the_document_has_it_and_is_signed(server, client, receiver):
    enable(server, receiver, webhookTypes=["payment"])
    body = (
        '{"type": "payment", "resourceType": "P\\u0000\\r\\n☃", "action": "",'
        f' "resourceId": "{UNKNOWN.upper()}",'
        ' "changes": {"amount": 1.10, "n": 123456789012345678901234567890}}'
    )
    caused = client.post("/sandbox/emit", content=body.encode()).json()["webhooks"]
    receiver.wait_for(1)
    [got] = receiver.requests()
    sent = json.loads(got.body)
    at, _ = sent.pop("createdAtUtc"), sent.pop("changes")
    assert list(sent.items()) == [
        ("organizationId", server.world.organization_id),
        ("action", ""),
        ("id", caused[0]),
        ("resourceId", UNKNOWN.upper()),
        ("resourceType", "P\0\r\n☃"),
    ]
    assert b'"changes":{"amount":1.10,"n":123456789012345678901234567890}' in got.body
    assert "." in at
    assert at.endswith("+00:00")
    assert datetime.fromisoformat(at).utcoffset() == timedelta(0)
    assert got.path == "/webhooks"
    assert got.headers["content-type"] == "application/json; charset=utf-8"
    assert is_signed(got)
    assert {"traceparent", "request-id", "request-context"} <= got.headers.keys()
    [listed] = finished(server)
    assert (listed["id"], listed["state"], listed["nextAttemptAt"]) == (*caused, "delivered", None)
    assert [(each["status"], each["error"]) for each in listed["attempts"]] == [(200, None)]


def test_an_edit_without_a_wanted_webhook_is_made(server, client, receiver):
    body = good(server.world)["/sandbox/mint"]
    for fields in ({"enabled": False}, {"webhookTypes": ["payment"]}):
        enable(server, receiver, **fields)
        minted = client.post("/sandbox/mint", json=body).json()
        assert minted["webhooks"] == []
        assert server.world.token_body(minted["tokenId"]) is not None
    assert server.sandbox.deliveries() == []


BALANCES, TOKEN = f"/v1/wallets/{UNKNOWN}/nft-balances", f"/v1/tokens/{UNKNOWN}"
DEEP = b"[" * 100_000 + b"]" * 100_000
NO_URLS = ("ftp://x.example/", "http://", "http://[::1/", "http://u:p@x.example/", "http://a b")
REFUSED = [
    ("GET", BALANCES, b"", 404, f"wallet {UNKNOWN} does not exist"),
    ("GET", TOKEN, b"", 404, f"token {UNKNOWN} does not exist"),
    ("GET", "/v1/wallets/ann/nft-balances", b"", 400, "'ann' is not a wallet id"),
    ("GET", "/v1/tokens/%0A%E2%98%83", b"", 400, "is not a token id"),
    ("GET", "/sandbox/images/ann.svg", b"", 400, "'ann' is not a token id"),
    ("GET", f"{BALANCES}/", b"", 404, "not found"),
    ("POST", TOKEN, b"", 405, "not allowed"),
    ("POST", f"/sandbox/tokens/{UNKNOWN}", b'{"metadata":' + DEEP, 400, "more than 200 levels"),
    ("POST", f"/sandbox/tokens/{UNKNOWN}", b" " * 5_000_000, 413, "exceeds"),
    *(
        ("PATCH", CONFIG, body, 400, message)
        for body, message in (
            (b'{"enabled": "true"}', "Expected `bool`, got `str` - at `$.enabled`"),
            (b'{"webhookTypes": ["nft", "nfts"]}', "Invalid enum value 'nfts'"),
            (b'{"sharedSecret": " "}', "at `$.sharedSecret`"),
            (b'{"secret": "x"}', "unknown field `secret`"),
            *((f'{{"url": "{url}"}}'.encode(), "not an http or https URL") for url in NO_URLS),
            (b'{"url": "http://\xff/"}', "can't decode byte"),
            (b'{"url":' + DEEP + b"}", "nested more than 200 levels deep"),
        )
    ),
]
#: Wrong fields of calls, and their messages; those of refused edits are in `test_world`.
WRONG_FIELDS = [
    ("transfer", {"fromWalletId": UNKNOWN}, f"wallet {UNKNOWN} does not exist"),
    ("emit", {"type": "NFT"}, "Invalid enum value 'NFT' - at `$.type`"),
    ("emit", {"resourceId": UNKNOWN + "\n"}, "is not a resource id"),
    ("faults", {"webhooks": ["drop", "lose"]}, "Invalid enum value 'lose'"),
    ("faults", {"webhooks": [{"delay": -1}]}, "at `$.webhooks[0]"),
]


def test_a_refused_call_changes_nothing_and_says_why(server, client, receiver):
    """Each field of each call is left out, and given each wrong type."""
    enable(server, receiver)
    before = [server.world.balances_body(wallet) for wallet in server.world.wallets()]
    config = client.patch(CONFIG, json={}).json()
    calls = [*REFUSED]
    for path, body in good(server.world).items():
        wrong: list[object] = [[], None, {}, body | {"more": 1}]
        for name in body:
            wrong.append({key: value for key, value in body.items() if key != name})
            wrong += [body | {name: value} for value in (None, 1.5, True, [1], -1)]
        raws = [b"", b"{", b"\xff", b"{} {}", b"NaN", *(json.dumps(x).encode() for x in wrong)]
        calls += [("POST", path, content, 400, "") for content in raws]
        calls += [
            ("POST", path, json.dumps(body | changed).encode(), 400, message)
            for name, changed, message in WRONG_FIELDS
            if path.endswith(name)
        ]
    for method, path, content, status, message in calls:
        answer = client.request(method, path, content=content)
        assert (answer.status_code, "allow" in answer.headers) == (status, status == 405), content
        assert answer.headers["content-type"] == "application/json"
        assert answer.json().keys() == {"error"}
        assert message in answer.json()["error"], content
    assert [server.world.balances_body(wallet) for wallet in server.world.wallets()] == before
    assert client.patch(CONFIG, json={}).json() == config
    assert server.sandbox.deliveries() == []


def test_the_secret_is_in_no_answer(server, client, receiver):
    changes: list[dict[str, object]] = [{}, {"url": 1}, {"webhookTypes": ["x"]}, {SECRET[:3]: 1}]
    answers = [client.patch(CONFIG, json={"sharedSecret": SECRET} | more) for more in changes]
    enable(server, receiver)
    server.sandbox.mint(server.world.wallets()[0], 1, {})
    finished(server)
    answers += [client.get("/sandbox/deliveries"), client.get("/"), client.patch(CONFIG, json={})]
    for answer in answers:
        assert SECRET not in json.dumps(answer.json(), ensure_ascii=False) + answer.text
