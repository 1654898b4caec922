"""Webhooks cause reads and change rows; results count both."""

import json

from tests.kit.provider import Peer, Provider, balances, entry, reply, token, uuid, wallet
from tests.kit.worlds import PATIENCE
from tests.replay.world import NOTHING, OURS, THEIRS, Gate, Place, path_of, settled, wallets

TRANSFER_PATH = f"/v1/transfers/{uuid(7)}"
ROUTES = {
    "Transfer": {
        "kind": "object",
        "path": "/v1/transfers/{resourceId}?full=1",
        "wallets": ["from", "to.id"],
        "tokens": ["nft"],
    }
}


def test_a_new_wallet_is_tracked_and_changes_name_webhooks(
    place: Place, provider: Provider
) -> None:
    names = []
    for amount in ("5", "6"):
        provider.holds(wallet(1), entry(token(1), amount, name=amount))
        names += place.receive("Wallet", wallet(1))
        place.replay()
    assert place.run("SELECT wallet_id, tracked, status FROM wallets") == [(wallet(1), 1, "ok")]
    assert place.run(
        "SELECT new_amount, webhook_id, baseline, run_id FROM balance_changes ORDER BY change_id"
    ) == [("5", names[0], 1, 1), ("6", names[1], 0, 2)]
    assert place.run("SELECT webhook_id, run_id FROM token_changes") == [(names[1], 2)]
    place.run("UPDATE wallets SET tracked = 0")  # an untracked one is not read
    place.receive("Wallet", wallet(1))
    result = place.replay()
    assert (result.done, result.fetches, len(provider.requests())) == (1, 0, 2)


def test_another_organizations_webhooks_are_put_aside(place: Place, provider: Provider) -> None:
    provider.holds(wallet(1))
    provider.holds(wallet(2))
    names = place.receive("Wallet", wallet(1), wallet(2), by=THEIRS)
    (ours,) = place.receive("Wallet", wallet(2))
    result = place.replay(organization_id=OURS)
    assert (result.done, result.quarantined, result.fetches) == (1, 2, 1)
    assert [seen.path for seen in provider.requests()] == [path_of(2)]
    assert place.run("SELECT wallet_id FROM wallets") == [(wallet(2),)]
    assert place.webhook(ours)["state"] == "done"
    for webhook_id, digest, error in place.run(
        "SELECT webhook_id, body_sha256, last_error FROM webhooks WHERE state = 'quarantined'"
    ):
        assert webhook_id == f"q-{digest}"  # it occupies no id
        assert "another organization" in error
    assert not place.run("SELECT 1 FROM webhooks WHERE webhook_id IN (?, ?)", *names)
    assert place.is_quiet()


def test_an_unrouted_object_waits_for_a_route(place: Place, provider: Provider) -> None:
    (name,) = place.receive("Transfer", uuid(7))
    result = place.replay()
    assert (result.unrouted, result.fetches) == (1, 0)
    assert "Transfer" in place.webhook(name)["last_error"]
    assert place.replay(ROUTES).as_dict().items() >= NOTHING.items()
    place.run("UPDATE webhooks SET state = 'pending', next_attempt_at = '', finished_at = NULL")
    body = b'{"from": "%s", "to": {"id": "%s"}, "nft": "%s", "price": 1e400}' % (
        *(wallet(1).upper().encode(), wallet(2).encode()),
        token(1).encode(),
    )
    provider.on(TRANSFER_PATH, reply(body))
    provider.on(f"/v1/tokens/{token(1)}", reply(b'{"id": "%s"}' % token(1).encode()))
    provider.holds(wallet(1))
    provider.holds(wallet(2), entry(token(1)))
    result = place.replay(ROUTES)
    assert (result.done, result.fetches) == (1, 4)
    assert provider.requests()[0].query == "full=1"
    assert place.run("SELECT * FROM resources")[0][:3] == ("Transfer", uuid(7), body.decode())
    assert place.run("SELECT wallet_id, webhook_id FROM balance_changes") == [(wallet(2), name)]
    run = place.runs()[-1]
    assert (run["requests"], run["wallets_ok"], run["status"]) == (4, 2, "ok")


