"""Tables in a terminal: nothing is lost, and nothing broken, at any width."""

import os
import re
import sys
import termios
import unicodedata
from contextlib import suppress
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from nftsync.cli.cells import cut_middle
from nftsync.cli.tables import TableColumn, table_lines
from nftsync.text import visible
from tests.kit.database import at
from tests.kit.processes import start_process
from tests.kit.serve_process import command as command_line
from tests.kit.serve_process import query
from tests.kit.terminals import open_terminal

UUIDS = st.uuids().map(str)
ADDRESSES = st.integers(0, 2**160 - 1).map("0x{:040x}".format)
TIMES = st.datetimes().map(lambda time: f"{time.isoformat(timespec='microseconds')}Z")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
WORDS = st.text("abcäß漢 ", max_size=60).map(lambda text: " ".join(text.split()))

COLUMNS = (
    TableColumn("observed", "time", "time"),
    TableColumn("wallet", "wallet", "id", name="label"),
    TableColumn("name", "name"),
    TableColumn("contract", "contract", "id"),
    TableColumn("webhook", "webhook", "key"),
    TableColumn("amount", "amount", "number"),
    TableColumn("error", "error", "message"),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "time": st.none() | TIMES,
            "wallet": UUIDS,
            "label": st.none() | WORDS,
            "name": TEXTS | WORDS | st.none(),
            "contract": st.none() | ADDRESSES,
            "webhook": UUIDS,
            "amount": st.none() | st.integers(0, 2**256 - 1).map(str),
            "error": st.none() | WORDS,
        }
    ),
    max_size=2,
)


@given(ROWS, st.integers(60, 260))
def test_at_any_width_no_column_is_lost_and_no_cell_broken(rows, width):
    head, *pages = table_lines([rows], COLUMNS, width)
    headings = [f"{x.heading} (UTC)" if x.kind == "time" else x.heading for x in COLUMNS]
    assert " ".join(" ".join(head[:-1]).split()) == " ".join(headings)
    lines = [line for page in pages for line in page]
    assert all(cell_len(line) <= width for line in [*head, *lines])
    cells = [cell for line in lines for cell in re.split(r"\s{2,}", line)]
    for row in rows:
        assert row["webhook"] in cells
        if row["label"] is None:
            assert f"{row['wallet'][:8]}…{row['wallet'][-4:]}" in cells
        if row["contract"] is not None:
            assert f"{row['contract'][:6]}…{row['contract'][-4:]}" in cells
        if row["time"] is not None:
            assert any(row["time"][:16].replace("T", " ") == cell[:16] for cell in cells)
        if row["amount"] is not None and len(row["amount"]) <= 24:
            assert f"{int(row['amount']):,}" in cells
        for word in (row["error"] or "").split():
            assert any(word in line for line in lines)


NAMES = st.text("abc äß漢🪁e\u0301حد", min_size=1, max_size=60)


@given(NAMES, st.integers(1, 999_999), st.integers(14, 40))
@example("aaaaa漢漢漢 \u0301", 1, 14)
def test_a_name_is_cut_in_its_middle_and_keeps_its_number(name, number, width):
    whole = f"{name} #{number}"
    shown = cut_middle(whole, width)
    assert cell_len(shown) <= width
    assert shown.endswith(f"#{number}")
    if shown != whole:
        head, _, tail = shown.partition("…")
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert not unicodedata.combining(tail[0])
        assert cell_len(whole) > width


HELD = (
    TableColumn("wallet", "wallet"),
    TableColumn("name", "name"),
    TableColumn("amount", "amount", "number"),
    TableColumn("collection", "collection", within="name"),
    TableColumn("since", "since", "time"),
    TableColumn("edition", "edition"),
    TableColumn("error", "error", "message"),
    TableColumn("webhook", "webhook", "ref", optional=True),
)


def held(*names, **more):
    row = {"wallet": "Treasury", "amount": 1, "collection": "Salt", "since": "2026-01-31T12:00:00Z"}
    webhook = str(UUID(int=1))
    return [
        {**row, "name": name, "edition": None, "error": None, "webhook": webhook, **more}
        for name in names
    ]


