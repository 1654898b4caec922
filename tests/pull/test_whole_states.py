"""States at past times: a sync that has stored only a part of its changes never shows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import nftsync
from nftsync import frames
from nftsync.notebooks.report import Report
from tests.kit.provider import Peer, Provider, entry, reply, token, wallet
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE, Outcome

GAINER, LOSER, LAST = wallet(0), wallet(1), wallet(2)
NFT = token(7)
#: Who holds the NFT, before and after its transfer.
BEFORE, AFTER = {LOSER}, {GAINER}


class Stage:
    """Two wallets, between which an NFT moves, and a third, which answers when it may."""

    def __init__(self, provider: Provider, folder: Path) -> None:
        self.provider, self.database = provider, folder / "nftsync.db"
        self.go = threading.Event()
        provider.holds(GAINER)
        provider.holds(LOSER, entry(NFT))
        provider.holds(LAST, entry(token(1)))
        (folder / "wallets.txt").write_text(f"{GAINER}\n{LOSER}\n{LAST}")
        self.sync()
        self.before = now()
        provider.holds(GAINER, entry(NFT))
        provider.holds(LOSER)
        provider.on(f"/v1/wallets/{LAST}/nft-balances", self._wait, reply_of(provider, LAST))

    def _wait(self, peer: Peer) -> bool:
        self.go.wait(PATIENCE)
        return reply_of(self.provider, LAST)(peer)

    def sync(self, *more: str) -> int:
        return self.start(*more).wait(PATIENCE)

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        which = () if "--resume" in more else ("--wallets-file", "wallets.txt")
        command = [sys.executable, "-m", "nftsync", "sync", "--concurrency", "1", *more, *which]
        command += ["--base-url", self.provider.url, "-d", str(self.database)]
        return subprocess.Popen(
            command, cwd=self.database.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def in_the_middle(self) -> subprocess.Popen[bytes]:
        """Start a sync that has stored the gain, and whose removal waits."""
        process = self.start()
        asked = f"/v1/wallets/{LAST}/nft-balances"
        wait_until(lambda: len(self.provider.requests(asked)) == 2 and self.now() == BEFORE | AFTER)
        return process

    def now(self) -> set[str]:
        return holders(frames.holdings(self.database))


def reply_of(provider: Provider, wallet_id: str) -> Callable[[Peer], bool]:
    return lambda peer: reply(provider.bodies[f"/v1/wallets/{wallet_id}/nft-balances"])(peer)


def now() -> str:
    return datetime.now(UTC).isoformat()


def holders(frame: pd.DataFrame) -> set[str]:
    return set(frame.loc[frame["token_id"] == NFT, "wallet_id"])


def shown(database: Path, at: str, *, warned: bool) -> set[str]:
    """Who holds the NFT as of a time; a warning names the time shown, and only that one."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        frame = frames.holdings(database, as_of=at)
    texts = [str(note.message) for note in notes if note.category is nftsync.NftsyncWarning]
    assert [frame.attrs["as_of"] in text for text in texts] == [True] * warned
    assert all(note.category is nftsync.NftsyncWarning for note in notes)
    return holders(frame)


@pytest.fixture
def stage(lying: Provider, tmp_path: Path) -> Iterator[Stage]:
    staged = Stage(lying, tmp_path)
    yield staged
    staged.go.set()


def test_a_time_within_a_running_sync_is_the_state_before_it_also_once_the_sync_has_ended(
    stage: Stage,
) -> None:
    process = stage.in_the_middle()
    within = now()
    assert shown(stage.database, within, warned=True) == BEFORE
    assert shown(stage.database, stage.before, warned=False) == BEFORE
    stage.go.set()
    assert process.wait(PATIENCE) == 0
    assert shown(stage.database, within, warned=True) == BEFORE
    assert shown(stage.database, now(), warned=False) == stage.now() == AFTER


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("again", [("--resume",), ()])
def test_a_sync_that_was_cut_off_shows_once_it_is_resumed_or_all_wallets_are_read_again(
    stage: Stage, end: signal.Signals, again: tuple[str, ...]
) -> None:
    process = stage.in_the_middle()
    process.send_signal(end)
    if end is signal.SIGINT:
        stage.go.set()
    process.wait(PATIENCE)
    stage.go.set()
    assert stage.now() == BEFORE | AFTER  # the tables are as the sync left them
    lopsided = now()
    with pytest.warns(nftsync.NftsyncWarning, match="complete it: `nftsync sync --resume`"):
        assert holders(frames.holdings(stage.database, as_of=lopsided)) == BEFORE
    assert stage.sync(*again) == 0
    assert shown(stage.database, lopsided, warned=True) == BEFORE
    assert shown(stage.database, now(), warned=False) == AFTER


