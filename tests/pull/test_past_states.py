"""States at past times: before the first sync, and while a sync has stored only some changes."""

import json
import signal
import sys
import threading
import warnings
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL

import openpyxl
import pandas as pd
import pytest

import nftsync
from nftsync import frames
from nftsync.errors import StoreError
from nftsync.notebooks.report import Report
from tests.kit.processes import start_process
from tests.kit.provider import entry, path_of, reply, token, wallet
from tests.kit.serve_process import query
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

GAINER, LOSER, LAST = WALLETS = [wallet(0), wallet(1), wallet(2)]
NFT = token(7)
#: The holder of the NFT before and after its transfer.
BEFORE, AFTER = {LOSER}, {GAINER}
UNKNOWN = "no balances are known yet"
SPANS = "SELECT count(*) FROM partial_spans"


class Stage:
    """A provider of three wallets, and syncs of it as processes; the third can be delayed."""

    def __init__(self, provider, database):
        self.provider, self.database = provider, database
        self.go = threading.Event()
        provider.holds(GAINER)
        provider.holds(LOSER, entry(NFT), entry(token(8)))
        provider.holds(LAST, entry(token(1)))

    def delay(self):
        """Delay the next answer for the third wallet until `go` is set."""

        def answer(peer):
            self.go.wait(PATIENCE)
            return reply(self.provider.bodies[peer.seen.path])(peer)

        self.provider.on(path_of(2), answer)

    def start(self):
        command = [sys.executable, "-m", "nftsync", "sync", "--concurrency", "1"]
        where = ["--base-url", self.provider.url, "-d", str(self.database)]
        arguments = [*command, *where, *WALLETS]
        return start_process(arguments, stdout=DEVNULL, stderr=DEVNULL)

    def sync(self, *wallets, **more):
        which = None if more else list(wallets or WALLETS)
        options = {"base_url": self.provider.url, "database": self.database, "progress": False}
        return nftsync.sync(which, retries=1, **options, **more).status

    def start_partly(self):
        """Start a sync; return when it has stored the gain, and its removal waits."""
        asked = len(self.provider.requests(path_of(2)))
        process = self.start()
        wait_until(lambda: len(self.provider.requests(path_of(2))) > asked)
        wait_until(lambda: self.now() == BEFORE | AFTER)
        return process

    def now(self):
        return holders(frames.holdings(self.database))


def now():
    return datetime.now(UTC).isoformat()


def holders(frame):
    return set(frame.loc[frame["token_id"] == NFT, "wallet_id"])


