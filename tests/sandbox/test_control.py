"""The webhook configuration and the calls that drive the simulation."""

import json
from datetime import datetime, timedelta
from typing import Any

from nftsync.sandbox.world import World
from tests.kit.webhook_receiver import CONFIG, SECRET, UNKNOWN, Receiver, enable, finished

DEEP = b"[" * 100_000 + b"]" * 100_000


def facts(receiver: Receiver, count: int) -> list[tuple[str, str, str]]:
    """What the webhooks that came say, in any order."""
    bodies = [json.loads(each.body) for each in receiver.wait_for(count)]
    return sorted((each["resourceType"], each["resourceId"], each["action"]) for each in bodies)


def test_the_configuration_begins_disabled_and_only_what_is_sent_changes(client):
    config = {"url": None, "enabled": False, "webhookTypes": []}
    assert client.patch(CONFIG, json={}).json() == config
    url = "https://example.com:8443/in?a=1"
    for change in ({"url": url}, {"webhookTypes": ["nft", "kyc", "payment"]}, {"enabled": True}):
        config |= change
        assert client.patch(CONFIG, json=change).json() == config


def test_an_unusable_configuration_is_refused_and_changes_nothing(client):
    before = client.patch(CONFIG, json={"url": "http://a/", "webhookTypes": ["kyc"]}).json()
    urls = (
        "ftp://example.com/",
        "http://",
        "http://[::1/",
        "http://u:p@example.com/",
        "http://a b",
    )
    for body, message in (
        (b'{"enabled": "true"}', "Expected `bool`, got `str` - at `$.enabled`"),
        (b'{"webhookTypes": ["nft", "nfts"]}', "Invalid enum value 'nfts'"),
        (b'{"sharedSecret": " "}', "at `$.sharedSecret`"),
        (b'{"secret": "x"}', "unknown field `secret`"),
        *((f'{{"url": "{url}"}}'.encode(), "not an http or https URL") for url in urls),
        (b'{"url": "http://\xff/"}', "can't decode byte"),
        (b'{"url":' + DEEP + b"}", "nested more than 200 levels deep"),
    ):
        answer = client.patch(CONFIG, content=body)
        assert (answer.status_code, message in answer.json()["error"]) == (400, True)
    assert client.patch(CONFIG, json={}).json() == before


def test_a_transfer_a_mint_and_new_metadata_tell_of_wallets_and_tokens(server, client, receiver):
    enable(server, receiver)
    body = good(server.world)["/sandbox/transfer"]
    ann, ben = body["fromWalletId"], body["toWalletId"]
    caused = client.post("/sandbox/transfer", json=body | {"fromWalletId": ann.upper()}).json()
    moved = [("Wallet", ann, "update"), ("Wallet", ben, "update")]
    assert facts(receiver, 2) == sorted(moved)
    assert body["tokenId"] in (server.world.balances_body(ben) or b"").decode()
    assert {json.loads(each.body)["id"] for each in receiver.got} == set(caused["webhooks"])

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


def test_a_webhook_is_as_the_document_has_it_and_verifies(server, client, receiver):
    enable(server, receiver, webhookTypes=["payment"])
    body = (
        '{"type": "payment", "resourceType": "P\\u0000\\r\\n☃", "action": "",'
        f' "resourceId": "{UNKNOWN.upper()}",'
        ' "changes": {"amount": 1.10, "n": 123456789012345678901234567890}}'
    )
    caused = client.post("/sandbox/emit", content=body.encode()).json()["webhooks"]
    got = receiver.wait_for(1)[0]
    told = json.loads(got.body)
    assert list(told) == [
        "organizationId", "action", "id", "resourceId", "resourceType", "createdAtUtc", "changes",
    ]  # fmt: skip
    assert (told["organizationId"], [told["id"]]) == (server.world.organization_id, caused)
    assert (told["resourceType"], told["resourceId"]) == ("P\0\r\n☃", UNKNOWN.upper())
    assert b'"changes":{"amount":1.10,"n":123456789012345678901234567890}' in got.body
    assert "." in told["createdAtUtc"]
    assert datetime.fromisoformat(told["createdAtUtc"]).utcoffset() == timedelta(0)
    assert told["createdAtUtc"].endswith("+00:00")
    assert got.path == "/webhooks"
    assert got.headers["content-type"] == "application/json; charset=utf-8"
    assert got.is_signed_with(SECRET)
    assert {"traceparent", "request-id", "request-context"} <= got.headers.keys()
    [listed] = finished(server)
    assert (listed["id"], listed["state"], listed["nextAttemptAt"]) == (*caused, "delivered", None)
    assert [(each["status"], each["error"]) for each in listed["attempts"]] == [(200, None)]


