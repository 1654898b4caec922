"""Every benchmark runs, at tiny sizes, and the document has its rows."""

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
#: The number of each benchmark's targets.
TARGETS = {"startup": 2, "frames": 5, "analysis": 0, "sync": 5, "failing": 1, "growth": 3}
TARGETS |= {"receiver": 2, "webhooks": 1}


def names(rows: Rows) -> set[str]:
    """Return the names of rows, without the sizes, which are tiny here."""
    return {re.sub(r"[\d,]+", "#", row[1]) for row in rows}


def committed() -> dict[str, Rows]:
    text = DOCUMENT.read_text()
    return rows_in(text[text.index(BEGIN) : text.index(END)])


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_benchmark_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    benchmark = importlib.import_module(f"benchmarks.{name}")
    figures = benchmark.figures(small=True)
    assert sum(bool(figure.target) for figure in figures) == TARGETS[name]
    judged = [figure for figure in figures if figure.target]
    assert names(rows_of(name, judged)) <= names(committed()[name])


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
    rows = [line for line in done.stdout.splitlines() if line.startswith(f"| {NAMES[0]} |")]
    assert sum("| less than" in row for row in rows) == TARGETS[NAMES[0]]


def test_the_document_has_rows_of_every_benchmark():
    assert list(committed()) == list(NAMES)


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