def shown(database, at, *, warned):
    """Return the holders at a time; a warning must name any other time, and only that."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        frame = frames.holdings(database, as_of=at)
    assert [frame.attrs["as_of"] in str(note.message) for note in notes] == [True] * warned
    assert all(note.category is nftsync.NftsyncWarning for note in notes)
    return holders(frame)


@pytest.fixture
def empty(lying, database):
    """A stage without a sync."""
    stage = Stage(lying, database)
    yield stage
    stage.go.set()


@pytest.fixture
def stage(empty):
    """A stage after a sync; then the NFT changed hands, and the next sync is delayed."""
    empty.sync()
    empty.before = now()
    empty.provider.holds(GAINER, entry(NFT))
    empty.provider.holds(LOSER, entry(token(8)))
    empty.delay()
    return empty


def test_a_period_before_the_first_sync_starts_at_its_end(empty, command):
    empty.sync()
    database = empty.database
    empty.provider.holds(wallet(3), entry(token(9)))
    empty.sync(wallet(3))
    with pytest.warns(nftsync.NftsyncWarning, match="the history begins at .* begins there"):
        frame = frames.statement(database, "30d")
    start = frame.attrs["start"]
    assert frame.iloc[-1][["opening", "initial", "received", "closing"]].tolist() == [3, 1, 0, 4]
    assert len(frames.holdings(database, as_of=start)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(frames.statement(database, start), frame)
    command("statement", "--from", "30d", "-d", database).says("so the period begins there")
    report = Report(str(database), start="30d")
    assert (report.start, len(report.notes)) == (pd.Timestamp(start), 1)
    for read in (frames.transfers, frames.diff, frames.changes):
        with pytest.warns(nftsync.NftsyncWarning, match=f"the history begins at {start[:16]}"):
            read(database, "30d")
    with pytest.warns(nftsync.NftsyncWarning, match="so the rows begin there"):
        over_time = frames.holdings_over_time(database, start="30d", every="1d")
    assert over_time["holdings"].tolist() == [4]


def test_after_only_refused_reads_no_balance_is_known(empty, command):
    for number in range(3):
        empty.provider.on(path_of(number), reply(status=401))
    assert empty.sync() == "failed"
    where = ("-d", str(empty.database))
    for words in ("statement --from 30d", "statement --month 2026-01 --json"):
        command(*words.split(), *where).tells(UNKNOWN, "`nftsync status`", "`nftsync sync`", code=1)
    command("transfers", "--since", "30d", *where).tells("No balances are known yet", code=0)
    for read in (lambda: frames.statement(empty.database, "30d"), lambda: Report(where[1])):
        with pytest.raises(StoreError, match=UNKNOWN):
            read()
    for sheets in ({"holdings"}, {"holdings", "statement"}):
        command("export", "book.xlsx", *where).says("Wrote")
        names = openpyxl.load_workbook("book.xlsx").sheetnames
        assert {"holdings", "statement"}.intersection(names) == sheets
        Path("book.xlsx").unlink()
        for number in range(3):
            empty.provider.on(path_of(number))
        empty.sync()


def test_no_balance_is_known_before_the_end_of_the_first_sync(empty):
    empty.delay()
    process = empty.start()
    wait_until(lambda: empty.provider.requests(path_of(2)))
    wait_until(lambda: query(empty.database, "SELECT count(*) FROM balances") == [(2,)])
    with (
        pytest.warns(nftsync.NftsyncWarning, match="within sync 1"),
        pytest.raises(StoreError, match=UNKNOWN),
    ):
        frames.statement(empty.database, "30d")
    empty.go.set()
    assert process.wait(PATIENCE) == 0
    with pytest.warns(nftsync.NftsyncWarning, match="begins there"):
        assert frames.statement(empty.database, "30d").iloc[-1]["opening"] == 3


@pytest.mark.parametrize(("end", "resume"), [(signal.SIGKILL, False), (signal.SIGINT, True)])
def test_an_interrupted_sync_shows_once_it_is_complete(stage, end, resume):
    process = stage.start_partly()
    process.send_signal(end)
    if end is signal.SIGINT:
        stage.go.set()
    process.wait(PATIENCE)
    stage.go.set()
    assert stage.now() == BEFORE | AFTER  # the tables keep the partial state
    partial = now()
    with pytest.warns(nftsync.NftsyncWarning, match="complete it: `nftsync sync --resume`"):
        assert holders(frames.holdings(stage.database, as_of=partial)) == BEFORE
    if resume:
        assert stage.sync(resume=True) == "ok"
    else:
        assert stage.sync(LAST) == "ok"  # completes nothing
        assert shown(stage.database, now(), warned=True) == BEFORE
        assert stage.sync(LOSER) == "ok"  # the other two have been read since
    assert shown(stage.database, partial, warned=True) == BEFORE
    assert shown(stage.database, now(), warned=False) == AFTER


def test_each_output_within_a_sync_shows_the_state_before_it_also_after_its_end(stage, command):
    process = stage.start_partly()
    database, db = stage.database, ("-d", str(stage.database))
    within = now()
    assert shown(database, within, warned=True) == BEFORE
    assert shown(database, stage.before, warned=False) == BEFORE
    with pytest.warns(nftsync.NftsyncWarning):
        state = frames.holdings(database, as_of=within).attrs["as_of"]
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
        total = {(x["opening"], x["closing"]) for x in done.json if x["wallet_id"] == "total"}
        assert total == {(3, 3)}
        assert {x["end"] for x in done.json} == {state}
        command("statement", *spans).says(f"to {second[:19]} (UTC), in holdings", note)
    command("statement", "--from", stage.before, *db).says("in holdings", note.split(",")[0])
    with pytest.warns(nftsync.NftsyncWarning):
        assert frames.diff(database, stage.before, within).empty
    with pytest.warns(nftsync.NftsyncWarning):
        assert frames.diff(database, stage.before).empty
    with pytest.warns(nftsync.NftsyncWarning):
        assert holders(frames.holding_ages(database, at=within)) == BEFORE
    assert frames.holdings_over_time(database, end=within)["holdings"].tolist() == [3]
    report = Report(str(database), start=stage.before, end=within)
    assert (holders(report.holdings), report.end) == (BEFORE, pd.Timestamp(state))
    assert [note in text for text in report.notes] == [True]

    stage.go.set()
    assert process.wait(PATIENCE) == 0
    assert shown(database, within, warned=True) == BEFORE
    assert shown(database, now(), warned=False) == stage.now() == AFTER
    assert set(frames.holdings_over_time(database)["holdings"]) == {3}
    with pytest.warns(nftsync.NftsyncWarning):
        opened = frames.statement(database, within, by="wallet_id").set_index("wallet_id")
    with pytest.warns(nftsync.NftsyncWarning):
        changed = frames.diff(database, within)
    columns = ["opening", "received", "sent", "closing"]
    assert opened.loc[[GAINER, LOSER], columns].to_numpy().tolist() == [[0, 1, 0, 1], [2, 0, 1, 1]]
    assert sorted(changed["kind"]) == ["arrived", "left"]
    spans = query(database, SPANS)
    assert stage.sync() == "ok"  # a sync without changes has no partial state
    assert query(database, SPANS) == spans
