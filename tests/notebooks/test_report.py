"""The command `report`: its page, on a screen and on paper, and its errors."""

import json
import os
import re
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from nftsync import frames
from nftsync.notebooks.report import Report
from tests.kit.browser import Record, accessibility_problems, open_chromium
from tests.kit.database import Builder, at
from tests.kit.provider import Provider, reply
from tests.kit.readers import ENTRIES
from tests.kit.waiting import wait_until
from tests.kit.worlds import made_once
from tests.notebooks.hostile_world import CID
from tests.notebooks.worlds import columns_of, texts_of

_A4 = (794, 1123)  # in pixels of CSS
PRICES = """\
contract,token_id,date,price,currency,source
Tidal Almanac,,2020-01-01,120.50,EUR,appraisal
Kiln Tokens,,2020-01-01,0.000000000000000001,ETH,
"""


def _write(page: Path, *words: object, **variables: str) -> Path:
    """Write a report in a process of its own: a browser's event loop may run in this one."""
    command = [sys.executable, "-m", "nftsync", "report", page, *words]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    return page


@pytest.fixture(scope="session")
def page(demo: Path, shared: Path) -> Path:
    """The demo's report with values; its provider has stopped."""

    def make(folder: Path) -> None:
        prices = folder / "prices.csv"
        prices.write_text(PRICES)
        listed = frames.holdings(demo)[["wallet_id", "token_id", "amount"]]
        listed[1:].to_csv(folder / "audit.csv", index=False)
        words = ("-d", demo, "--title", "<b>Ours</b>", "--prices", prices)
        _write(folder / "report.html", *words, "--compare", folder / "audit.csv")

    return made_once(shared, "report", make) / "report.html"


def _tables(page: Path) -> list[dict[str, list[str]]]:
    return [*map(columns_of, re.findall("<table>.*?</table>", page.read_text(), re.DOTALL))]


#: The label and the text of each headline figure.
_FIGURE = r'class="nftsync-label"[^>]*>(.*?)</div>.*?class="nftsync-number"[^>]*><b[^>]*>(.*?)</b>'


def _number(text: str) -> int:
    return int(text.replace(",", "").replace("±", ""))