def test_a_sync_of_other_wallets_does_not_make_up_for_one_that_was_cut_off(stage: Stage) -> None:
    process = stage.in_the_middle()
    process.kill()
    process.wait(PATIENCE)
    stage.go.set()
    (stage.database.parent / "wallets.txt").write_text(LAST)
    assert stage.sync() == 0
    assert shown(stage.database, now(), warned=True) == BEFORE
    (stage.database.parent / "wallets.txt").write_text(LOSER)  # the others have been read since
    assert stage.sync() == 0
    assert shown(stage.database, now(), warned=False) == AFTER


def test_each_output_of_a_past_state_shows_the_state_before_a_running_sync(
    stage: Stage, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    process = stage.in_the_middle()
    within, db = now(), ("-d", str(stage.database))
    with pytest.warns(nftsync.NftsyncWarning):
        state = frames.holdings(stage.database, as_of=within).attrs["as_of"]
    second = f"{state[:10]} {state[11:19]} UTC"
    note = f"last whole state before it, of {second}"

    done = command("holdings", "--as-of", within, "--json", *db).says(note)
    assert {x["wallet_id"] for x in done.json if x["token_id"] == NFT} == BEFORE
    done = command("evidence", GAINER, "--at", within, "--json", *db).says(note)
    assert (done.json["at"], done.json["holdings"]) == (state, [])
    command("export", "past", "--as-of", within, *db).says(note)
    assert json.loads(Path("past/manifest.json").read_text())["as_of"] == state
    assert holders(pd.read_parquet("past/holdings.parquet")) == BEFORE

    for start, end in ((stage.before, within), (within, within)):
        spans = ["--from", start, "--to", end, "--by", "wallet", *db]
        done = command("statement", *spans, "--json").says(note)
        assert {(x["opening"], x["closing"]) for x in done.json if x["wallet_id"] == "total"} == {
            (2, 2)
        }
        assert {x["end"] for x in done.json} == {state}
        command("statement", *spans).says(f"to {second[:19]} (UTC), in holdings", note)
    with pytest.warns(nftsync.NftsyncWarning):
        assert frames.diff(stage.database, stage.before, within).empty
    with pytest.warns(nftsync.NftsyncWarning):
        assert holders(frames.holding_ages(stage.database, at=within)) == BEFORE
    counts = frames.holdings_over_time(stage.database, end=within)
    assert counts["holdings"].tolist() == [2]
    report = Report(str(stage.database), start=stage.before, end=within)
    assert holders(report.holdings) == BEFORE
    assert report.end == pd.Timestamp(state)
    assert [note in text for text in report.notes] == [True]

    command("statement", "--from", stage.before, *db).says(
        "in holdings", "last whole state before it"
    )
    with pytest.warns(nftsync.NftsyncWarning):
        assert frames.diff(stage.database, stage.before).empty

    stage.go.set()
    assert process.wait(PATIENCE) == 0
    assert set(frames.holdings_over_time(stage.database)["holdings"]) == {2}
    with pytest.warns(nftsync.NftsyncWarning):
        opened = frames.statement(stage.database, within, by="wallet_id").set_index("wallet_id")
    with pytest.warns(nftsync.NftsyncWarning):
        changed = frames.diff(stage.database, within)
    assert opened.loc[GAINER, ["opening", "received", "sent", "closing"]].tolist() == [0, 1, 0, 1]
    assert opened.loc[LOSER, ["opening", "received", "sent", "closing"]].tolist() == [1, 0, 1, 0]
    assert sorted(changed["kind"]) == ["arrived", "left"]


def test_the_time_shown_is_kept_in_files(stage: Stage, tmp_path: Path) -> None:
    frame = frames.holdings(stage.database, as_of=stage.before)
    frame.to_parquet(tmp_path / "then.parquet")
    assert pd.read_parquet(tmp_path / "then.parquet").attrs == frame.attrs
    frames.save(frame, tmp_path / "saved.parquet")
    assert frames.load(tmp_path / "saved.parquet").attrs == frame.attrs
    assert "as_of" not in frames.holdings(stage.database).attrs


def test_a_sync_that_changes_nothing_is_no_reason_for_another_time(stage: Stage) -> None:
    stage.go.set()
    assert stage.sync() == 0
    spans = query(stage.database, "SELECT count(*) FROM partial_spans")
    assert stage.sync() == 0
    assert query(stage.database, "SELECT count(*) FROM partial_spans") == spans
