"""A provider that answers, but not what can be true, and refusals that are nobody's trouble."""

from __future__ import annotations

import logging
import time

import pytest
from provider import Provider, entry, reply, token, uuid, wallet
from replay_world import OK, Place, path_of, wallets

from nftsync.provider.routes import Route
from nftsync.replay.config import Timing


def hold(place: Place, provider: Provider, count: int) -> None:
    """So many wallets are known and hold a token each; no webhook is left."""
    for number in range(count):
        provider.holds(wallet(number), entry(token(number)))
    place.receive("Wallet", *wallets(count))
    assert place.replay().done == count
    place.run("DELETE FROM webhooks")


# Empty lists ------------------------------------------------------------------------------------


def test_empty_lists_for_everyone_take_nothing_away_and_whole_ones_are_believed_again(
    place: Place, provider: Provider
) -> None:
    hold(place, provider, 40)
    for number in range(40):
        provider.on(path_of(number), OK)
    place.receive("Wallet", *wallets(40))
    result = place.replay()
    assert (result.done, result.failed, place.held()) == (0, 40, 40)
    assert "empty lists" in place.run("SELECT DISTINCT last_error FROM webhooks")[0][0]
    assert not place.run("SELECT 1 FROM balance_changes WHERE new_amount IS NULL")
    for number in range(40):
        if number != 3:
            provider.on(path_of(number))
    place.make_due()
    assert place.replay().done == 40
    assert place.held() == 39


@pytest.mark.parametrize(("known", "fetches"), [(3, 2), (1, 1)])
def test_a_wallet_that_has_sold_its_last_is_empty_once_another_is_seen_not_to_be(
    place: Place, provider: Provider, known: int, fetches: int
) -> None:
    """Where there is no other, it is believed at once."""
    hold(place, provider, known)
    provider.on(path_of(0), OK)
    (name,) = place.receive("Wallet", wallet(0))
    result = place.replay()
    assert (result.done, result.fetches) == (1, fetches)
    assert {of for (of,) in place.run("SELECT wallet_id FROM balances")} == set(wallets(known)[1:])
    assert place.run("SELECT webhook_id FROM balance_changes WHERE new_amount IS NULL") == [(name,)]


# Refusals ---------------------------------------------------------------------------------------


def test_a_named_wallet_of_somebody_else_that_is_403_does_no_harm(
    place: Place, provider: Provider
) -> None:
    hold(place, provider, 1)
    payment = uuid(5)
    body = f'{{"from": "{wallet(0)}", "to": "{wallet(9)}"}}'.encode()
    provider.on(f"/v1/payments/{payment}", reply(body))
    provider.holds(wallet(0), entry(token(1)))
    provider.on(path_of(9), reply(b"", 403))
    place.receive("Payment", payment)
    route = Route(path="/v1/payments/{resourceId}", kind="object", wallets=["from", "to"])
    result = place.replay({"Payment": route})
    assert (result.done, result.error) == (1, None)
    assert place.run("SELECT wallet_id FROM wallets") == [(wallet(0),)]


def test_an_object_that_is_refused_again_and_again_does_not_hold_up_the_others(
    place: Place, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the first refusal may be the provider's; the others are known to be the object's."""
    caplog.set_level(logging.INFO, "nftsync.replay")
    provider.on(path_of(1), reply(b"", 500))
    provider.holds(wallet(2), entry(token(2)))
    place.receive("Wallet", wallet(1))
    with place.following(
        attempts=1, timing=Timing(first_deferral=0.02, first_pause=0.05)
    ) as following:
        following.until(lambda: len(provider.requests(path_of(1))) >= 4)
        for _ in range(3):
            (good,) = place.receive("Wallet", wallet(2))
            following.wake()
            following.until(lambda good=good: place.webhook(good)["state"] == "done")
            time.sleep(0.05)
    assert sum("paused" in record.getMessage() for record in caplog.records) == 1
    assert place.run("SELECT state, attempts FROM webhooks WHERE resource_id = ?", wallet(1)) == [
        ("pending", 0)
    ]