def test_the_page_is_private_and_has_all_sections_without_code(page):
    text = re.sub("<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "<h1><bdi>&lt;b&gt;Ours&lt;/b&gt;</bdi></h1>" in text
    assert re.findall("<h2>(.*?)</h2>", text) == [
        "Statement",
        "Largest collections",
        "Holdings",
        "Transfers",
        "Concentration",
        "Comparison",
        "Data quality",
        "Freshness and sources",
    ]
    for present in (
        "Wallets: 41.",
        *(">distinct tokens held</div>", ">pairs of wallet and NFT</div>"),
        ">sum of all amounts</div>",
        "797 NFTs are Tidal Almanac",
        "773 more NFTs. All holdings: <code>nftsync holdings --limit=0</code>",
        "A transfer between two of these wallets counts as received and as sent.",
        "largest holder share",
        "holdings agree with audit.csv; 1 differ: only here (1).",
        "All wallets were read without errors",
        "confirmed by reads before and after",
        "Written at ",
    ):
        assert present in text
    for absent in ("show_table(", "holdings have no price at", "nftsync collections label"):
        assert absent not in text
    assert not re.search("[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]", text)
    assert not re.search(r"\b(?:NaN|NaT|None)\b", "\n".join(texts_of(text)))
    assert len(re.findall(' src="data:image/', text)) == 24


def test_the_statement_adds_up_and_equals_the_figures(page, demo):
    by_count, by_amount = _tables(page)[:2]
    for table in (by_count, by_amount):
        columns = [[*map(_number, table[name])] for name in ENTRIES]
        for opening, initial, received, sent, closing in zip(*columns, strict=True):
            assert opening + initial + received - sent == closing
        assert [sum(values[:-1]) for values in columns] == [values[-1] for values in columns]
    held = frames.holdings(demo)
    held = held[held["amount"] > 0]
    assert _number(by_count["closing"][-1]) == len(held)
    assert _number(by_amount["closing"][-1]) == held["amount"].sum()
    figures = dict(re.findall(_FIGURE, page.read_text(), re.DOTALL))
    assert _number(figures["NFTs"]) == held["token_id"].nunique()
    assert _number(figures["holdings"]) == len(held)
    tidal = held.loc[held["collection"] == "Tidal Almanac", "amount"].sum()
    assert figures["value in EUR"] == f"{tidal * 241 / 2:,.2f}"
    assert figures["value in ETH"].startswith("0.000000000000000")


def test_transfers_with_and_without_both_sides_are_two_tables_newest_first(page, demo):
    between, others = (table for table in _tables(page) if "observed at" in table)
    assert "–" not in between["from"] + between["to"] + others["wallet"]
    assert set(others["kind"]) == {"received", "sent"}
    assert (len(between["NFT"]), len(others["NFT"])) == (15, 10)
    kinds = r"(\d+) between two wallets, (\d+) received, (\d+) sent"
    ((paired, received, sent),) = re.findall(kinds, page.read_text())
    for rest in (int(paired) - 15, int(received) + int(sent) - 10):
        assert f"{rest:,} more rows" in page.read_text()
    for table in (between, others):
        assert table["observed at"] == sorted(table["observed at"], reverse=True)
    newest = frames.transfers(demo).query("kind == 'transfer'").iloc[-1]
    assert between["NFT"][0] == newest["nft"]


def test_a_report_on_a_group_or_a_wallet_has_only_its_holdings(demo):
    house, treasury = Report(str(demo), group="house"), Report(str(demo), wallet="Treasury")
    assert list(house.statement()) == ["wallet", *ENTRIES]
    assert treasury.statement().columns[0] == "collection"
    assert set(house.holdings["wallet_group"]) == {"house"}
    assert set(treasury.holdings["wallet_label"]) == {"Treasury"}
    assert len(Report(str(demo)).holdings) > len(house.holdings) > len(treasury.holdings) > 0
    lines = house.growth().data
    assert lines[0]["y"][-1] == (house.holdings["amount"] > 0).sum()


@settings(max_examples=25, deadline=None)
@given(days=st.tuples(st.integers(0, 300), st.integers(0, 300)))
def test_the_statement_of_any_period_adds_up_with_its_small_groups_in_one_row(demo, days):
    start, end = f"{sum(days) + 1}d", f"{days[0]}d"
    report = Report(str(demo), start=start, end=end, wallet="Treasury")
    for frame in (report.statement(), report.statement("_amount")):
        sums = frame["opening"] + frame["initial"] + frame["received"] - frame["sent"]
        assert (sums == frame["closing"]).all()
        assert len(frame) <= 7
        for name in frame.columns[1:]:
            assert frame[name].iloc[:-1].sum() == frame[name].iloc[-1]


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["nowhere/report.html"], "the folder nowhere does not exist; create it first", 2),
        (["report.pdf"], "report.pdf is not an HTML file; name it report.html", 2),
        (["r.html", "--group", "nope"], "None of the 41 wallets is in group 'nope'", 2),
        (["r.html", "--wallet", "nope"], "'nope' is neither a wallet id", 2),
        (["r.html", "--wallet", f"{'0' * 8}-0000-4000-8000-{'0' * 12}"], "is unknown", 2),
        (["r.html", "--group", "house", "--wallet", "Treasury"], "not both", 2),
        (["r.html", "--prices", "bad.csv"], "bad.csv, line 2, column price", 2),
        (["r.html", "--compare", "bad.csv"], "bad.csv, line 2: names no token; give token_id", 2),
        (["r.html", "--from", "2026-02-02", "--to", "2026-01-01"], "is after end", 2),
        (["r.html", "-d", "none.db"], "none: there is no database at .*none.db", 1),
        (["r.html", "-d", "none.db", "--wallet", "Vault"], "--wallet needs one --database", 2),
    ],
)
def test_an_error_is_one_line_and_leaves_no_file(
    demo, small_database, tmp_path, command, words, text, code
):
    (tmp_path / "bad.csv").write_text("contract,date,price,currency\nKT1,2026-01-01,x,EUR\n")
    # A run of the notebook would stop the demo's provider while another test's report needs it.
    database = small_database if "--from" in words else demo
    done = command("report", "-d", database, *words).tells(code=code)
    assert re.search(text, done.err)
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_a_report_on_several_databases_has_one_after_the_other(tmp_path):
    words: list[object] = []
    for number, name in enumerate(("acme", "beta"), start=1):
        build = Builder(tmp_path / f"{name}.db")
        build.wallet(number, label=f"Vault of {name}", synced_at=at(0), status="ok")
        build.token(number)
        build.balance(number, number, "1")
        build.change(number, number, None, "1", 0)
        words += ["-d", build.close()]
    text = _write(tmp_path / "report.html", *words, "--title", "Ours").read_text()
    assert "<title>Ours: acme, beta</title>" in text
    assert re.findall("<h1><bdi>(.*?)</bdi>", text) == ["Ours: acme", "Ours: beta"]
    acme, beta = text.split("<h1>")[1:]
    for part, own, other in ((acme, "acme", "beta"), (beta, "beta", "acme")):
        assert f"Vault of {own}" in part
        assert f"Vault of {other}" not in part
        assert f"from {own}.db" in part


def test_a_failure_keeps_the_earlier_page_and_names_the_missing_package(
    demo, tmp_path, monkeypatch, command
):
    target = tmp_path / "report.html"
    target.write_text("earlier")
    monkeypatch.setattr("nftsync.extras.find_spec", lambda _: None)
    command("report", target, "-d", demo).tells("papermill; to install: ", code=1)
    assert target.read_text() == "earlier"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_chromium() as opened:
        yield opened


def _opened(record: Record, page: Path) -> Page:
    view = record.context.new_page()
    view.goto(page.as_uri())
    view.wait_for_selector(".js-plotly-plot .gtitle")
    return view


