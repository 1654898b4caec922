"""Webhooks of types that ask for a sync of all wallets."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from nftsync.provider.config import ClientConfig
from nftsync.pull.plan import NoWallets, SyncRequest
from nftsync.pull.result import SyncResult
from nftsync.pull.run import sync_wallets
from nftsync.replay.worker import replay_once
from nftsync.serve.schedule import replay_config
from nftsync.settings import load
from nftsync.store.database import sync_lock
from nftsync.store.wallets import WalletLine
from tests.kit.provider import Provider, entry, token, uuid, wallet
from tests.replay.world import Place, in_time, path_of, settled

ANY = {"*": {"kind": "sync"}}
SELDOM = {"*": {"kind": "sync", "at_most_every": timedelta(minutes=15)}}


def test_other_types_make_one_sync_or_need_none(known: Place, provider: Provider) -> None:
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
    assert known.replay(ANY).done == 1
    assert len(provider.requests()) == before + 4


def test_a_sync_that_is_too_early_waits(known: Place, provider: Provider) -> None:
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
    provider.holds(wallet(3), entry(token(3)))
    known.receive("Wallet", wallet(3))
    assert known.replay(SELDOM).done == 1
    (name,) = known.receive("Whatever", uuid(2), at=in_time(0))
    result = known.replay(SELDOM)
    assert (settled(result), result.error) == (0, None)
    row = known.webhook(name)
    assert (row["state"], row["attempts"]) == ("pending", 0)
    assert in_time(800) < row["next_attempt_at"] < in_time(900)
    known.run("UPDATE sync_runs SET started_at = ?", in_time(-901))
    known.make_due()
    assert known.replay(SELDOM).done == 1


def test_a_sync_of_some_wallets_is_none_of_all(known: Place, provider: Provider) -> None:
    known.receive("Whatever", uuid(1))
    client = ClientConfig(base_url=provider.url)
    request = SyncRequest(wallets=[WalletLine(wallet(0))])
    assert sync_wallets(known.database, client, request, progress=False).status == "ok"
    before = len(provider.requests(path_of(1)))
    assert known.replay(ANY).done == 1
    assert len(provider.requests(path_of(1))) == before + 1


def test_a_sync_that_cannot_start_costs_no_attempt(
    known: Place, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync of another process, or a wallets file that cannot be read."""
    (tmp_path / "nftsync.toml").write_text(
        f'base_url = "{provider.url}"\nwallets_file = "wallets.txt"\n[routes."*"]\nkind = "sync"\n'
    )
    (tmp_path / "wallets.txt").write_text(wallet(3))
    monkeypatch.setenv("NFTSYNC_DATABASE", str(known.database))
    config = replay_config(load())
    (name,) = known.receive("Whatever", uuid(1))

    def waits(most: float) -> str:
        result = replay_once(known.database, config, threading.Event(), progress=False)
        row = known.webhook(name)
        assert (settled(result), row["state"], row["attempts"]) == (0, "pending", 0)
        assert in_time(3) < row["next_attempt_at"] < in_time(most)
        known.make_due()
        return str(result.error)

    with sync_lock(known.database):
        assert "sync" in waits(20)
    (tmp_path / "wallets.txt").write_text("no uuid\n")
    assert "wallets.txt" in waits(70)
    (tmp_path / "wallets.txt").write_text(wallet(3))
    provider.holds(wallet(3))
    assert replay_once(known.database, config, threading.Event(), progress=False).done == 1
    assert known.run("SELECT status FROM wallets WHERE wallet_id = ?", wallet(3)) == [("ok",)]


def test_webhooks_go_on_during_a_sync_and_its_own_wait_when_it_is_stopped(known: Place) -> None:
    """However many webhooks ask for the next sync meanwhile, and however long it takes."""
    go_on = threading.Event()
    syncs: list[threading.Event] = []

    def sync(stopped: threading.Event) -> SyncResult:
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
