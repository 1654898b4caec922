"""Webhooks of types that ask for a sync of all wallets."""

import threading
from datetime import timedelta
from pathlib import Path

import nftsync
from nftsync.pull.plan import NoWallets
from nftsync.replay.worker import replay_once
from nftsync.serve.schedule import replay_config
from nftsync.settings import load
from nftsync.store.database import sync_lock
from tests.kit.provider import uuid, wallet
from tests.replay.world import in_time, settled

ANY = {"*": {"kind": "sync"}}
SELDOM = {"*": {"kind": "sync", "at_most_every": timedelta(minutes=15)}}


def test_other_types_make_one_sync_or_need_none(known, provider):
    before = len(provider.requests())
    known.receive("Whatever", uuid(1), uuid(2), uuid(2))
    known.receive("Vault", uuid(3))
    result = known.replay(ANY)
    assert (result.done, result.fetches, result.error) == (4, 0, None)
    assert len(provider.requests()) == before + 2
    assert known.run("SELECT status FROM sync_runs WHERE kind = 'sync'") == [("ok",)]
    known.receive("Whatever", uuid(1), at=in_time(-3_600))
    assert known.replay(ANY).done == 1
    assert len(provider.requests()) == before + 2
    known.receive("Whatever", uuid(2), at=in_time(0))
    options = {"base_url": provider.url, "database": known.database, "progress": False}
    assert nftsync.sync([wallet(0)], **options).status == "ok"  # not of all wallets
    assert known.replay(ANY).done == 1
    assert len(provider.requests()) == before + 5


def test_a_sync_that_is_too_early_waits(known, provider):
    """Too early after one of all wallets that went well, whatever came since; not after others."""
    known.run(
        "INSERT INTO sync_runs (kind, status, started_at, reads_all)"
        " VALUES ('sync', 'ok', ?1, 0), ('sync', 'failed', ?1, 1)",
        in_time(0),
    )
    known.receive("Whatever", uuid(1))
    before = len(provider.requests())
    assert known.replay(SELDOM).done == 1
    assert len(provider.requests()) == before + 2
    provider.holds(wallet(3))
    known.receive("Wallet", wallet(3))
    assert known.replay(SELDOM).done == 1
    (name,) = known.receive("Whatever", uuid(2), at=in_time(0))
    result = known.replay(SELDOM)
    assert (settled(result), result.error) == (0, None)
    row = known.inbox.row(name)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert in_time(800) < row["next_attempt_at"] < in_time(900)
    known.run("UPDATE sync_runs SET started_at = ?", in_time(-901))
    known.make_due()
    assert known.replay(SELDOM).done == 1


def test_a_sync_that_cannot_start_costs_no_attempt(known, provider):
    """A sync of another process, or a wallets file that cannot be read."""
    file = Path("wallets.txt")
    file.write_text(wallet(3))
    flags = {"base_url": provider.url, "wallets_file": str(file), "database": str(known.database)}
    Path("nftsync.toml").write_text('[routes."*"]\nkind = "sync"\n')
    config = replay_config(load(flags))
    (name,) = known.receive("Whatever", uuid(1))

    def waits(most):
        result = replay_once(known.database, config, threading.Event(), progress=False)
        row = known.inbox.row(name)
        assert (settled(result), row["state"], row["attempts"]) == (0, "pending", 0)
        assert in_time(3) < row["next_attempt_at"] < in_time(most)
        known.make_due()
        return str(result.error)

    with sync_lock(known.database):
        assert "sync" in waits(20)
    file.write_text("no uuid\n")
    assert "wallets.txt" in waits(70)
    file.write_text(wallet(3))
    provider.holds(wallet(3))
    assert replay_once(known.database, config, threading.Event(), progress=False).done == 1
    assert known.run("SELECT status FROM wallets WHERE wallet_id = ?", wallet(3)) == [("ok",)]


def test_webhooks_are_processed_during_a_sync_and_its_own_are_pending_after_a_stop(known):
    """However many webhooks ask for the next sync meanwhile, and however long it takes."""
    go_on = threading.Event()
    syncs = []

    def sync(stopped):
        syncs.append(stopped)
        assert (go_on if len(syncs) == 1 else stopped).wait(20)
        raise NoWallets

    known.receive("Whatever", uuid(0))
    with known.following(ANY, run_sync=sync, max_objects=8) as following:
        following.until(lambda: syncs)
        known.receive("Whatever", *(uuid(number) for number in range(1, 40)))
        known.receive("Wallet", wallet(0), wallet(1))
        following.wake.set()
        following.until(lambda: known.states().get("done") == 2)
        go_on.set()
        following.until(lambda: len(syncs) == 2)  # the others had asked for another
        following.until_states(done=3, running=39)
    assert syncs[1].is_set()
    assert known.states() == {"done": 3, "pending": 39}
    late = "SELECT 1 FROM webhooks WHERE state = 'pending' AND (attempts OR next_attempt_at > ?)"
    assert not known.run(late, in_time(0))
    assert known.is_quiet()
