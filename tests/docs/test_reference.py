"""What the pages list is what there is: commands, settings, tables, links."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import pytest

from nftsync import settings
from nftsync.store import STATES
from nftsync.store.catalog import TABLES
from nftsync.store.schema import open_store
from tests.docs.pages import PAGES, ROOT, anchors, prose, read, sections, tables
from tests.docs.write_commands import PAGE, commands, described, with_help

LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_each_command_is_described_once_with_its_own_help_text():
    assert sorted(described(read(PAGE))) == sorted(commands())
    assert read(PAGE) == with_help(read(PAGE)), "python -m tests.docs.write_commands"


def test_each_setting_is_described():
    page = read(ROOT / "docs" / "operate" / "settings.md")
    (table,) = [table for table in tables(page) if table[0][0] == "key"]
    assert table[0] == ["key", "variable", "flag", "default", "meaning"]
    assert [row[:4] for row in table[1:]] == [
        [
            f"`{key.name}`",
            f"`{key.variable}`" if key.variable else "–",
            f"`{key.flag}`" if key.flag else "–",
            _default(key.default),
        ]
        for key in settings.KEYS
    ]
    assert all(row[4] for row in table[1:])
    marked = {row[0].strip("`") for row in table[1:] if "A secret." in row[4]}
    assert marked == {key.name for key in settings.KEYS if key.secret}


def _default(value: object) -> str:
    if value is None or value == {}:
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def test_each_public_table_is_described_with_its_columns_and_these_are_in_a_database(
    tmp_path: Path,
):
    documented, part = (
        {},
        sections(read(ROOT / "docs" / "use" / "data.md"), "##")["Tables and views"],
    )
    with closing(open_store(tmp_path / "nftsync.db")) as connection:
        for name, text in sections(part, "###").items():
            for table in tables(text):
                columns = [row[0].strip("`") for row in table[1:]]
                if table[0][0] == "column":
                    documented[name] = columns
                if table[0][0].endswith("column"):
                    connection.execute(f'SELECT {", ".join(columns)} FROM "{name}"').fetchall()
    assert documented.pop("tokens_fts") == ["name", "description", "creator_name"]
    assert documented == {name: list(table.columns) for name, table in TABLES.items()}


def test_each_state_of_a_webhook_is_described():
    for name, heading in (
        ("use/data.md", "Tables and views"),
        ("operate/operations.md", "A backlog"),
    ):
        part = sections(read(ROOT / "docs" / name), "##")[heading]
        (table,) = [table for table in tables(part) if table[0][0] == "state"]
        assert [row[0].strip("`") for row in table[1:]] == list(STATES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_relative_link_leads_somewhere(page: Path):
    for target in LINK.findall(prose(page)):
        if "://" in target:
            continue
        name, _, anchor = unquote(target).partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), f"{page.name} links {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links {target}"


def test_what_the_guarantees_name_is_there():
    page = read(ROOT / "docs" / "operate" / "guarantees.md")
    files = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", page)
    targets = re.findall(r"`make (\w+)`", page)
    assert len(files) > 10
    assert [file for file in files if not (ROOT / file).exists()] == []
    made = re.findall(r"^(\w+):", read(ROOT / "Makefile"), re.M)
    assert set(targets) <= set(made)
