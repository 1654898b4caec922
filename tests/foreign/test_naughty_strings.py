"""The Big List of Naughty Strings as names, labels, addresses and metadata of a mirror."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import openpyxl
import pandas as pd
import pytest
from openpyxl.utils.escape import unescape

import nftsync
from nftsync import frames
from nftsync.sandbox.server import SandboxServer
from nftsync.sandbox.world import Holding, World
from tests.foreign.suites import read_suite
from tests.kit.provider import token, wallet
from tests.kit.worlds import run_command

STRINGS: list[str] = json.loads(read_suite("naughty_strings")["blns.json"])
#: Columns of the table `tokens` that have the strings as sent.
COLUMNS = ("name", "description", "contract_address", "blockchain_token_id", "creator_name")


def world(_: str) -> World:
    """Each wallet holds one token, whose texts are one string."""
    made = World()
    for number, text in enumerate(STRINGS):
        metadata = dict.fromkeys(("name", "description", "image", "creatorName"), text)
        metadata["attributes"] = [{"trait_type": text, "value": text}]
        record = {"id": token(number), "contractAddress": text, "blockchainTokenId": text}
        raw = msgspec.Raw(msgspec.json.encode(record | {"metadata": metadata}))
        made.add_wallet(wallet(number), [Holding(token(number), "1", raw)])
    return made


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of the world, with the strings as labels and groups."""
    folder = tmp_path_factory.mktemp("naughty")
    with (folder / "wallets.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["wallet_id", "label", "group"])
        writer.writerows([wallet(number), text, text] for number, text in enumerate(STRINGS))
    with SandboxServer(world) as server:
        result = nftsync.sync(
            wallets_file=folder / "wallets.csv",
            base_url=server.url,
            database=folder / "nftsync.db",
            progress=False,
        )
    assert (result.status, result.unreadable, len(STRINGS)) == ("ok", [], 485)
    return folder / "nftsync.db"


def of_tokens(table: pd.DataFrame, column: str) -> list[Any]:
    """Return a column in the order of the strings."""
    return table.set_index("token_id")[column].reindex(map(token, range(len(STRINGS)))).to_list()


def plain(text: str) -> str:
    """Return a cell without the quotes that keep a spreadsheet from running it."""
    return text.replace("'", "")


def test_frames_return_the_strings(database: Path) -> None:
    tokens, holdings = frames.tokens(database), frames.holdings(database)
    for column in COLUMNS:
        assert of_tokens(tokens, column) == STRINGS
    extra = [json.loads(text)["metadata"]["attributes"] for text in of_tokens(tokens, "extra")]
    assert extra == [[{"trait_type": text, "value": text}] for text in STRINGS]
    for column in ("wallet_label", "wallet_group"):
        labels = ["" if pd.isna(label) else label for label in of_tokens(holdings, column)]
        assert labels == [text.strip() for text in STRINGS]


@pytest.mark.parametrize("form", ["csv", "parquet", "xlsx"])
def test_an_export_has_the_strings(database: Path, tmp_path: Path, form: str) -> None:
    run_command("export", "out", "-d", database, "--format", form).says("Wrote")
    if form == "parquet":
        tokens = pd.read_parquet(tmp_path / "out/tokens.parquet")
    elif form == "csv":
        with (tmp_path / "out/tokens.csv").open(newline="", encoding="utf-8") as file:
            tokens = pd.DataFrame(csv.DictReader(file, strict=True))
    else:
        sheet = openpyxl.load_workbook(tmp_path / "out/nftsync.xlsx")["tokens"]
        headings, *rows = sheet.values
        tokens = pd.DataFrame(rows, columns=headings)
    for column in COLUMNS:
        texts = of_tokens(tokens, column)
        if form == "csv":
            assert [*map(plain, texts)] == [*map(plain, STRINGS)]
        else:
            assert [*map(unescape, texts)] == STRINGS  # a workbook's escapes of controls


def test_a_saved_frame_loads_as_it_was(database: Path, tmp_path: Path) -> None:
    saved = frames.holdings(database)
    frames.save(saved, tmp_path / "holdings.parquet")
    pd.testing.assert_frame_equal(frames.load(tmp_path / "holdings.parquet"), saved)


#: Characters that a terminal obeys, and marks that change the direction of text.
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    "words",
    [
        *(("holdings", "--limit", 0), ("wallets", "--limit", 0), ("collections", "--limit", 0)),
        *(("changes", "--limit", 0), ("transfers",), ("find", "script"), ("status",)),
        ("statement", "--since", "1d"),
    ],
    ids=lambda words: words[0],
)
def test_no_output_of_a_command_controls_a_terminal(
    database: Path, words: tuple[object, ...]
) -> None:
    for form in ((), ("--json",)):
        outcome = run_command(*words, *form, "-d", database)
        assert outcome.code == 0
        assert UNSAFE.findall(outcome.said) == []
        if form:
            assert outcome.json is not None


class Outline(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, ...]] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, *(name for name, _ in attrs)))


def test_no_string_adds_an_element_to_a_gallery(database: Path) -> None:
    holdings = frames.holdings(database).drop(columns="image")
    texts = [*COLUMNS, "nft", "collection", "contract", "wallet", "wallet_label", "wallet_group"]
    harmless = holdings.assign(**dict.fromkeys({*texts} & {*holdings.columns}, "x"))
    for form in ("html", "_repr_html_"):
        pages = [getattr(nftsync.gallery(frame), form) for frame in (holdings, harmless)]
        outline, expected = (Outline(page() if callable(page) else page) for page in pages)
        assert outline.elements == expected.elements


def is_one_short_line(text: str) -> bool:
    return text.isprintable() and len(text) <= 100 and " ".join(text.split()) == text


def test_alerts_have_the_strings_in_json_and_one_safe_line_for_each(database: Path) -> None:
    Path("nftsync.toml").write_text(
        """
        [destinations.ops]
        kind = "command"
        command = ["true"]
        [watch.all]
        on = ["received"]
        baseline = true
        to = ["ops"]
        """
    )
    command = ("watch", "test", "all", "--limit", 0, "-d", database)
    events = run_command(*command, "--json").says().json
    names = {event["data"]["token_id"]: event["data"]["name"] for event in events}
    assert len(events) == len(names) == len(STRINGS)
    for number, text in enumerate(STRINGS):
        name = names[token(number)]
        assert name == text or not is_one_short_line(text)
        assert "\n" not in name
    assert UNSAFE.findall("".join(event["text"] for event in events)) == []
    outcome = run_command(*command, "--wide").says()
    assert UNSAFE.findall(outcome.said) == []
