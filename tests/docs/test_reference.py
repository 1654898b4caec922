"""The pages describe what exists: commands, settings, tables."""

import re
import runpy
from contextlib import closing

import pytest

from nftsync.store import STATES
from nftsync.store.catalog import TABLES
from nftsync.store.schema import open_store
from tests.docs.pages import PAGES, ROOT, read, sections, tables

DOCS = ROOT / "docs"
GENERATED = [page for page in PAGES if page.parent.name == "reference"]


def test_the_generated_pages_are_current(monkeypatch, capsys):
    script = DOCS / "reference" / "make_reference.py"
    monkeypatch.setattr("sys.argv", [str(script), "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, "")
    assert len(GENERATED) == 6
    assert all(read(page).startswith("<!-- Generated ") for page in GENERATED)


def test_the_functions_that_notebooks_import_are_described():
    page = runpy.run_path(str(DOCS / "reference" / "make_reference.py"))["frames_page"]()
    described = sections(sections(page, "##")["Functions of the notebooks"], "###")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        for names in re.findall(r"from nftsync\.notebooks\.\w+ import ([\w, ]+)", read(notebook)):
            assert set(names.split(", ")) <= set(described), notebook
    assert "show_table(frame, most=10" in described["show_table"]
    assert "Show the first rows of a frame" in described["show_table"]
    assert "show_headline()" in described["Report"]


def test_each_public_table_is_listed_and_its_columns_are_in_a_database(tmp_path):
    part = sections(read(DOCS / "use" / "data.md"), "##")["Tables and views"]
    (listed, *_) = tables(part)
    assert {row[0].strip("`") for row in listed[1:]} == set(TABLES)
    with closing(open_store(tmp_path / "nftsync.db")) as connection:
        for name, table in TABLES.items():
            connection.execute(f'SELECT {", ".join(table.columns)} FROM "{name}"').fetchall()
        assert "`body_sha256`" in part
        connection.execute("SELECT body_sha256 FROM webhooks").fetchall()
        connection.execute("SELECT name, description, creator_name FROM tokens_fts").fetchall()


def test_each_state_of_a_webhook_is_described():
    part = sections(read(DOCS / "operate" / "monitor.md"), "##")["Webhook states"]
    (table,) = [table for table in tables(part) if table[0][0] == "state"]
    assert [row[0].strip("`") for row in table[1:]] == list(STATES)


def test_users_install_nftsync_from_a_checkout_as_no_package_index_has_it():
    pages = [ROOT / "README.md", *(DOCS / "use").rglob("*.md")]
    installed = [line for page in pages for line in re.findall(r"pip install [^\n`]*", read(page))]
    assert any("'.[analysis]'" in line for line in installed)
    assert [line for line in installed if re.search(r"[ ']nftsync", line)] == []


def test_what_the_evidence_names_is_there():
    page = read(DOCS / "develop" / "evidence.md")
    files = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", page)
    targets = re.findall(r"`make (\w+)`", page)
    assert len(files) > 10
    assert [file for file in files if not (ROOT / file).exists()] == []
    made = re.findall(r"^(\w+):", read(ROOT / "Makefile"), re.M)
    assert set(targets) <= set(made)
