"""Run every block of README and docs; check the claims of docs/use/data.md."""

import html
import json
import re
import runpy
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from nftsync import charts, frames
from tests.docs.pages import PAGES, ROOT, blocks, read, tables
from tests.docs.runner import EXAMPLES
from tests.kit.database import Builder

DAY = "2026-01-31"
END_OF_DAY = f"{DAY}T23:59:59.999999Z"


#: Why a block is not run: other programs read it.
NOT_RUN = re.compile(
    "not run: (installs from a package index|a crontab|a line for IPython|as root|Spark|Kubernetes|"
    "stays open until Ctrl-C|systemd units|a web server's configuration|an object store of yours|"
    "machines of yours|a contract of yours|a node of yours|Litestream's configuration)"
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
    (runner.folder / "wallets.csv").write_text(
        f"wallet_id,label\n{EXAMPLES[0]},Treasury\n{EXAMPLES[1]},Auctions\n"
    )
    (runner.folder / "webhook-secret.txt").write_text("of the page on webhooks")
    pages = [ROOT / "README.md", ROOT / "docs" / "use" / "README.md"]
    run = [b for page in pages for b in blocks(page) if b.is_run and b.language != "console"]
    shown = {block.text: runner.run(block) for block in run}
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


def test_settings_and_the_gallery(runner, history, monkeypatch, provider):
    runner.replace["nftsync webhook-config"] = f"nftsync webhook-config --base-url {provider.url}"
    for block in blocks(ROOT / "docs" / "operate" / "settings.md"):
        runner.run(block)
    monkeypatch.setenv("NFTSYNC_DATABASE", str(history.database))
    runner.run(blocks(ROOT / "docs" / "use" / "gallery.md")[0])
    assert len(Path("treasury.html").read_text()) > 1_000


@pytest.mark.filterwarnings("ignore:the history begins:nftsync.NftsyncWarning")
def test_data(runner, history):
    """The three ways to past holdings have the same result."""
    shutil.copy(history.database, "acme.db")
    beta = Builder(Path("beta.db"))
    beta.wallet(9)
    beta.state(9, 0, 0, 0)
    beta.close()
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


def test_the_page_of_concepts_and_its_picture(runner, history):
    runner.replace = {DAY: history.between}
    shown = [str(runner.run(block)) for block in blocks(ROOT / "docs" / "concepts.md")]
    assert re.match(r"Treasury .* at .*: (bracketed|gap)\n", shown[0])
    assert "SHA-256" in shown[0]
    picture = ROOT / "docs" / "images"
    drawn = runpy.run_path(str(picture / "make_timeline_svg.py"))["draw"]()
    assert (picture / "timeline.svg").read_text(encoding="utf-8") == drawn


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


#: Together the greatest sum of the one kind, and far beyond it.
AMOUNTS = {"`Int64`": (2**63 - 1 - 3 - 7, 3, 7), "Python integers": (2**256 - 1, 3, 2**70 + 1)}

DATA = read(ROOT / "docs" / "use" / "data.md")
_, *LINES = next(table for table in tables(DATA) if table[0][1:] == [*AMOUNTS])


@pytest.fixture(scope="module")
def holdings(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Of each kind, as it is and exactly: two wallets, one amount of which is unknown."""
    made = []
    for kind, amounts in AMOUNTS.items():
        build = Builder(tmp_path_factory.mktemp("amounts") / "nftsync.db")
        build.wallet(1)
        build.wallet(2)
        for token, amount in enumerate([*map(str, amounts), "1.5"], start=1):
            build.token(token, name=f"NFT {token}")
            build.balance(1 + token % 2, token, amount)
        database = build.close()
        frame, known = frames.holdings(database), frames.holdings(database, amounts="exact")
        assert (frame["amount"].dtype == object) == (kind == "Python integers")
        made.append((frame, known.dropna(subset="amount")))
    return made


def amounts_in(value: Any) -> set[int | float]:
    """Return all numbers of a result; 0 may stand for a missing one."""
    if isinstance(value, pd.DataFrame):
        value = value["amount"] if "amount" in value else value.melt()["value"]
    if isinstance(value, pd.Series | np.ndarray):
        return {one for one in value.tolist() if not pd.isna(one)} - {0}
    return {value.item() if isinstance(value, np.generic) else value}


def done(line: str, frame: pd.DataFrame, known: pd.DataFrame) -> str:
    """What becomes of a line; `known` has the known amounts as Python integers."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            value = eval(line, {"pd": pd, "connection": connection, "holdings": frame})
        except (TypeError, OverflowError, ValueError) as error:
            kinds = (TypeError, OverflowError, ValueError)
            return next(kind.__name__ for kind in kinds if isinstance(error, kind))
    if value is None or ".to_sql(" in line:
        return "written"
    if type(value).__name__ == "Figure":
        return "drawn"
    if isinstance(value, pd.Series) and "unique" in value.index:
        return "counts"
    if isinstance(getattr(value, "dtype", None), pd.CategoricalDtype):
        return "binned"
    found = amounts_in(value)
    if any(isinstance(one, float) for one in found):
        return "rounded"
    if isinstance(value, pd.DataFrame) and "amount" in value:
        return "exact" if found <= set(known["amount"]) else "wraps"
    return "exact" if found == amounts_in(eval(line, {"holdings": known})) else "wraps"


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_pandas_does_what_the_table_says(line, holdings):
    for told, (frame, known) in zip(line[1:], holdings, strict=True):
        said = re.match(r"\w+", told)
        assert said is not None
        assert said[0] == done(line[0].strip("`"), frame.copy(), known)


def test_the_four_numbers_of_arrivals_on_the_demo_are_those_of_the_frames(demo):
    section = DATA.partition("### How many NFTs arrived?")[2]
    documented = re.findall(r"^\| `frames.*?\| (\d+) \|", section, re.MULTILINE)
    moved = frames.transfers(demo, "30d")
    moved = moved[moved["to_wallet_id"].notna()]
    total = frames.statement(demo, "30d").iloc[-1]
    arrived = (frames.diff(demo, "30d")["kind"] == "arrived").sum()
    numbers = [len(moved), total["received"], arrived, total["received_amount"]]
    assert documented == [*map(str, numbers)]
    for shown, figure in (
        (total["received"], charts.arrivals_and_departures(demo, since="30d")),
        (len(moved), charts.arrivals_and_departures(moved)),
    ):
        assert f"{shown} arrivals and " in str(figure.layout.title)
