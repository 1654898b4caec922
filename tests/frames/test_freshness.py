"""One call that shows how fresh the data is."""

from datetime import timedelta
from pathlib import Path

import pytest

from nftsync import frames
from tests.kit.database import at, rows_of, utc, wallet_id

LINES = [
    *("last sync", "last successful sync", "last replay", "oldest wallet read"),
    *("wallets never read", "failed wallets", "incomplete wallets"),
    *("webhooks pending", "webhooks running", "webhooks failed", "webhooks dead"),
    *("webhooks unrouted", "webhooks quarantined"),
]


def lines(path: Path) -> dict[str, tuple[int | None, str | None, str]]:
    rows = rows_of(frames.freshness(path), ["what", "count", "at", "detail"])
    return {row["what"]: (row["count"], row["at"], row["detail"]) for row in rows}


RUN = ("kind", "status", "started_at", "finished_at", "wallets_ok", "wallets_total")
RUN += ("wallets_failed", "error")
#: The second was killed long ago.
RUNS = [
    ("sync", "ok", at(0), at(5), 1234, 1234, 0, None),
    ("sync", "running", at(0), None, 0, 0, 0, None),
    ("sync", "failed", at(0), at(9), 2, 0, 40, "it is\nall wrong"),
    ("replay", "partial", at(7), at(8), 3, 0, 0, None),
    ("sync", "running", at(20), None, 1500, 5000, 1, None),
]


def test_the_last_runs_of_each_kind_and_a_running_one_first(build):
    empty = dict.fromkeys(LINES, (0, None, "")) | dict.fromkeys(LINES[:3], (None, None, "none yet"))
    assert (found := lines(build.path)) == empty
    assert list(found) == LINES
    for row in RUNS[:4]:
        build.insert("sync_runs", **dict(zip(RUN, row, strict=True)))
    runs = {
        "last sync": (2, at(9), "run 3: failed, 40 wallets failed, it is all wrong"),
        "last successful sync": (1234, at(5), "run 1: ok"),
        "last replay": (3, at(8), "run 4: partial"),
    }
    assert lines(build.path) == empty | runs
    build.insert("sync_runs", **dict(zip(RUN, RUNS[4], strict=True)))
    said = "run 5: 1,501 of 5,000 wallets, unless it was killed"
    assert (found := lines(build.path)) == empty | runs | {"running sync": (1501, at(20), said)}
    assert list(found) == ["running sync", *LINES]


def test_tracked_wallets_by_how_they_were_read(build):
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


def test_webhooks_that_are_not_done(build):
    states = ["pending", "pending", "running", "failed", "dead", "dead", "unrouted", "done"]
    for number, state in enumerate(states):
        kind = "Payment" if state == "unrouted" else "Wallet"
        error = "the provider answered 404" if state == "dead" else None
        row = {"state": state, "resource_type": kind, "last_error": error}
        build.insert("webhooks", webhook_id=f"w-{number}", received_at=at(10 + number), **row)
    found = {name: line for name, line in lines(build.path).items() if "webhooks" in name}
    assert found == {
        "webhooks pending": (2, at(10), ""),
        "webhooks running": (1, at(12), ""),
        "webhooks failed": (1, at(13), ""),
        "webhooks dead": (2, at(14), "2 × the provider answered 404"),
        "webhooks unrouted": (1, at(16), "1 × Payment"),
        "webhooks quarantined": (0, None, ""),
    }


@pytest.mark.parametrize("hours", [5, -5])
def test_ages_count_until_now_and_never_backwards(build, hours):
    build.wallet(1, synced_at=utc(-hours * 3_600), status="ok")
    age = frames.freshness(build.path).set_index("what").loc["oldest wallet read", "age"]
    if hours < 0:
        assert age == timedelta(0)
    else:
        assert timedelta(hours=hours) <= age < timedelta(hours=hours + 1)
