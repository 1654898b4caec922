"""Unknown holdings are never 0: the history begins with the first sync's end."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

import nftsync
from nftsync import frames
from nftsync.errors import StoreError
from nftsync.notebooks.report import Report
from tests.kit.provider import Provider, entry, reply, token, wallet
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome

WALLETS = [wallet(0), wallet(1), wallet(2)]
UNKNOWN = "no balances are known yet"


@pytest.fixture
def database(lying: Provider, tmp_path: Path) -> Path:
    """The first wallet is empty, and the others hold two NFTs each; a first sync read them."""
    for number, name in enumerate(WALLETS):
        holds = [entry(token(2 * number + n)) for n in (0, 1)] if number else []
        lying.holds(name, *holds)
    path = tmp_path / "nftsync.db"
    sync(lying, path)
    return path


def sync(provider: Provider, path: Path, *names: str) -> nftsync.SyncResult:
    return nftsync.sync(
        list(names or WALLETS),
        base_url=provider.url,
        database=path,
        concurrency=1,
        progress=False,
    )


def test_a_start_before_the_first_sync_moves_to_its_end(
    database: Path, lying: Provider, command: Callable[..., Outcome]
) -> None:
    lying.holds(wallet(3), entry(token(9)))
    sync(lying, database, wallet(3))
    with pytest.warns(nftsync.NftsyncWarning, match="the history begins at .* begins there"):
        frame = frames.statement(database, "30d")
    start = frame.attrs["start"]
    assert frame.iloc[-1][["opening", "initial", "received", "closing"]].tolist() == [4, 1, 0, 5]
    assert len(frames.holdings(database, as_of=start)) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(frames.statement(database, start), frame)
    command("statement", "--from", "30d", "-d", database).says("so the period begins there")
    report = Report(str(database), start="30d")
    assert report.start == pd.Timestamp(start)
    assert len(report.notes) == 1


def test_frames_of_spans_before_the_history_warn_with_its_begin(database: Path) -> None:
    (begin,) = set(frames.changes(database)["observed_at"].dt.strftime("%Y-%m-%dT%H:%M"))
    for read in (frames.transfers, frames.diff, frames.changes):
        with pytest.warns(nftsync.NftsyncWarning, match=f"the history begins at {begin}"):
            read(database, "30d")
    with pytest.warns(nftsync.NftsyncWarning, match="so the rows begin there"):
        over_time = frames.holdings_over_time(database, start="30d", every="1d")
    assert over_time["holdings"].tolist() == [4]


def test_after_a_sync_of_refusals_no_balance_is_known(
    lying: Provider, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    lying.always(reply(status=401))
    path = tmp_path / "refused.db"
    assert sync(lying, path).status == "failed"
    where = ("-d", str(path))
    for words in ("statement --from 30d", "statement --month 2026-01 --json"):
        command(*words.split(), *where).tells(UNKNOWN, "`nftsync status`", "`nftsync sync`", code=1)
    command("transfers", "--since", "30d", *where).tells("No balances are known yet", code=0)
    with pytest.raises(StoreError, match=UNKNOWN):
        frames.statement(path, "30d")
    with pytest.raises(StoreError, match=UNKNOWN):
        Report(str(path))


def test_no_balance_is_known_before_the_first_sync_has_ended(
    database: Path, lying: Provider, tmp_path: Path
) -> None:
    path, go = tmp_path / "first.db", threading.Event()
    page = f"/v1/wallets/{WALLETS[2]}/nft-balances"
    lying.on(page, lambda peer: go.wait(PATIENCE) and reply(lying.bodies[page])(peer))
    command = [sys.executable, "-m", "nftsync", "sync", "--concurrency", "1", *WALLETS]
    with subprocess.Popen([*command, "--base-url", lying.url, "-d", path]):
        count = "SELECT count(*) FROM balances"
        wait_until(lambda: len(lying.requests(page)) == 2 and query(path, count) == [(2,)])
        with (
            pytest.warns(nftsync.NftsyncWarning, match="within sync 1"),
            pytest.raises(StoreError, match=UNKNOWN),
        ):
            frames.statement(path, "30d")
        go.set()
    with pytest.warns(nftsync.NftsyncWarning, match="begins there"):
        assert frames.statement(path, "30d").iloc[-1]["opening"] == 4


def test_a_workbook_without_a_history_has_no_statement(
    database: Path, lying: Provider, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    lying.always(reply(status=401))
    refused = tmp_path / "refused.db"
    sync(lying, refused)
    for path, sheets in ((refused, {"holdings"}), (database, {"holdings", "statement"})):
        command("export", path.with_suffix(".xlsx"), "-d", path).says("Wrote")
        names = openpyxl.load_workbook(path.with_suffix(".xlsx")).sheetnames
        assert {"holdings", "statement"}.intersection(names) == sheets