def test_a_column_that_is_empty_or_the_same_in_all_rows_is_told_below():
    names = [*held("Salt 1", "Salt 2"), *held("Kiln 3", collection="Kiln")]
    head, rows, below = table_lines([names], HELD, 60)
    assert head[0].split() == ["name", "amount", "webhook"]
    assert rows[1].split()[:3] == ["Salt", "2", "1"]
    assert " ".join(below) == (
        "All rows: wallet Treasury, since 2026-01-31 12:00:00 UTC. No row has: edition, "
        "error. Each name begins with its collection."
    )
    head, _, below = table_lines([held("Salt 1", "Salt 2", "Minted", wallet="A")], HELD, 60)
    assert "collection" not in head[0]
    assert "All rows: wallet A, collection Salt, since" in below[0]
    # Later pages may differ, and a few rows say nothing of the others.
    for pages in ([held("Salt 1")] * 2, [held(*["Salt 1"] * 3), held("Salt 2")]):
        assert next(iter(table_lines(pages, HELD, 120)))[0].startswith("wallet")


def test_an_optional_column_is_shown_only_if_the_row_then_fits_in_a_line():
    columns = [column for column in HELD if column.kind != "message"]
    rows = held("Salt 1", "Salt 2", edition="1 of 2")
    for width, shown in ((120, str(UUID(int=1))), (85, "00000000…0001")):
        assert shown in [*table_lines([rows], columns, width)][1][0]
    head, lines, below = table_lines([rows], columns, 70)
    assert "webhook" not in head[0]
    assert (len(lines), below) == (2, ["More columns with --wide: webhook."])


WINDOW = TableColumn("observed", "observed_at", "window", start="observed_after")


@pytest.mark.parametrize(
    ("after", "until", "whole", "short"),
    [
        ("2026-11-24T14:05:01.0Z", "2026-11-24T14:10:59.9Z", "2026-11-24 14:05–14:10", None),
        ("2026-11-24T14:05:01.0Z", "2026-11-24T14:05:59.9Z", "2026-11-24 14:05:01–59", None),
        ("2026-11-24T14:05:01.0Z", "2026-11-24T14:05:01.9Z", "2026-11-24 14:05:01", None),
        (None, "2026-11-24T14:10:59.9Z", "until 2026-11-24 14:10", None),
        (
            "2026-11-23T14:05:01.0Z",
            "2026-11-24T14:10:59.9Z",
            "2026-11-23 14:05–2026-11-24 14:10",
            "until 2026-11-24 14:10",
        ),
    ],
)
def test_a_window_is_shown_in_one_column_and_cut_to_its_end(after, until, whole, short):
    row = {"observed_after": after, "observed_at": until, "name": "x" * 50}
    columns = (WINDOW, TableColumn("name", "name"))
    head, (line,) = table_lines([[row]], columns, 100)
    assert head[0].startswith("observed (UTC)")
    assert line == f"{whole}  {'x' * 50}"
    _, (line,) = table_lines([[row]], columns, 46)
    assert line.startswith(f"{short or whole}  x")
    head, (line,) = table_lines([[row]], columns, None)
    assert head[0].split("  ")[:1] == ["observed (UTC)"]
    assert line.split()[:2] == [until, after or "–"]


def test_a_right_to_left_name_keeps_the_order_of_its_row():
    rows = held("حدائق الضوء #29", "Salt 2")
    for width in (60, 80, 120):
        text = "\n".join(chain(*table_lines([rows], HELD, width)))
        assert "\u2068حدائق الضوء #29\u2069" in text
        assert text.count("\u2068") == text.count("\u2069") == 1
        line = next(line for line in text.splitlines() if "حدائق" in line)
        other = next(line for line in text.splitlines() if "Salt 2" in line)
        assert cell_len(line.partition("1  Salt")[0]) == cell_len(other.partition("1  Salt")[0])
    assert "\u2068" not in "".join(chain(*table_lines([rows], HELD, None)))


@given(st.lists(ROWS, max_size=2))
def test_elsewhere_a_row_is_a_line_with_everything_whole(pages):
    _, *shown = table_lines(pages, COLUMNS, None)
    lines = [line for page in shown for line in page]
    rows = [row for page in pages for row in page]
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        assert all(visible(str(value)) in line for value in row.values() if value is not None)


