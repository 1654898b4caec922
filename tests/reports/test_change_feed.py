"""The change feed: in order, from a time or an id, and followed with each change once."""

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
from nftsync.store.mirror import Mirror
from tests.kit.mirrored_site import Site, run
from tests.kit.worlds import PATIENCE


@contextmanager
def following(*filters: str) -> Iterator[subprocess.Popen[str]]:
    """Follow the changes in a process that ends with the block."""
    command = [sys.executable, "-m", "nftsync", "changes", "--follow", "--after", "0", *filters]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:
        yield process
        process.kill()


def log_of(site: Site) -> list[dict[str, object]]:
    with closing(sqlite3.connect(site.database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM balance_changes ORDER BY change_id").fetchall()
    return [dict(row) for row in rows]


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_since_is_inclusive_and_exact_to_the_microsecond_over_gaps_and_equal_times(tmp_path):
    """Many changes share a time, and ids have gaps."""
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


def test_a_commit_during_the_output_of_a_page_is_followed(site):
    """It comes after the read of the page, and no commit follows it."""
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
                # No open transaction keeps the write-ahead log.
                busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                assert busy == 0
    assert seen == list(range(1, 22))


def test_follow_prints_a_line_of_json_per_matching_change_also_of_new_ones(site):
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
    log = log_of(site)
    columns = list(log[0])
    assert [name for name in lines[-1] if name in columns] == columns
    assert {"wallet_label", "name"} <= set(lines[-1])
    assert lines[-1]["new_amount"] == str(2**256 - 1)
    found = [{name: change[name] for name in columns} for change in lines]
    assert found == [change for change in log if change["wallet_id"] == wallet]


def test_follow_ends_without_an_error_when_its_output_is_closed(site):
    """It ends before the next change, which may be days later."""
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
    command("collections", "label", contract, "Salt Harbours").says()
    update = "UPDATE wallets SET wallet_group = 'house' WHERE wallet_id IN (?, ?)"
    run(site.database, update, *site.ids[:2])
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
