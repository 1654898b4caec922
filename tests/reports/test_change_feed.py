"""The change log: in order, from a time or an id on, and followed without a miss or a double."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from nftsync import frames
from nftsync.reports.change_feed import ChangeFeed
from nftsync.store.catalog import TABLES
from nftsync.store.contracts import label_contract
from nftsync.store.mirror import Mirror
from tests.kit.mirrored_site import Site
from tests.kit.worlds import PATIENCE

CHANGE_COLUMNS = list(TABLES["balance_changes"].columns)


@contextmanager
def following(*filters: str) -> Iterator[subprocess.Popen[str]]:
    """Follow the changes in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0", *filters]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:
        yield process
        process.kill()


def log_of(site: Site) -> list[dict[str, object]]:
    with closing(sqlite3.connect(site.database)) as connection:
        rows = connection.execute("SELECT * FROM balance_changes ORDER BY change_id").fetchall()
    return [dict(zip(CHANGE_COLUMNS, row, strict=True)) for row in rows]


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_since_is_inclusive_and_exact_to_the_microsecond_over_gaps_and_equal_times(tmp_path):
    """Many changes share a time, and ids have gaps; each bound finds the first at or after it."""
    path = tmp_path / "made.db"
    times = [f"2026-01-01T00:00:0{n}.000000Z" for n in (1, 1, 1, 3, 3, 7, 9)]
    ids = [2, 3, 10, 11, 50, 51, 1000]
    with Mirror(path) as mirror, mirror.transaction() as transaction:
        transaction.connection.executemany(
            "INSERT INTO balance_change_rows VALUES (?, 1, 1, NULL, '1', ?, 1, 1, NULL)",
            zip(ids, times, strict=True),
        )
    with ChangeFeed.open(path) as feed:
        for second in range(11):
            for fraction in ("000000", "000001"):
                moment = f"2026-01-01T00:00:{second:02}.{fraction}Z"
                expected = [i for i, at in zip(ids, times, strict=True) if at >= moment]
                before, last = feed.filter_by(since=moment)
                assert [i for i in ids if before < i <= last] == expected
                expected = [i for i, at in zip(ids, times, strict=True) if at <= moment]
                before, last = feed.filter_by(until=moment)
                assert [i for i in ids if before < i <= last] == expected


def test_a_commit_while_a_page_is_being_worked_on_is_not_slept_through(site):
    """It comes after the page was read and before the next look, and no commit follows it."""
    looks = iter([True, True, False])
    seen: list[int] = []
    with (
        ChangeFeed.open(site.database) as feed,
        closing(sqlite3.connect(site.database, isolation_level=None)) as writer,
    ):
        for page in feed.follow(0, lambda: next(looks)):
            seen += [change["change_id"] for change in page]
            if len(seen) == 20:
                writer.execute(
                    "INSERT INTO balance_change_rows SELECT 21, wallet_no, token_no, '1', '2',"
                    " observed_at, 0, NULL, NULL FROM balance_change_rows WHERE change_id = 20"
                )
                # Following leaves no transaction open that would hold the log back.
                busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                assert busy == 0
    assert seen == list(range(1, 22))


def test_follow_prints_a_line_of_json_per_change_that_matches_and_goes_on_with_new_ones(site):
    wallet = site.ids[3]
    with following("--wallet", wallet) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(5)]
        for other in site.ids:
            site.world.set_amount(other, site.held(other)[0], str(2**256 - 1))
        site.sync()
        lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert [name for name in lines[-1] if name in CHANGE_COLUMNS] == CHANGE_COLUMNS
    assert {"wallet_label", "name"} <= set(lines[-1])
    assert lines[-1]["new_amount"] == str(2**256 - 1)
    found = [{name: change[name] for name in CHANGE_COLUMNS} for change in lines]
    assert found == [change for change in log_of(site) if change["wallet_id"] == wallet]


def test_follow_ends_quietly_when_nobody_reads_it_any_more(site):
    """It notices at once, not only when the next change comes, which may be days later."""
    with following() as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_the_feed_has_the_filters_of_frames_changes(site, command):
    contract = frames.tokens(site.database)["contract"][0]
    command("wallets", "label", site.ids[0], "Treasury")
    with closing(sqlite3.connect(site.database, isolation_level=None)) as connection:
        update = "UPDATE wallets SET wallet_group = 'house' WHERE wallet_id IN (?, ?)"
        connection.execute(update, site.ids[:2])
        label_contract(connection, contract, "Salt Harbours")
    first, last = log_of(site)[2]["observed_at"], log_of(site)[-1]["observed_at"]
    for options, filters in [
        (["--wallet", "Treasury"], {"wallet": "Treasury"}),
        (["--group", "house"], {"group": "house"}),
        (["--contract", "salt harbours"], {"contract": contract}),
        (["--until", first], {"until": first}),
        (["--since", last, "--until", last], {"since": last, "until": last}),
        (["--until", "yesterday"], {"until": "yesterday"}),
        (["--until", "today"], {}),
        (
            ["--group", "house", "--contract", contract, "--after", 3],
            {"group": "house", "contract": contract, "after": 3},
        ),
    ]:
        ids = frames.changes(site.database, **filters)["change_id"].tolist()
        feed = command("changes", *options, "--json")
        assert [change["change_id"] for change in feed.json] == ids
        table = command("changes", *options, "--limit", 2)
        lines = table.out.splitlines()[2:]
        assert [int(line.split()[-1]) for line in lines] == ids[-2:]
        assert ("No changes." in table.err) == (not ids)
