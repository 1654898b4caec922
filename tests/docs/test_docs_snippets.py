"""Every block of README and docs does what it says: it is run."""

from __future__ import annotations

import ast
import html
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from docs_pages import PAGES, ROOT, Block, blocks
from docs_session import EXAMPLES, History, Session

from nftsync import settings
from nftsync.sandbox.server import SandboxServer

DAY = "2026-01-31"
END_OF_DAY = f"{DAY}T23:59:59.999999Z"


class Runner:
    """Runs the blocks of a page, one after the other, in one folder."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = session
        self.database = session.folder / "data" / "nftsync.db"
        monkeypatch.chdir(session.folder)

    def run(self, block: Block) -> object:
        return getattr(self, f"_{block.language}")(block.text)

    def _text(self, text: str) -> None:
        """What a program prints: nothing to run."""

    def _csv(self, text: str) -> None:
        (self.session.folder / "wallets.csv").write_text(text)

    def _sh(self, text: str) -> object:
        if text.startswith("make "):
            return self.session.make(text)
        if text.startswith("nftsync sandbox"):
            self.session.replace["http://127.0.0.1:8788"] = self.session.serve(text)
            return None
        return self.session.run(text)

    def _python(self, text: str) -> object:
        tree = ast.parse(self.session.replaced(text))
        names: dict[str, object] = {"__name__": "snippet"}
        last = tree.body[-1]
        value = None
        if isinstance(last, ast.Expr):
            tree.body.pop()
            value = ast.Expression(last.value)
        exec(compile(tree, "snippet", "exec"), names)
        return value and eval(compile(value, "snippet", "eval"), names)

    def _sql(self, text: str) -> object:
        address = f"file:{self.database}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute(self.session.replaced(text)).fetchall()
        assert rows, f"no rows:\n{text}"
        return rows

    def _toml(self, text: str) -> None:
        file = self.session.folder / "example" / "nftsync.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        loaded = settings.load(config=file, environ={}, directory=self.session.folder)
        assert f"file {file}" in loaded.sources.values()


@pytest.fixture
def runner(session: Session, provider: SandboxServer, monkeypatch: pytest.MonkeyPatch) -> Runner:
    session.replace["https://api.example.com"] = provider.url
    return Runner(session, monkeypatch)


def test_only_installers_and_schedulers_are_not_run():
    reasons = [block.mark for page in PAGES for block in blocks(page) if not block.is_run]
    assert set(reasons) <= {
        "not run: installs from a package index",
        "not run: a crontab",
        "not run: systemd units",
    }


def test_readme(runner: Runner):
    """From an empty folder, from top to bottom."""
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    runner.session.replace[DAY] = tomorrow
    shown = {block.text: runner.run(block) for block in blocks(ROOT / "README.md") if block.is_run}
    planned = next(str(output) for text, output in shown.items() if text.startswith("make"))
    assert "nftsync demo" in planned
    assert "pytest" in planned
    with closing(sqlite3.connect("data/nftsync.db")) as connection:
        labels = connection.execute("SELECT label FROM wallets ORDER BY label").fetchall()
    assert labels == [("Auctions",), ("Treasury",)]
    assert (runner.session.folder / "exports" / tomorrow / "holdings.parquet").is_file()


def test_settings(runner: Runner):
    for block in blocks(ROOT / "docs" / "settings.md"):
        runner.run(block)


def test_data(runner: Runner, history: History):
    """The three ways to what was held at a time lead to the same."""
    runner.session.replace = {END_OF_DAY: history.between, DAY: history.between}
    shown = {block.text: runner.run(block) for block in blocks(ROOT / "docs" / "data.md")}
    evidence, frame, rows = (
        next(value for text, value in shown.items() if begin in text)
        for begin in ("nftsync evidence", "as_of=", "row_number()")
    )
    by_frame = set(zip(frame.wallet_id, frame.token_id, map(str, frame.amount), strict=True))
    assert by_frame == set(rows)
    assert set(frame.certainty) == {"bracketed", "gap"}
    held = {token for wallet, token, _ in rows if wallet == EXAMPLES[0]}
    assert held == set(re.findall(r"^ (\S{36}) ", str(evidence).partition("Reads")[0], re.M))
    assert held != now_held(history.database)
    as_json = runner.session.run(f"nftsync evidence {EXAMPLES[0]} --at {DAY} --json")
    found = json.loads(as_json)
    assert {holding["token_id"] for holding in found["holdings"]} == held
    assert found["certainty"] == "gap"


def now_held(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT token_id FROM balances WHERE wallet_id = ?", (EXAMPLES[0],)
        ).fetchall()
    return {token for (token,) in rows}


def test_the_picture_shows_what_the_demo_prints(session: Session):
    printed = session.run("nftsync demo 2>&1").replace(f"{session.folder}/", "")
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    assert "@font-face" not in picture
    assert re.findall(r"(?:href|src|url)\W*=?\W*(https?:[^\"')]+)", picture) == []
    lines: dict[str, list[str]] = {}
    for height, text in re.findall(r'<text[^>]* y="([0-9.]+)"[^>]*>([^<]*)</text>', picture):
        lines.setdefault(height, []).append(text)
    drawn = {_essence(html.unescape("".join(texts))) for texts in lines.values()}
    changes = printed.partition("What changed")[2].partition("Who holds what")[0]
    begins = ("Balances:", "6 NFTs", "What changed", "Who holds")
    told = [line for line in printed.splitlines() if line.startswith(begins)]
    what_next = printed.partition("What next:")[2]
    for line in [*told, *changes.splitlines()[1:], *what_next.splitlines()]:
        assert _essence(line) in drawn | {""}, "make it anew: python docs/images/make_demo_svg.py"


def _essence(line: str) -> str:
    """A line without its spaces, and without what only draws."""
    return re.sub(r"[\s\u2500\ufe0f]", "", line)
