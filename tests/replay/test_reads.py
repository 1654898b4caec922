"""Webhooks cause reads and change rows; results count both."""

import json

import pytest

from nftsync.pull.loop import STALE
from nftsync.records import Applied, WalletRead
from nftsync.replay.breaker import CircuitBreaker
from nftsync.replay.config import Timing
from nftsync.replay.jobs import Answer, answer_of
from nftsync.store.inbox import ObjectKey
from tests.kit.inbox import ORGANIZATION
from tests.kit.provider import balances, entry, path_of, reply, token, uuid, wallet
from tests.kit.worlds import PATIENCE
from tests.replay.world import NOTHING, THEIRS, Gate, settled, wallets

TRANSFER, TOKEN = f"/v1/transfers/{uuid(7)}", f"/v1/tokens/{token(1)}"
ROUTES = {
    "Transfer": {
        "kind": "object",
        "path": "/v1/transfers/{resourceId}?full=1",
        "wallets": ["from", "to.id"],
        "tokens": ["nft"],
    }
}
THE_TOKEN = reply(b'{"id": "%s"}' % token(1).encode())


def transfer(sender, receiver, nft):
    """Return a transfer; its price is no number that Python has."""
    ids = map(str.encode, (sender, receiver, nft))
    return b'{"from": "%s", "to": {"id": "%s"}, "nft": "%s", "price": 1e400}' % tuple(ids)


def test_a_new_wallet_is_tracked_and_changes_name_webhooks(place, provider):
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


def test_another_organizations_webhooks_are_quarantined(place, provider):
    provider.holds(wallet(1))
    provider.holds(wallet(2))
    place.receive("Wallet", wallet(1), wallet(2), by=THEIRS)
    (ours,) = place.receive("Wallet", wallet(2))
    result = place.replay(organization_id=ORGANIZATION)
    assert (result.done, result.quarantined, result.fetches) == (1, 2, 1)
    assert provider.attempts() == {path_of(2): 1}
    assert place.run("SELECT wallet_id FROM wallets") == [(wallet(2),)]
    # They occupy no ids.
    known = "iif(webhook_id = 'q-' || body_sha256, '', webhook_id)"
    error = "last_error LIKE '%another organization%'"
    rows = place.run(f"SELECT state, {known}, {error} FROM webhooks ORDER BY 1")
    assert rows == [("done", ours, None), *[("quarantined", "", 1)] * 2]
    assert place.is_quiet()


def test_an_unrouted_object_waits_for_a_route(place, provider):
    (name,) = place.receive("Transfer", uuid(7))
    result = place.replay()
    assert (result.unrouted, result.fetches) == (1, 0)
    assert "Transfer" in place.inbox.row(name)["last_error"]
    assert place.replay(ROUTES).as_dict().items() >= NOTHING.items()
    place.run("UPDATE webhooks SET state = 'pending', next_attempt_at = '', finished_at = NULL")
    body = transfer(wallet(1).upper(), wallet(2), token(1))
    provider.on(TRANSFER, reply(body))
    provider.on(TOKEN, THE_TOKEN)
    provider.holds(wallet(1))
    provider.holds(wallet(2), entry(token(1)))
    result = place.replay(ROUTES)
    assert (result.done, result.fetches) == (1, 4)
    assert provider.requests()[0].query == "full=1"
    assert place.run("SELECT * FROM resources")[0][:3] == ("Transfer", uuid(7), body.decode())
    assert place.run("SELECT wallet_id, webhook_id FROM balance_changes") == [(wallet(2), name)]
    assert [place.runs(x)[-1] for x in ("requests", "wallets_ok", "status")] == [4, 2, "ok"]


def test_strangers_that_an_object_names_do_no_harm(place, provider):
    """The provider does not know them, or does not let us see them; or it is down."""
    provider.on(TRANSFER, reply(transfer(wallet(8), wallet(9), token(9))))
    provider.on(path_of(9), reply(b"", 403))
    place.receive("Transfer", uuid(7))
    result = place.replay(ROUTES)
    assert (result.done, result.error, result.fetches) == (1, None, 4)
    assert place.run("SELECT wallet_id FROM wallets UNION SELECT token_id FROM tokens") == []
    provider.on(path_of(9), reply(b"", 503))
    place.receive("Transfer", uuid(7))
    assert settled(place.replay(ROUTES)) == 0
    provider.on(path_of(9))
    provider.holds(wallet(9))
    place.make_due()
    assert place.replay(ROUTES).done == 1
    assert place.run("SELECT wallet_id, tracked FROM wallets") == [(wallet(9), 1)]