def test_what_the_configuration_does_not_want_is_made_but_not_told(server, client, receiver):
    ann = server.world.wallets()[0]
    for fields in ({"enabled": False}, {"webhookTypes": ["payment"]}):
        enable(server, receiver, **fields)
        minted = client.post("/sandbox/mint", json={"walletId": ann, "amount": 1, "metadata": {}})
        assert minted.json()["webhooks"] == []
        assert server.world.token_body(minted.json()["tokenId"]) is not None
    assert server.sandbox.deliveries() == []


def good(world: World) -> dict[str, dict[str, Any]]:
    ann, ben = world.wallets()[:2]
    token = json.loads(world.balances_body(ann) or b"")["nftTokenBalances"][0]["tokenId"]
    return {
        "/sandbox/transfer": {
            "fromWalletId": ann, "toWalletId": ben, "tokenId": token, "amount": "1",
        },
        "/sandbox/mint": {"walletId": ann, "amount": "1", "metadata": {}},
        f"/sandbox/tokens/{token}": {"metadata": {}},
        "/sandbox/emit": {
            "type": "nft", "resourceType": "X", "resourceId": token, "action": "create",
        },
        "/sandbox/faults": {"webhooks": ["drop"]},
    }  # fmt: skip


def test_every_call_refuses_missing_unknown_and_wrong_fields(server, client, receiver):
    """Each field of each call is left out, and given each wrong type; nothing changes by it."""
    enable(server, receiver)
    before = [server.world.balances_body(wallet) for wallet in server.world.wallets()]
    refused = 0
    for path, body in good(server.world).items():
        wrong: list[object] = [[], None, {}, body | {"more": 1}]
        for name in body:
            wrong.append({key: value for key, value in body.items() if key != name})
            wrong += [body | {name: value} for value in (None, 1.5, True, [1], -1)]
        raws = [b"", b"{", b"\xff", b"{} {}", b"NaN", *(json.dumps(x).encode() for x in wrong)]
        for raw in raws:
            answer = client.post(path, content=raw)
            assert (answer.status_code, answer.json().keys()) == (400, {"error"}), (path, raw)
            refused += 1
    assert refused > 60
    assert [server.world.balances_body(wallet) for wallet in server.world.wallets()] == before
    assert server.sandbox.deliveries() == []


def test_bad_input_is_named(server, client):
    """The texts of refused edits are in `test_world`."""
    calls = good(server.world)
    for path, changed, message in (
        ("transfer", {"fromWalletId": UNKNOWN}, f"wallet {UNKNOWN} does not exist"),
        ("emit", {"type": "NFT"}, "Invalid enum value 'NFT' - at `$.type`"),
        ("emit", {"resourceId": UNKNOWN + "\n"}, "is not a resource id"),
        ("faults", {"webhooks": ["drop", "lose"]}, "Invalid enum value 'lose'"),
        ("faults", {"webhooks": [{"delay": -1}]}, "at `$.webhooks[0]"),
    ):
        answer = client.post(f"/sandbox/{path}", json=calls[f"/sandbox/{path}"] | changed)
        assert (answer.status_code, message in answer.json()["error"]) == (400, True), message
    deep = b'{"metadata": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001
    for body, status, message in (
        (deep, 400, "nested more than 200 levels deep"),
        (b" " * 5_000_000, 413, "exceeds"),
    ):
        answer = client.post(f"/sandbox/tokens/{UNKNOWN}", content=body)
        assert (answer.status_code, message in answer.json()["error"]) == (status, True)


def test_the_secret_is_in_no_answer(server, client, receiver):
    changes: list[dict[str, object]] = [{}, {"url": 1}, {"webhookTypes": ["x"]}, {SECRET[:3]: 1}]
    answers = [client.patch(CONFIG, json={"sharedSecret": SECRET} | more) for more in changes]
    enable(server, receiver)
    server.sandbox.mint(server.world.wallets()[0], 1, {})
    finished(server)
    answers += [client.get("/sandbox/deliveries"), client.get("/"), client.patch(CONFIG, json={})]
    for answer in answers:
        assert SECRET not in json.dumps(answer.json(), ensure_ascii=False) + answer.text