def test_strangers_that_an_object_names_do_no_harm(place: Place, provider: Provider) -> None:
    """The provider does not know them, or does not let us see them; or it is down."""
    named = b'{"from": "%s", "to": {"id": "%s"}, "nft": "%s"}'
    provider.on(
        TRANSFER_PATH, reply(named % tuple(map(str.encode, (wallet(8), wallet(9), token(9)))))
    )
    provider.on(path_of(9), reply(b"", 403))
    place.receive("Transfer", uuid(7))
    result = place.replay(ROUTES)
    assert (result.done, result.error, result.fetches) == (1, None, 4)
    assert place.run("SELECT (SELECT count(*) FROM wallets), (SELECT count(*) FROM tokens)") == [
        (0, 0)
    ]
    provider.on(path_of(9), reply(b"", 503))
    place.receive("Transfer", uuid(7))
    assert settled(place.replay(ROUTES)) == 0
    provider.on(path_of(9))
    provider.holds(wallet(9))
    place.make_due()
    assert place.replay(ROUTES).done == 1
    assert place.run("SELECT wallet_id, tracked FROM wallets") == [(wallet(9), 1)]


def test_holders_are_read_beside_their_token(place: Place, provider: Provider) -> None:
    for holder in wallets(3):
        provider.holds(holder, entry(token(1)))
    provider.holds(wallet(8), entry(token(2)))
    provider.on(f"/v1/tokens/{token(1)}", reply(b'{"id": "%s"}' % token(1).encode()))
    place.receive("Wallet", *wallets(3), wallet(8))
    place.replay()
    place.run("UPDATE wallets SET tracked = 0 WHERE wallet_id = ?", wallet(2))
    place.receive("Token", token(1))
    before = len(provider.requests())
    result = place.replay({"Token": {"holders": True}})
    assert (result.done, result.fetches) == (1, 3)
    asked = {seen.path for seen in provider.requests()[before:]}
    assert asked == {f"/v1/tokens/{token(1)}", path_of(0), path_of(1)}


def test_a_webhook_s_wallet_is_read_without_a_condition(place: Place, provider: Provider) -> None:
    """The provider answers 304 to each condition, and is believed by a sync, but not here."""
    provider.on(path_of(1), reply(balances(entry(token(1))), etag='"1"'))
    place.receive("Wallet", wallet(1))
    place.replay()

    def answer(peer: Peer) -> bool:
        known = "if-none-match" in peer.seen.headers
        return (reply(status=304) if known else reply(balances(), etag='"1"'))(peer)

    provider.on(path_of(1), answer)
    provider.holds(wallet(2), entry(token(2)))
    place.receive("Wallet", wallet(2), wallet(1))
    assert place.replay().done == 2
    assert place.held() == 1
    assert not any("if-none-match" in seen.headers for seen in provider.requests())


def test_too_many_unknown_names_in_an_object_are_not_read(place: Place, provider: Provider) -> None:
    place.receive("Wallet", wallet(1))
    provider.holds(wallet(1))
    place.replay()
    provider.holds(wallet(1), entry(token(1)))
    strangers = [wallet(number) for number in range(2, 23)]
    body = json.dumps({"wallets": [wallet(1), *strangers]}).encode()
    provider.on(f"/v1/things/{uuid(7)}", reply(body))
    (name,) = place.receive("Thing", uuid(7))
    route = {"path": "/v1/things/{resourceId}", "kind": "object", "wallets": ["wallets"]}
    result = place.replay({"Thing": route}, max_unknown=20)
    assert (result.failed, result.fetches, place.held()) == (1, 2, 1)
    assert "the object names 21 unknown wallets and tokens" in place.webhook(name)["last_error"]
    provider.on(f"/v1/things/{uuid(7)}", reply(json.dumps({"wallets": strangers[:20]}).encode()))
    place.make_due()
    for stranger in strangers:
        provider.holds(stranger)
    assert place.replay({"Thing": route}, max_unknown=20).done == 1


def test_a_read_that_started_before_a_webhook_is_repeated(known: Place, provider: Provider) -> None:
    """The wallet is being read as the holder of a token when its own webhook comes."""
    gate = Gate(reply(balances(entry(token(1)))))
    later = Gate(reply(balances(entry(token(1), "2"))))
    provider.on(path_of(1), gate, later)
    provider.on(f"/v1/tokens/{token(1)}", reply(b'{"id": "%s"}' % token(1).encode()))
    known.receive("Token", token(1))
    with known.following({"Token": {"holders": True}}, timing={"poll": 0.01}) as following:
        assert gate.arrived.wait(PATIENCE)
        known.receive("Wallet", wallet(1))
        following.until_states(running=2)
        gate.go_on.set()
        assert later.arrived.wait(PATIENCE)
        assert known.states() == {"done": 1, "running": 1}
        later.go_on.set()
        following.until_states(done=2)
    assert known.run("SELECT amount FROM balances WHERE wallet_id = ?", wallet(1)) == [("2",)]
