"""The provider's calls over a real connection."""

import time

import httpx

from nftsync.sandbox.generator import generate
from nftsync.sandbox.server import Faults, SandboxServer
from tests.kit.webhook_receiver import CONFIG, UNKNOWN
from tests.sandbox.test_control import good


def test_an_unchanged_answer_is_a_304_until_it_changes(server, client):
    giver, getter = server.world.wallets()[:2]
    path = f"/v1/wallets/{giver}/nft-balances"
    first = client.get(path)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    for match in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        again = client.get(path, headers={"If-None-Match": match})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    entry = first.json()["nftTokenBalances"][0]
    server.world.transfer(giver, getter, entry["tokenId"], 1)
    changed = client.get(path, headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


def test_errors_are_json(client):
    balances = f"/v1/wallets/{UNKNOWN}/nft-balances"
    for method, path, status, message in (
        ("GET", balances, 404, f"wallet {UNKNOWN} does not exist"),
        ("GET", f"/v1/tokens/{UNKNOWN}", 404, f"token {UNKNOWN} does not exist"),
        ("GET", "/v1/wallets/ann/nft-balances", 400, "'ann' is not a wallet id"),
        ("GET", "/v1/tokens/%0A%E2%98%83", 400, "is not a token id"),
        ("GET", "/sandbox/images/ann.svg", 400, "'ann' is not a token id"),
        ("GET", f"{balances}/", 404, "not found"),
        ("POST", f"/v1/tokens/{UNKNOWN}", 405, "not allowed"),
    ):
        response = client.request(method, path)
        assert (response.status_code, "allow" in response.headers) == (status, status == 405)
        assert response.headers["content-type"] == "application/json"
        assert message in response.json()["error"]


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
