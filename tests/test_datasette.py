"""The plugin in the installed Datasette, 0.65 or 1.0: questions, descriptions, strangers' text.

With 1.0: install the newest alpha, nftsync and pytest into an environment of its own, and run
`python -m pytest tests/test_datasette.py` there.
"""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest

from tests.docs.pages import ROOT, blocks, read, sections
from tests.kit.processes import start_process
from tests.kit.serve_process import free_port
from tests.kit.waiting import wait_until
from tests.kit.worlds import PATIENCE

PAGE = ROOT / "docs" / "use" / "sql.md"
QUESTIONS = [*sections(sections(read(PAGE), "##")["Questions"], "###")]
NAMES = {question: "_".join(re.findall(r"\w+", question.lower())) for question in QUESTIONS}
# Datasette itself leaves databases open when imported, of which Python 3.13 warns.
IS_1_0 = version("datasette").startswith("1.")
SCRIPT = "<script>alert(1)</script>"
LINK = "javascript:alert(2)"


class Response(NamedTuple):
    status: int
    text: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.text
        rows: list[dict[str, Any]] = json.loads(self.text)
        return rows


class Site:
    """A Datasette on nftsync's database `demo` and another program's, `other`."""

    def __init__(self, folder: Path, *options: str) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "datasette", "demo.db", "other.db", "--port", str(port)]
        words += ["--setting", "sql_time_limit_ms", "60000"]  # on a busy machine
        start_process([*words, *options], cwd=folder, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        with suppress(httpx.ConnectError):
            return self.get("/-/versions.json")[0].status == 200
        return False

    def get(self, *paths: str) -> list[Response]:
        """Request pages."""
        with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
            responses = [client.get(self._url + path) for path in paths]
        return [Response(response.status_code, response.text) for response in responses]

    def rows(self, name: str, **parameters: str) -> list[dict[str, Any]]:
        """Return the rows of a table or a named query."""
        query = urlencode({"_shape": "array", **parameters})
        return self.get(f"/demo/{name}.json?{query}")[0].rows


@pytest.fixture
def folder(demo: Path, tmp_path: Path) -> Iterator[Path]:
    """Both databases; nftsync has its own open, and the write-ahead log has changes."""
    path = shutil.copy(demo, tmp_path / "demo.db")
    with (
        closing(sqlite3.connect(path)) as nftsync,
        closing(sqlite3.connect(tmp_path / "other.db")) as other,
    ):
        nftsync.execute(
            "UPDATE tokens SET name = ?, image = ? WHERE token_id ="
            " (SELECT token_id FROM holdings WHERE held_since IS NOT NULL LIMIT 1)",
            (SCRIPT, LINK),
        )
        nftsync.commit()
        other.execute("CREATE TABLE holdings (wallet_id, amount)")
        assert (tmp_path / "demo.db-wal").stat().st_size > 0
        yield tmp_path


def test_each_question_is_a_page_and_json_with_rows_on_nftsyncs_database_alone(folder, subtests):
    site = Site(folder)
    for question, name in NAMES.items():
        with subtests.test(question):
            page, answer, other = site.get(
                f"/demo/{name}", f"/demo/{name}.json?_shape=array", f"/other/{name}"
            )
            assert len(answer.rows) > 0
            assert page.status == 200
            assert question in page.text
            assert "strangers" in page.text
            assert other.status == 404


def test_parameters_select_by_names_and_times(folder):
    site = Site(folder)
    holders = site.rows(NAMES["Who holds a collection?"], collection="harbour passes")
    assert {row["collection"] for row in holders} == {"Harbour Passes"}
    held = site.rows(NAMES["What does a wallet hold?"], wallet=holders[0]["wallet"])
    assert {row["wallet_id"] for row in held} == {holders[0]["wallet_id"]}
    assert site.rows(NAMES["Which holdings changed since a time?"], since="2999-12-31") == []
    then = NAMES["What did each wallet hold at a time?"]
    (first,) = site.rows("balance_changes", _size="1")
    assert site.rows(then, at="2000-01-01") == []
    assert site.rows(then, at=first["observed_at"][:10]) != []


def test_names_of_nfts_are_shown_as_text_and_only_web_addresses_become_links(folder):
    everything = f"/demo/{NAMES['What does a wallet hold?']}"
    pages = Site(folder).get(everything, "/demo/tokens?_size=max", "/demo/holdings?_size=max")
    for page in pages:
        assert page.status == 200
        assert SCRIPT not in page.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
        assert f'"{LINK}' not in page.text


def test_columns_have_descriptions_and_0_65_hides_internal_tables(folder):
    tokens, database = Site(folder).get("/demo/tokens", "/demo.json")
    assert "on-chain token id, as text because of its length" in tokens.text
    shown = {table["name"] for table in database.rows["tables"] if not table["hidden"]}
    assert {"tokens", "wallets"} <= shown
    if not IS_1_0:
        assert "balance_rows" not in shown


def test_the_settings_of_the_page_publish_neither_bodies_nor_sql_nor_the_file(folder):
    (command,) = [block.text for block in blocks(PAGE) if "default_allow_sql" in block.text]
    assert command.count(" off") == 2
    (folder / "private.json").write_text(command.split("'")[1].replace("today", "demo"))
    off = ("--setting", "default_allow_sql", "off", "--setting", "allow_download", "off")
    site = Site(folder, "-c" if IS_1_0 else "-m", "private.json", *off)
    own = "/demo/-/query.json?sql=select+1" if IS_1_0 else "/demo.json?sql=select+1"
    denied = ["/demo/webhooks", "/demo/messages", "/demo/resources", "/demo.db", own]
    assert [page.status for page in site.get(*denied)] == [403] * 5
    questions = site.get(*(f"/demo/{name}" for name in NAMES.values()))
    assert {page.status for page in questions} == {200}
