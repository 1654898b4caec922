"""Every benchmark runs, at tiny sizes, and the document has a row for each of its targets."""

import http.client
import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.provider import body_file, static_provider, write_world
from benchmarks.report import BEGIN, DOCUMENT, END, NAMES, Rows, rows_in, rows_of
from tests.kit.worlds import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
#: How many targets each benchmark has to meet.
TARGETS = {"startup": 2, "frames": 5, "analysis": 0, "sync": 5, "failing": 1, "growth": 3}
TARGETS |= {"receiver": 2, "webhooks": 1}


def targets(rows: Rows) -> set[tuple[str, str]]:
    """Return the rows with targets, without the sizes, which are tiny here."""
    return {(re.sub(r"[\d,]+", "#", row[1]), row[4]) for row in rows if row[4]}


def committed() -> dict[str, Rows]:
    text = DOCUMENT.read_text()
    return rows_in(text[text.index(BEGIN) : text.index(END)])


def assert_complete(name: str, rows: Rows) -> None:
    assert len(targets(rows)) >= TARGETS[name]
    assert targets(rows) <= targets(committed().get(name, []))


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_benchmark_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    benchmark = importlib.import_module(f"benchmarks.{name}")
    assert_complete(name, rows_of(name, benchmark.figures(small=True)))


def test_the_command_runs_one_in_a_process_of_its_own(tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("NFTSYNC_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", NAMES[0], "--small"],
        cwd=ROOT,
        env=env | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = rows_in(done.stdout)
    assert list(found) == [NAMES[0]]
    assert_complete(NAMES[0], found[NAMES[0]])


def test_the_document_has_a_row_for_every_target():
    rows = committed()
    assert list(rows) == list(NAMES)
    for name, least in TARGETS.items():
        judged = [row[5] for row in rows[name] if row[4]]
        assert len(judged) >= least
        assert set(judged) <= {"yes", "**no**"}, "each target was measured"


def get(url: str, wallet: str, etag: str = "") -> tuple[int, bytes, str | None]:
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    link.request("GET", f"/v1/wallets/{wallet}/nft-balances", headers={"If-None-Match": etag})
    answer = link.getresponse()
    found = answer.status, answer.read(), answer.headers["ETag"]
    link.close()
    return found


@pytest.mark.parametrize("server", ["installed", "double"])
def test_written_bodies_are_served_and_counted_and_may_change(server, tmp_path, monkeypatch):
    if server == "double":
        monkeypatch.setenv("PATH", str(tmp_path))  # no nginx there
    wallets = write_world(tmp_path, 3, 2)
    with static_provider(tmp_path, etag=True, count=True) as provider:
        bodies = [get(provider.url, wallet)[1] for wallet in wallets]
        assert bodies == [body_file(tmp_path, wallet).read_bytes() for wallet in wallets]
        etag = get(provider.url, wallets[0])[2]
        assert etag is not None
        assert get(provider.url, wallets[0], etag)[:2] == (304, b"")
        assert provider.sent(5) == sum(map(len, bodies)) + len(bodies[0])
    with static_provider(tmp_path, changing=True) as provider:
        assert get(provider.url, wallets[0]) == (200, bodies[0], None)
        new = body_file(tmp_path, wallets[0]).with_suffix(".new")
        new.write_bytes(b"{}")
        new.replace(body_file(tmp_path, wallets[0]))
        assert get(provider.url, wallets[0])[1] == b"{}"