def test_holders_are_read_beside_their_token(place, provider):
    for holder in wallets(3):
        provider.holds(holder, entry(token(1)))
    provider.holds(wallet(8), entry(token(2)))
    provider.on(TOKEN, THE_TOKEN)
    place.receive("Wallet", *wallets(3), wallet(8))
    place.replay()
    place.run("UPDATE wallets SET tracked = 0 WHERE wallet_id = ?", wallet(2))
    place.receive("Token", token(1))
    before = len(provider.requests())
    result = place.replay({"Token": {"holders": True}})
    assert (result.done, result.fetches) == (1, 3)
    asked = {seen.path for seen in provider.requests()[before:]}
    assert asked == {TOKEN, path_of(0), path_of(1)}


def test_a_webhook_s_wallet_is_read_without_a_condition(place, provider):
    """The provider answers 304 to each condition, and is believed by a sync, but not here."""
    provider.on(path_of(1), reply(balances(entry(token(1))), etag='"1"'))
    place.receive("Wallet", wallet(1))
    place.replay()

    def answer(peer):
        known = "if-none-match" in peer.seen.headers
        return (reply(status=304) if known else reply(balances(), etag='"1"'))(peer)

    provider.on(path_of(1), answer)
    provider.holds(wallet(2), entry(token(2)))
    place.receive("Wallet", wallet(2), wallet(1))
    assert place.replay().done == 2
    assert place.held() == 1
    assert not any("if-none-match" in seen.headers for seen in provider.requests())


def test_too_many_unknown_names_in_an_object_are_not_read(place, provider):
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
    assert "the object names 21 unknown wallets and tokens" in place.inbox.row(name)["last_error"]
    provider.on(f"/v1/things/{uuid(7)}", reply(json.dumps({"wallets": strangers[:20]}).encode()))
    place.make_due()
    for stranger in strangers:
        provider.holds(stranger)
    assert place.replay({"Thing": route}, max_unknown=20).done == 1


def test_a_read_that_started_before_a_webhook_is_repeated(known, provider):
    """The wallet is being read as the holder of a token when its own webhook comes."""
    gate = Gate(reply(balances(entry(token(1)))))
    later = Gate(reply(balances(entry(token(1), "2"))))
    provider.on(path_of(1), gate, later)
    provider.on(TOKEN, THE_TOKEN)
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


FAILED = {"outcome": "failed", "error": "no"}
DOWN = {**FAILED, "provider_down": True}


@pytest.mark.parametrize(
    ("read", "result", "is_named", "answer"),
    [
        ({"outcome": "ok"}, {"result": "ok"}, False, Answer()),
        ({"outcome": "ok"}, {"result": "ok", "balances_added": 1}, False, Answer(changed=True)),
        ({"outcome": "ok"}, {"result": "ok", "objects_changed": 1}, True, Answer(changed=True)),
        ({"outcome": "ok"}, {"result": "held", "tokens_added": 1}, False, Answer(changed=True)),
        ({"outcome": "unchanged"}, {"result": "unchanged"}, False, Answer()),
        ({"outcome": "ok"}, {"result": "failed"}, False, Answer(STALE)),
        ({"outcome": "unchanged"}, {"result": "failed"}, True, Answer(STALE)),
        ({**FAILED, "outcome": "incomplete"}, {"result": "incomplete"}, False, Answer("no")),
        ({**FAILED, "status": 404}, {"result": "failed"}, False, Answer("no")),
        (DOWN, {"result": "left out"}, False, Answer("no", is_down=True)),
        ({**DOWN, "status": 403}, {"result": "left out"}, False, Answer("no", is_down=True)),
        # Another's wallet: the provider knows nothing of it, or refuses.
        ({**FAILED, "status": 404}, {"result": "left out"}, True, Answer()),
        ({**DOWN, "status": 403}, {"result": "left out"}, True, Answer()),
        ({**DOWN, "status": 401}, {"result": "left out"}, True, Answer("no", is_down=True)),
        (DOWN, {"result": "left out"}, True, Answer("no", is_down=True)),
    ],
)
def test_a_read_decides_on_its_webhooks(read, result, is_named, answer):
    fields = {"wallet_id": wallet(1), "sequence": 1, "started_at": ""}
    applied = Applied(read=WalletRead(**fields, **read), **result)
    assert answer_of(applied, is_named=is_named) == answer


def test_an_outage_of_days_only_reaches_the_longest_pause():
    """Each pause is twice the last: unbounded, the thousandth exceeds the largest float."""
    breaker = CircuitBreaker(Timing(first_pause=0.001, longest_pause=0.001))
    key = ObjectKey("Wallet", "8d1cc10a-7fbf-42e7-b58d-5110899866aa")
    for _ in range(1_100):
        breaker.open("no answer")
        assert breaker.defer(key, "HTTP 500") <= Timing().longest_deferral
    assert breaker.is_open
