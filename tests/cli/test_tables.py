"""Tables in a terminal: nothing is lost, and nothing broken, at any width."""

import re
import sys
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from nftsync.cli.tables import TableColumn, table_lines
from nftsync.text import visible

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
            assert row["time"][:19].replace("T", " ") in cells
        if row["amount"] is not None and len(row["amount"]) <= 24:
            assert row["amount"] in cells
        for word in (row["error"] or "").split():
            assert any(word in line for line in lines)


@given(WORDS, st.integers(60, 100))
def test_a_name_is_cut_after_a_whole_word(name, width):
    row = {"name": name, "webhook": str(UUID(int=1))}
    columns = (TableColumn("webhook", "webhook", "key"), TableColumn("name", "name"))
    shown = next(iter([*table_lines([[row]], columns, width)][1]))[38:].strip()
    if shown.endswith("…"):
        assert name.startswith(shown[:-1])
        assert name[len(shown) - 1] == " "
    else:
        assert shown == (name or "–")


@given(st.lists(ROWS, max_size=2))
def test_elsewhere_a_row_is_a_line_with_everything_whole(pages):
    _, *shown = table_lines(pages, COLUMNS, None)
    lines = [line for page in shown for line in page]
    rows = [row for page in pages for row in page]
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        assert all(visible(str(value)) in line for value in row.values() if value is not None)


LISTINGS = ("holdings", "changes", "wallets", "collections", "find salt", "inbox", "routes")


def test_each_listing_fits_the_terminal_and_wide_shows_all(site, command, monkeypatch):
    label = "The treasury of the organization, in cold storage since the very first day"
    command("wallets", "label", site.ids[0], label)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        fitting = "".join(command(*words.split()).says().out for words in LISTINGS)
        words = ("wallet", "observed (UTC)", "on-chain id", "The treasury", "{resourceId}")
        assert all(word in fitting for word in words), width
        assert max(map(cell_len, fitting.splitlines())) <= width
        whole = command("holdings", "--wide").out
        assert all(wallet in whole for wallet in (label, *site.ids)), width


def test_where_nothing_is_cut_one_long_text_makes_no_other_line_long():
    rows = [{"name": "x" * 1_000_000, "wallet_id": "a"}, *[{"name": "y", "wallet_id": "b"}] * 50]
    columns = [TableColumn("name", "name"), TableColumn("wallet", "wallet_id", "key")]
    (head, *pages) = table_lines([rows], columns, None)
    first, *others = pages[0]
    assert first.startswith("x" * 1_000_000)
    assert max(len(line) for line in (*head, *others)) < 100
