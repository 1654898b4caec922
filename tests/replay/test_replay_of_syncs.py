"""Webhooks of types that ask for a sync of all wallets."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from provider import Provider, entry, token, uuid, wallet
from replay_world import Place, in_time, settled

from nftsync.daemon.schedule import replay_config
from nftsync.errors import InputError
from nftsync.provider.routes import Route
from nftsync.pull.result import SyncResult
from nftsync.replay.run import replay_once
from nftsync.settings import load
from nftsync.store.database import sync_lock

ANY = {"*": Route(kind="sync")}
SELDOM = {"*": Route(kind="sync", at_most_every=timedelta(minutes=15))}


@pytest.fixture
def tracked(place: Place, provider: Provider) -> Place:
    """Two wallets are tracked, and nothing waits."""
    for number in (1, 2):
        provider.holds(wallet(number), entry(token(number)))
    place.receive("Wallet", wallet(1), wallet(2))
    place.replay()
    place.run("DELETE FROM webhooks")
    return place


def test_webhooks_of_any_other_type_make_one_sync(tracked: Place, provider: Provider) -> None:
    before = len(provider.requests())
    tracked.receive("Whatever", uuid(1), uuid(2), uuid(2))
    tracked.receive("Vault", uuid(3))
    result = tracked.replay(ANY)
    assert (result.done, result.fetches, result.error) == (4, 0, None)
    assert len(provider.requests()) - before == 2
    assert tracked.run("SELECT status FROM sync_runs WHERE kind = 'sync'") == [("ok",)]


def test_a_sync_that_is_too_early_waits_and_says_until_when(tracked: Place) -> None:
    """Too early after one of all wallets that went well, not after others."""
    tracked.run(
        "INSERT INTO sync_runs (kind, status, started_at, reads_all)"
        " VALUES ('sync', 'ok', ?1, 0), ('sync', 'failed', ?1, 1)",
        in_time(0),
    )
    tracked.receive("Whatever", uuid(1))
    assert tracked.replay(SELDOM).done == 1
    (name,) = tracked.receive("Whatever", uuid(2), at=in_time(0))
    result = tracked.replay(SELDOM)
    assert (settled(result), result.error) == (0, None)
    row = tracked.webhook(name)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert in_time(800) < row["next_attempt_at"] < in_time(900)
    tracked.run("UPDATE sync_runs SET started_at = ?", in_time(-901))
    tracked.make_due()
    assert tracked.replay(SELDOM).done == 1


def test_a_wallet_that_came_after_a_sync_does_not_hurry_the_next(
    tracked: Place, provider: Provider
) -> None:
    tracked.receive("Whatever", uuid(1))
    assert tracked.replay(SELDOM).done == 1
    provider.holds(wallet(3), entry(token(3)))
    tracked.receive("Wallet", wallet(3))
    assert tracked.replay(SELDOM).done == 1
    tracked.receive("Whatever", uuid(2), at=in_time(0))
    assert settled(tracked.replay(SELDOM)) == 0
    assert tracked.states() == {"done": 2, "pending": 1}


def test_a_sync_of_another_process_makes_webhooks_wait_and_is_told(tracked: Place) -> None:
    (name,) = tracked.receive("Whatever", uuid(1))
    with sync_lock(tracked.database):
        result = tracked.replay(ANY)
    assert (settled(result), tracked.states()) == (0, {"pending": 1})
    assert "sync" in str(result.error)
    row = tracked.webhook(name)
    assert row["attempts"] == 0
    assert in_time(3) < row["next_attempt_at"] < in_time(20)
    tracked.make_due()
    assert tracked.replay(ANY).done == 1


def test_a_wallets_file_that_cannot_be_read_is_no_sync(
    tracked: Place, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nftsync.toml").write_text(
        f'base_url = "{provider.url}"\nwallets_file = "wallets.txt"\n[routes."*"]\nkind = "sync"\n'
    )
    (tmp_path / "wallets.txt").write_text("no uuid\n")
    monkeypatch.setenv("NFTSYNC_DATABASE", str(tracked.database))
    config = replay_config(load())
    tracked.receive("Whatever", uuid(1))
    result = replay_once(tracked.database, config, threading.Event(), progress=False)
    assert (settled(result), tracked.states()) == (0, {"pending": 1})
    assert "wallets.txt" in str(result.error)
    (tmp_path / "wallets.txt").write_text(wallet(3))
    provider.holds(wallet(3))
    tracked.make_due()
    assert replay_once(tracked.database, config, threading.Event(), progress=False).done == 1
    assert tracked.run("SELECT status FROM wallets WHERE wallet_id = ?", wallet(3)) == [("ok",)]


def test_webhooks_go_on_while_a_sync_that_others_asked_for_is_under_way(
    tracked: Place, provider: Provider
) -> None:
    """However many ask for the next sync meanwhile, and though nobody knows how long it takes."""
    syncing, go_on, syncs = threading.Event(), threading.Event(), []

    def sync(stopped: threading.Event) -> SyncResult:
        syncs.append(stopped)
        syncing.set()
        assert go_on.wait(20)
        raise InputError("no wallet")

    tracked.receive("Whatever", uuid(0))
    with tracked.following(ANY, run_sync=sync, most_objects=8) as following:
        assert syncing.wait(10)
        tracked.receive("Whatever", *(uuid(number) for number in range(1, 40)))
        tracked.receive("Wallet", wallet(1), wallet(2))
        following.wake()
        following.until(lambda: tracked.states().get("done") == 2)
        go_on.set()
        following.until_states(done=42)
    assert len(syncs) == 2  # what came while one was under way asked for another


def test_when_replay_ends_amid_a_sync_its_webhooks_wait_again(tracked: Place) -> None:
    syncing, wait_again = threading.Event(), []

    def sync(stopped: threading.Event) -> SyncResult:
        syncing.set()
        wait_again.append(stopped.wait(20))
        raise InputError("no wallet")

    (name,) = tracked.receive("Whatever", uuid(0))
    with tracked.following(ANY, run_sync=sync):
        assert syncing.wait(10)
    assert wait_again == [True]
    row = tracked.webhook(name)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert row["next_attempt_at"] <= in_time(0)
    assert tracked.is_quiet()


def test_a_sync_made_since_a_webhook_came_is_enough_for_it(
    tracked: Place, provider: Provider
) -> None:
    tracked.receive("Whatever", uuid(0))
    tracked.replay(ANY)
    before = len(provider.requests())
    tracked.receive("Whatever", uuid(1), at=in_time(-3_600))
    assert tracked.replay(ANY).done == 1
    assert len(provider.requests()) == before
    tracked.receive("Whatever", uuid(2), at=in_time(0))
    assert tracked.replay(ANY).done == 1
    assert len(provider.requests()) == before + 2