DEFAULT = ("holdings", "changes", "transfers", "wallets", "collections", "inbox")
LISTINGS = (*DEFAULT, "find salt", "routes")


def test_each_listing_fits_the_terminal_and_wide_shows_all(site, command, monkeypatch):
    label = "The treasury of the organization, in cold storage since the very first day"
    command("wallets", "label", site.ids[0], label)
    site.world.transfer(site.ids[0], site.ids[1], site.held(site.ids[0])[0], "1")
    site.sync()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        fitting = "".join(command(*words.split()).says().out for words in LISTINGS)
        words = ("wallet", "observed", "on-chain id", "first day", "{resourceId}")
        assert all(word in fitting for word in words), width
        assert max(map(cell_len, fitting.splitlines())) <= width
        whole = command("holdings", "--wide").out
        assert all(wallet in whole for wallet in (label, *site.ids)), width
    monkeypatch.setenv("COLUMNS", "80")
    for words in DEFAULT:
        assert not re.search("^    ", command(words).out, re.MULTILINE), words


def in_terminal(width, *words, messages=False, **environ):
    """Run a command in a terminal, and return its output, also its messages if asked."""
    ours, theirs = open_terminal()
    termios.tcsetwinsize(theirs, (40, width))
    kept = {name: x for name, x in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
    environ = {**kept, "TERM": "xterm-256color", **environ}
    stderr = theirs if messages else None
    process = start_process(
        command_line(*words), stdin=theirs, stdout=theirs, stderr=stderr, env=environ
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 65_536):
            shown += part
    assert process.wait() == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_ids_have_no_separators_and_negative_numbers_have_a_minus_sign():
    columns = (TableColumn("run", "run", "key"), TableColumn("net", "net", "number"))
    rows = [{"run": 12345, "net": "-1234567.50"}, {"run": 12346, "net": None}]
    _, lines, *_ = table_lines([rows], columns, 80)
    assert [line.split() for line in lines] == [["12345", "−1,234,567.50"], ["12346", "–"]]
    _, lines = table_lines([rows], columns, None)
    assert lines[0].split() == ["12345", "-1234567.50"]


def test_removals_take_one_line_each_at_80_columns_and_notes_break_at_spaces(build):
    build.insert("contracts", contract="KT1", contract_address="KT1", given_name="Salt Harbours")
    for number in (1, 2, 3):
        build.wallet(number, label=f"Artist royalties {number}")
        build.token(number, contract_address="KT1" if number < 3 else None, name=f"Ferry {number}")
        build.balance(number, number, "1", 1)
        values = {"old_amount": "100", "new_amount": "3" if number == 1 else None, "emptied": 0}
        values |= {"held": 1, "observed_at": at(number), "read_at": at(number)}
        build.insert("removal_rows", wallet_no=number, token_no=number, **values)
    words = ("removals", "-d", build.close())
    table = in_terminal(80, *words).split("\n\n")[1]
    assert table.count("no longer listed") == 2
    assert not re.search("^    ", table, re.MULTILINE)
    assert max(map(cell_len, table.splitlines())) <= 80
    assert "More columns with --wide: observed." in table
    shown = in_terminal(40, *words, "--limit", 1, messages=True)
    assert "1 of 3 removals. Show all: --limit 0, or\n--json." in shown


def test_a_terminal_shows_states_in_color_unless_told_not_to(site, command):
    site.world.add_wallet()
    query(site.database, "UPDATE wallets SET status = 'failed' WHERE wallet_id = ?", site.ids[0])
    words = ("wallets", "-d", site.database)
    shown = in_terminal(80, *words)
    assert "\x1b[31mfailed\x1b[0m" in shown
    assert "\x1b[32mok\x1b[0m" in shown
    plain = re.sub(r"\x1b\[\d+m", "", shown)
    assert max(map(cell_len, plain.splitlines())) <= 80
    assert in_terminal(80, *words, NO_COLOR="1") == plain
    assert in_terminal(80, *words, TERM="dumb") == plain
    assert "\x1b" not in command(*words).out
