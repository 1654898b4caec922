"""docs/tutorial.md and the README's session, step by step, with the output that they show."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Console, agrees, commands
from tests.docs.pages import ROOT, blocks, read


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    if shutil.which("curl") is None:
        pytest.skip("the pages use curl")
    for name in [name for name in os.environ if name.startswith("NFTSYNC")]:
        monkeypatch.delenv(name)
    console = Console(tmp_path)
    console.replace[". .venv/bin/activate"] = "true"  # the tests' environment is active
    yield console
    console.close()


def test_the_tutorial(console, one_day, monkeypatch):
    for block in blocks(ROOT / "docs" / "tutorial.md"):
        if not block.is_run:
            continue
        if "$ curl" in block.text and (console.folder / "alert.py").exists():  # with the rule
            console.stop("nftsync serve")
            console.start("nftsync serve")
        console.run(block)
        monkeypatch.chdir(console.folder)
    assert console.folder.name == "nftsync-tutorial"
    assert (console.folder / "report.html").stat().st_size > 1_000_000


def test_the_session_of_the_readme(console, one_day):
    page = ROOT / "README.md"
    (sandbox,) = re.findall("running: `(nftsync sandbox [^`]+)`", read(page))
    console.start(sandbox)
    (session,) = [block for block in blocks(page) if block.language == "console"]
    console.run(session)


def test_only_times_and_random_ids_may_differ_from_a_page():
    printed = "Run 1: ok. 4 wallets read in 1.3 s.\nwallet   amount\n───────\nAda       3\n"
    assert agrees(printed, printed.replace("1.3", "0.2"))
    assert agrees("Run 1: ok. 4 wallets read in 0.2 s.\n…\nAda 3\n", printed)
    assert not agrees(printed, printed.replace("4 wallets", "5 wallets"))
    assert not agrees(printed, printed.replace("3\n", "4\n"))
    assert not agrees(printed.replace("Ada       3\n", ""), printed)
    window = "observed 2026-11-29 13:35–13:37\n"
    assert agrees(window, "observed 2027-01-02 00:00\n")
    assert commands("$ a\nb\n$ c \\\n> d\n") == [("a", "b\n"), ("c \\\nd", "")]
