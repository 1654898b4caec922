"""Run every block of README and docs."""

import html
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import httpx
import pytest

from nftsync import frames
from tests.docs.pages import PAGES, ROOT, blocks
from tests.docs.runner import EXAMPLES

DAY = "2026-01-31"
END_OF_DAY = f"{DAY}T23:59:59.999999Z"


#: Why a block is not run: other programs read it.
NOT_RUN = re.compile(
    "not run: (installs from a package index|a crontab|a line for IPython|as root|Spark|Kubernetes|"
    "stays open until Ctrl-C|systemd units|a web server's configuration|an object store of yours|"
    "machines of yours|a contract of yours|Litestream's configuration)"
)


def test_only_what_other_programs_read_is_not_run():
    reasons = {block.mark for page in PAGES for block in blocks(page) if not block.is_run}
    assert [reason for reason in reasons if not NOT_RUN.fullmatch(reason)] == []


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_readme_and_the_first_page_of_the_users_group(one_day, runner):
    """From an empty folder, from top to bottom."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    # New reads are known today; the comparison starts long ago.
    since = f'frames.diff("nfts.db", "{DAY}"'
    runner.replace |= {since: since.replace(DAY, "2020-01-31"), DAY: today}
    runner.replace |= {'"2026-02-01"': '"2020-02-01"'}
    pages = [ROOT / "README.md", ROOT / "docs" / "use" / "README.md"]
    shown = {b.text: runner.run(b) for page in pages for b in blocks(page) if b.is_run}
    planned = next(str(output) for text, output in shown.items() if text.startswith("make"))
    assert "nftsync demo" in planned
    assert "nftsync notebook" in planned
    with closing(sqlite3.connect("data/nftsync.db")) as connection:
        labels = connection.execute("SELECT label FROM wallets ORDER BY label").fetchall()
    assert labels == [("Auctions",), ("Treasury",)]


def test_the_sandbox_of_the_page_of_commands(runner):
    page = blocks(ROOT / "docs" / "use" / "commands.md")
    for block in page:
        if block.is_run:
            runner.run(block)
    (faults,) = [block.text for block in page if block.text.startswith('{"consumers"')]
    url = runner.replace["http://127.0.0.1:8788"]
    answer = httpx.post(f"{url}/sandbox/faults", content=faults, trust_env=False)
    assert answer.json() == json.loads(faults)


def test_settings(runner):
    for block in blocks(ROOT / "docs" / "operate" / "settings.md"):
        runner.run(block)


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_data(runner, history):
    """The three ways to past holdings have the same result."""
    runner.replace = {END_OF_DAY: history.between, DAY: history.between}
    shown = {block.text: runner.run(block) for block in blocks(ROOT / "docs" / "use" / "data.md")}
    evidence, frame, rows = (
        next(value for text, value in shown.items() if begin in text)
        for begin in ("nftsync evidence", "as_of=", "row_number()")
    )
    by_frame = set(zip(frame.wallet_id, frame.token_id, map(str, frame.amount), strict=True))
    assert by_frame == set(rows)
    assert set(frame.certainty) == {"bracketed", "gap"}
    held = {token for wallet, token, _ in rows if wallet == EXAMPLES[0]}
    assert held == set(
        re.findall(
            r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", str(evidence).split("Reads")[0].split("Holdings")[1]
        )
    )
    assert held != set(frames.holdings(history.database, wallet=EXAMPLES[0])["token_id"])


def test_the_picture_shows_what_the_demo_prints(demo):
    printed = (demo.parents[1] / "printed.txt").read_text(encoding="utf-8")
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    assert "@font-face" not in picture
    assert re.findall(r"(?:href|src|url)\W*=?\W*(https?:[^\"')]+)", picture) == []
    lines: dict[str, list[str]] = {}
    for height, text in re.findall(r'<text[^>]* y="([0-9.]+)"[^>]*>([^<]*)</text>', picture):
        lines.setdefault(height, []).append(text)
    drawn = {_essence(html.unescape("".join(texts))) for texts in lines.values()}
    begins = ("Balances:", "13 transfers", "What changed", "Who holds")
    told = [line for line in printed.splitlines() if line.startswith(begins)]
    told += printed.partition("Next steps:")[2].splitlines()
    assert {*map(_essence, told)} <= drawn | {""}, AGAIN
    # A terminal's table has fewer columns than a pipe's.
    made = frames.transfers(demo)[-14:]
    shown = made[["from_label", "to_label", "name", "amount", "kind"]].fillna("–").astype(str)
    for line in map(_essence, shown.agg("".join, axis=1)):
        assert any(text.endswith(line) for text in drawn), f"{line}: {AGAIN}"


#: The message of a failure.
AGAIN = "draw it again: python docs/images/make_demo_svg.py"


def _essence(line: str) -> str:
    """A line without its spaces, its times, and what only draws."""
    return re.sub(r"[0-9:.]{11}|[\s\u2500\ufe0f]", "", line)