@pytest.fixture(scope="module")
def view(page: Path, browser: Browser) -> Iterator[Page]:
    """Open the page in a browser without a network; it makes no request and logs no error."""
    record = Record(browser, offline=True, color_scheme="dark")
    yield _opened(record, page)
    assert record.messages == []
    asked = [url for url in record.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert asked == []


def test_pictures_need_no_provider_and_on_a_phone_wide_tables_scroll_in_their_boxes(
    view,
):
    widths = view.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert (len(widths), min(widths) > 0) == (24, True)
    view.set_viewport_size({"width": 390, "height": 800})
    # A function that waits in the page would need eval, which the page's policy forbids.
    wait_until(lambda: view.evaluate("document.documentElement.scrollWidth") == 390)
    wide = "[...document.querySelectorAll('.nftsync-table')].some((x) => x.scrollWidth > 390)"
    assert view.evaluate(wide)
    fits = "(tables) => tables.map((table) => table.scrollWidth <= table.clientWidth)"
    statements = view.locator(".nftsync-total").evaluate_all(fits)[:2]
    assert statements == [True, True], "the closing balance is visible"
    by_keyboard = view.locator(".nftsync-table[tabindex='0'][role='region'][aria-label]")
    assert by_keyboard.count() == view.locator(".nftsync-table").count()


def test_the_values_of_the_chart_are_text_too(view, demo):
    assert view.get_by_role("figure", name="Chart: Holdings over time").count() == 1
    closing = Report(str(demo)).statement().set_index("group")["closing"]
    text = view.get_by_text(re.compile("^From 20.*customers from")).inner_text()
    assert f"to {closing['customers']:,}, house from" in text
    assert text.endswith(f"to {closing['house']:,}.")


def test_each_scheme_is_accessible_at_each_width(view):
    for scheme, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 19, 23)")):
        view.emulate_media(color_scheme=scheme)
        assert view.evaluate("getComputedStyle(document.body).backgroundColor") == color
        for width in (1440, 390):
            view.set_viewport_size({"width": width, "height": 900})
            assert accessibility_problems(view) == []


def test_on_paper_charts_fit_and_the_first_and_the_last_page_are_well_filled(view):
    view.emulate_media(media="print")
    view.set_viewport_size({"width": _A4[0] - 121, "height": _A4[1]})
    view.evaluate("layOut(true)")
    box = view.locator(".js-plotly-plot").bounding_box() or {}
    assert box["width"] <= _A4[0] - 121
    assert 330 <= box["height"] <= 480
    caption, heading = (
        view.locator(name).first.bounding_box() or {} for name in ("figcaption", "h2")
    )
    assert caption["y"] + caption["height"] <= heading["y"]
    first, last = view.evaluate("fills()")
    assert first > 0.8
    assert last > 0.5
    pdf = view.pdf(prefer_css_page_size=True)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 5
    view.evaluate("layOut(false)")
    view.emulate_media(media="screen")


_RUN = "document.title='ran'"
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4"/>'


def test_a_report_on_hostile_nfts_shows_their_pictures_and_runs_no_script_of_theirs(
    build, browser, tmp_path
):
    """Pictures of a gateway on plain http and of metadata; scripts that the policy names."""
    script = f"</script><script>{_RUN}</script><img src=x onerror={_RUN!r}>"
    build.wallet(1, label=script, synced_at="2026-01-01T00:00:00.000000Z", status="ok")
    pictures = [
        {"image": f"ipfs://{CID}/good.svg"},
        {"image": f"ipfs://{CID}/gone.svg"},
        {"image": f"{_SVG}<script>{_RUN}</script></svg>"},
        {"extra": json.dumps({"metadata": {"artifactUri": f"ipfs://{CID}/good.svg"}})},
    ]
    for number, picture in enumerate(pictures, start=1):
        build.token(number, name=f"{number} {script}", contract_address=script, **picture)
        build.balance(1, number, "1")
        build.change(1, number, None, "1", 1)
    with Provider() as gateway:
        good = reply(f"{_SVG}</svg>".encode(), content_type="image/svg+xml")
        gateway.on(f"/ipfs/{CID}/good.svg", good)
        words = (tmp_path / "report.html", "-d", build.close(), "--title", script)
        record = Record(browser)
        view = _opened(record, _write(*words, NFTSYNC_IPFS_GATEWAY=f"{gateway.url}/ipfs/"))
        wait_until(lambda: view.locator(".nftsync-pictures img").count() == 3)
        wait_until(lambda: view.evaluate("[...document.images].every((x) => x.naturalWidth > 0)"))
    assert view.get_by_text("The picture did not load.").count() == 3  # behind pictures
    assert view.get_by_text("nftsync collections label ADDRESS NAME").is_visible()
    assert view.get_by_text(re.compile(r"^No picture from 127\.0\.0\.1:\d+$")).count() == 1
    scripts = view.locator("script:not([type])").all_text_contents()
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    policy = view.locator("meta[http-equiv]").get_attribute("content") or ""
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert allowed["img-src"] == f"https: data: {gateway.url}"
    handlers = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    assert not [name for name in view.evaluate(handlers) if name.startswith("on")]
    attack = f"document.body.insertAdjacentHTML('beforeend', `<img src='x:' onerror={_RUN!r}>`)"
    view.evaluate(attack)
    view.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert view.title().startswith("</script><script>")
    assert record.dialogs == []
