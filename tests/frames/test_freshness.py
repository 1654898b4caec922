"""One call that shows how fresh the data is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nftsync import frames
from tests.kit.database import Builder, at, rows_of, wallet_id

LINES = [
    *("last sync", "last successful sync", "last replay", "oldest wallet read"),
    *("wallets never read", "failed wallets", "incomplete wallets"),
    *("webhooks pending", "webhooks running", "webhooks failed", "webhooks dead"),
    *("webhooks unrouted", "webhooks quarantined"),
]


def lines(path: Path) -> dict[str, tuple[int | None, str | None, str]]:
    rows = rows_of(frames.freshness(path), ["what", "count", "at", "detail"])
    return {row["what"]: (row["count"], row["at"], row["detail"]) for row in rows}


def test_the_last_runs_of_each_kind_and_a_running_one_first(build: Builder) -> None:
    found = lines(build.path)
    assert list(found) == LINES
    assert found["last sync"] == (None, None, "none yet")
    assert found["oldest wallet read"] == (0, None, "")
    assert all(found[what] == (0, None, "") for what in LINES[4:])
    sync = {"kind": "sync", "started_at": at(0)}
    build.insert(
        "sync_runs", run_id=1, status="ok", finished_at=at(5), wallets_ok=1234,
        wallets_total=1234, **sync,
    )  # fmt: skip
    build.insert("sync_runs", run_id=2, status="running", **sync)
    build.insert(
        "sync_runs", run_id=3, status="failed", finished_at=at(9), wallets_ok=2,
        wallets_failed=40, error="it is\nall wrong", **sync,
    )  # fmt: skip
    build.insert(
        "sync_runs", run_id=4, kind="replay", status="partial", started_at=at(7),
        finished_at=at(8), wallets_ok=3,
    )  # fmt: skip

    found = lines(build.path)
    assert list(found) == LINES  # run 2 was killed long ago
    assert found["last sync"] == (2, at(9), "run 3: failed, 40 wallets failed, it is all wrong")
    assert found["last successful sync"] == (1234, at(5), "run 1: ok")
    assert found["last replay"] == (3, at(8), "run 4: partial")
    sync = {"kind": "sync", "status": "running", "started_at": at(20)}
    build.insert(
        "sync_runs", run_id=5, wallets_total=5000, wallets_ok=1500, wallets_failed=1, **sync
    )
    found = lines(build.path)
    assert list(found) == ["running sync", *LINES]
    told = "run 5: 1,501 of 5,000 wallets, unless it was killed"
    assert found["running sync"] == (1501, at(20), told)
    assert found["last sync"][2].startswith("run 3")


def test_tracked_wallets_by_how_they_were_read(build: Builder) -> None:
    build.wallet(1, seen=1, label="New\nVault\x1b[2J\u202e")  # acts on no terminal
    build.wallet(2, synced_at=at(30), status="ok")
    build.wallet(3, synced_at=at(20), status="failed", error="the provider answered 500")
    build.wallet(4, synced_at=at(25), status="incomplete", error="field `next`")
    build.wallet(5, synced_at=at(2), status="failed", tracked=0)
    for number in range(6, 10):
        build.wallet(number, seen=3, status="failed", error="x" * 500)
    found = lines(build.path)
    oldest = f"{wallet_id(3)}: the provider answered 500"
    assert found["oldest wallet read"] == (3, at(20), oldest)
    count, since, detail = found["wallets never read"]
    assert (count, since) == (5, at(1))
    assert detail.startswith(f"New Vault\\x1b[2J\\x202e; {wallet_id(6)}: xxx")
    assert detail.endswith("…; 2 more")
    assert found["failed wallets"][:2] == (5, at(20))
    assert wallet_id(5) not in found["failed wallets"][2]
    assert found["incomplete wallets"] == (1, at(25), f"{wallet_id(4)}: field `next`")


def test_webhooks_that_are_not_done(build: Builder) -> None:
    states = ["pending", "pending", "running", "failed", "dead", "dead", "unrouted", "done"]
    for number, state in enumerate(states):
        build.insert(
            "webhooks",
            webhook_id=f"w-{number}",
            received_at=at(10 + number),
            state=state,
            resource_type="Payment" if state == "unrouted" else "Wallet",
            last_error="the provider answered 404" if state == "dead" else None,
        )
    found = lines(build.path)
    assert found["webhooks pending"] == (2, at(10), "")
    assert found["webhooks running"] == (1, at(12), "")
    assert found["webhooks failed"] == (1, at(13), "")
    assert found["webhooks dead"] == (2, at(14), "2 × the provider answered 404")
    assert found["webhooks unrouted"] == (1, at(16), "1 × Payment")
    assert found["webhooks quarantined"] == (0, None, "")


@pytest.mark.parametrize("hours", [5, -5])
def test_ages_count_until_now_and_never_backwards(build: Builder, hours: int) -> None:
    moment = datetime.now(UTC) - timedelta(hours=hours)
    stored = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    build.wallet(1, synced_at=stored, status="ok")
    age = frames.freshness(build.path).set_index("what").loc["oldest wallet read", "age"]
    if hours < 0:
        assert age == timedelta(0)
    else:
        assert timedelta(hours=hours) <= age <= datetime.now(UTC) - moment
