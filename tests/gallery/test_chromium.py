"""The gallery in Chromium: scripts, requests, and use by a person."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Locator, Page, expect

import nftsync
from nftsync.errors import NftsyncWarning
from nftsync.provider.images import Images
from tests.gallery.gallery_frames import HOSTILE_TEXTS, RUN, frame, hostile, many
from tests.kit.browser import Record, accessibility_problems, open_chromium
from tests.kit.provider import Provider, reply, token, wallet
from tests.notebooks.hostile_world import CID
from tests.provider.test_images import PROVIDER, addresses

Show: TypeAlias = Callable[[Any], Page]

#: The colors of a light and of a dark page.
COLORS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 19, 23)"}

_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"'
PICTURES = {
    "good.svg": f'{_SVG}><rect width="4" height="4"/></svg>',
    "scripted.svg": f'{_SVG} onload="{RUN}"><script>{RUN}</script>'
    '<image href="/from-svg.png" width="4" height="4"/></svg>',
    "page.png": f"<!doctype html><script>{RUN}</script>",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Return a provider of good pictures, and of a page instead of a picture."""
    with Provider() as running:
        for name, body in PICTURES.items():
            kind = "text/html" if name == "page.png" else "image/svg+xml"
            running.on(f"/art/{name}", reply(body.encode(), content_type=kind))
        yield running


@pytest.fixture
def record(chromium: Browser) -> Iterator[Record]:
    record = Record(chromium, viewport={"width": 1200, "height": 3000})
    yield record
    record.context.close()


@pytest.fixture
def opened(record: Record, tmp_path: Path) -> Show:
    def show(html: str) -> Page:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        page = record.context.new_page()
        page.goto(file.as_uri())
        return page

    return show


@pytest.fixture
def saved(opened: Show) -> Show:
    """Return a function that opens a gallery's file and waits for its data."""

    def show(gallery: Any) -> Page:
        page = opened(gallery.html)
        expect(page.locator("#status")).not_to_be_empty()
        return page

    return show


def names(page: Page) -> list[str]:
    return page.locator(".card h2").all_inner_texts()


def details(page: Page, number: int) -> Locator:
    page.get_by_role("button", name="Details").nth(number).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def status(page: Page, text: str) -> None:
    expect(page.locator("#status")).to_have_text(text)


def ran(page: Page, record: Record) -> list[str]:
    flags = [str(each.evaluate("window.ran")) for each in page.frames]
    said = [text for _, text, _ in record.messages if text == "ran"]
    return [flag for flag in flags if flag != "None"] + said + record.dialogs


def test_a_script_that_got_into_the_page_would_not_run(opened, record):
    """The policy alone blocks it; on other pages, it leaves its signs."""
    page = opened(f"<!doctype html><meta charset=utf-8><p>{HOSTILE_TEXTS[0]}</p>")
    assert ran(page, record) == ["1", "ran", "ran"]
    record.forget()
    attack = f"<script>{RUN}</script><img src=x onerror={RUN!r}><style>body{{color:red}}</style>"
    page = opened(nftsync.gallery(many(1)).html.replace("<main>", f"<main>{attack}"))
    expect(page.locator(".card")).to_have_count(1)
    assert ran(page, record) == []
    assert sum("Content Security Policy" in text for _, text, _ in record.messages) >= 3
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


def test_hostile_metadata_runs_nothing_makes_no_other_request_and_fits_any_width(
    saved, record, provider
):
    title = HOSTILE_TEXTS[1] + "W" * 150
    page = saved(nftsync.gallery(hostile(), title=title, base_url=provider.url))
    expect(page.locator("h1")).to_have_text(title)
    for width in (320, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dialog = details(page, HOSTILE_TEXTS.index("x" * 100_000))
        for part in (dialog, dialog.locator(".beside"), dialog.locator(".stage")):
            assert part.evaluate("(one) => one.scrollWidth <= one.clientWidth")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
    details(page, 0)
    for _ in HOSTILE_TEXTS[1:]:
        page.get_by_role("button", name="Next NFT").click()
    expect(page.get_by_role("button", name="Next NFT")).to_be_disabled()
    page.get_by_role("button", name="Close").click()
    page.locator("#search").fill("script")
    page.locator("#sort").select_option("name")
    expect(page.locator(".card")).not_to_have_count(len(HOSTILE_TEXTS))
    page.locator("#search").fill("")
    expect(page.locator(".card")).to_have_count(len(HOSTILE_TEXTS))
    assert ran(page, record) == []
    assert {urlsplit(url).netloc for url in record.requests} <= {"", "images.invalid", "ipfs.io"}
    assert record.errors([r"ERR_NAME_NOT_RESOLVED"]) == []
    assert page.locator("iframe, object, embed, a, form, svg, base, link").count() == 0
    live = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    assert [name for name in page.evaluate(live) if name.startswith("on")] == []


_READ = """(urls) => urls.map((url) => {
  const image = document.createElement('img');
  image.setAttribute('src', url);
  try { const read = new URL(url); return [read.origin, read.username, image.src === read.href] }
  catch { return null }
})"""


@settings(max_examples=30)
@given(st.lists(addresses, min_size=10))
def test_chromium_reads_each_allowed_address_as_https_or_as_the_providers_origin(record, texts):
    page = (record.context.pages or [record.context.new_page()])[0]
    urls = [Images(provider=PROVIDER).at(text).url for text in texts]
    shown = [url for url in urls if url is not None and not url.startswith("data:")]
    for url, read in zip(shown, page.evaluate(_READ, shown), strict=True):
        if read is None:
            # A label that is not valid punycode: Chromium loads nothing.
            assert "xn--" in url
            continue
        assert read[0].startswith("https://") or read[0] == "http://127.0.0.1:8788"
        assert read[1:] == ["", True]


def test_images_load_or_show_a_reason(saved, record, provider):
    base, host = f"{provider.url}/art", urlsplit(provider.url).netloc
    failed = "Image did not load no image from"
    images = {
        "good": (f"{base}/good.svg", ""),
        "404": (f"{base}/missing.png", f"{failed} {host}"),
        "page": (f"{base}/page.png", f"{failed} {host}"),
        "scripted": (f"{base}/scripted.svg", ""),
        "refused": ("javascript:alert(1)", "Image not shown javascript: is not allowed"),
        "elsewhere": (
            "http://127.0.0.1:9/x.png",
            "Image not shown http: is allowed only from the provider",
        ),
        "none": (None, "No image"),
        "blank": (" ", "No image"),
        "gone": ("https://images.invalid/x.png", f"{failed} images.invalid"),
        "ipfs": (f"ipfs://{CID}/a b.png", f"{failed} ipfs.io"),
        "on the chain": (PICTURES["scripted.svg"], ""),
        "data": (f"data:image/svg+xml;utf8,{PICTURES['good.svg']}", ""),
        "damaged": ("data:image/png;base64,AAAA", "Image did not load damaged image"),
    }
    rows = [{"name": name, "image": image} for name, (image, _) in images.items()]
    page = saved(nftsync.gallery(frame(rows), base_url=provider.url))
    page.evaluate("document.querySelectorAll('img').forEach((image) => image.loading = 'eager')")
    expect(page.locator(".missing")).to_have_count(9)
    for image in page.locator("img").all():
        expect(image).to_have_js_property("complete", value=True)
    said = [" ".join(text.split()) for text in page.locator(".picture").all_inner_texts()]
    assert dict(zip(names(page), said, strict=True)) == {
        name: text for name, (_, text) in images.items()
    }
    assert ran(page, record) == []
    asked = sorted(seen.path.removeprefix("/art/") for seen in provider.requests())
    assert asked == ["good.svg", "missing.png", "page.png", "scripted.svg"]
    assert f"https://ipfs.io/ipfs/{CID}/a%20b.png" in record.requests
    assert all("referer" not in seen.headers for seen in provider.requests())
    assert page.locator("img").count() == 4
    assert page.locator('img[referrerpolicy="no-referrer"][decoding="async"]').count() == 4


def test_a_page_with_embedded_images_shows_them_and_requests_nothing(
    opened, record, provider, tmp_path
):
    shown = {
        f"{provider.url}/art/good.svg": "",
        f"{provider.url}/art/page.png": "Image not embedded not an image but text/html",
        f"{provider.url}/art/scripted.svg": "",
        "file:///x": "Image not embedded file: is not allowed",
        None: "No image",
    }
    rows = [{"image": image} for image in [*shown, *shown]]
    gallery = nftsync.gallery(frame(rows), base_url=provider.url, pictures_first=False)
    with pytest.warns(NftsyncWarning, match="^4 of 8 images not embedded; the first: not an image"):
        saved = gallery.save(tmp_path / "saved.html", embed=True).read_text()
    assert provider.attempts() == {f"/art/{name}": 1 for name in PICTURES}
    assert provider.url in gallery.html
    assert provider.url not in saved
    assert "img-src data:;" in saved
    assert "Not embedded: 4 of 8 images. Their cards say why." in saved
    page = opened(saved)
    expect(page.locator(".missing")).to_have_count(6)
    said = [" ".join(text.split()) for text in page.locator(".picture").all_inner_texts()]
    assert said == [*shown.values()] * 2
    for image in page.locator("img").all():
        expect(image).to_have_js_property("complete", value=True)
        assert image.evaluate("(one) => one.naturalWidth") > 0
    assert [url for url in record.requests if not url.startswith(("file:", "data:image/"))] == []
    assert len(provider.requests()) == len(PICTURES)
    assert ran(page, record) == record.errors() == []


def test_images_off_the_page_or_far_below_wait_and_say_so_without_a_network(
    saved, record, provider
):
    rows = [{"image": f"{provider.url}/art/good.svg?{number}"} for number in range(501)]
    page = saved(nftsync.gallery(frame(rows), base_url=provider.url, page_size=500))
    expect(page.locator("img").first).to_have_js_property("complete", value=True)
    assert len(provider.requests()) < 300
    page.locator("img").last.scroll_into_view_if_needed()
    expect(page.locator("img").last).to_have_js_property("complete", value=True)
    record.context.set_offline(True)
    page.get_by_role("button", name="Last page").click()
    expect(page.locator(".missing")).to_contain_text("you are offline")


#: The NFT of `collection` without a name.
UNNAMED = f"0xabcd…0000 {token(3)[:8]}…{token(3)[-4:]}"


def collection() -> pd.DataFrame:
    rows = [
        {"name": "Piece 10", "creator_name": "Ada", "amount_text": "11", "wallet_label": "Vault"},
        {"name": "Piece 9", "creator_name": "Bo", "amount_text": str(2**255), "edition_id": 0},
        {"name": "piece 2", "creator_name": "Ada", "amount_text": "0010", "edition_id": 12},
        {"name": None, "amount_text": str(2**255 + 1), "contract_address": "0xAbCd" + "0" * 36},
        {"name": "Ünïcode", "amount_text": "1.5", "total_edition": 7},
    ]
    held = pd.to_datetime(["2026-01-05", None, "2025-01-01", "2026-01-04", None], utc=True)
    return frame(rows).assign(held_since=held)


def test_the_gallery_is_accessible_also_with_filters_and_one_nft_open(saved):
    page = saved(nftsync.gallery(collection()))
    page.locator("#filter").wait_for()
    for width, close in ((1440, "#filter"), (390, "#done")):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in COLORS:
            page.emulate_media(color_scheme=scheme)
            if page.locator("#filters").is_hidden():
                page.locator("#filter").click()
            assert accessibility_problems(page) == []
            page.locator(close).click()
            assert accessibility_problems(page) == []
            dialog = details(page, 0)
            assert accessibility_problems(page) == []
            page.keyboard.press("Escape")
            expect(dialog).to_be_hidden()


def test_search_covers_names_creators_contracts_wallets_and_ids_and_sorting_is_exact(saved):
    """Amounts above 2**53 are distinct, numbers in names are numbers, missing values are last."""
    page = saved(nftsync.gallery(collection()))
    listed = ["Piece 10", "Piece 9", "piece 2", UNNAMED, "Ünïcode"]
    for by, ascending, descending in (
        ("name", "43215", "51234"),
        ("amount", "31245", "42135"),
        ("edition", "23145", "32145"),
        ("held", "34125", "14325"),
        ("", "12345", "54321"),
    ):
        page.locator("#sort").select_option(by)
        assert names(page) == [listed[int(place) - 1] for place in ascending]
        page.get_by_role("button", name="Descending").click()
        assert names(page) == [listed[int(place) - 1] for place in descending]
        page.get_by_role("button", name="Descending").click()
    for words, found in {
        "piece": listed[:3],
        "ADA": ["Piece 10", "piece 2"],
        "ada 10": ["Piece 10"],
        "vault": ["Piece 10"],
        "0xabcd": [UNNAMED],
        "ünï": ["Ünïcode"],
        token(1): ["Piece 9"],
        "nothing of the kind": [],
    }.items():
        page.locator("#search").fill(words)
        assert names(page) == found
    expect(page.locator("#nothing")).to_be_visible()
    status(page, "0 of 5 NFTs")


def test_ten_thousand_nfts_and_their_filters_leave_the_document_small(saved):
    page = saved(nftsync.gallery(many(10_000).assign(wallet_label=None)))
    status(page, "10,000 holdings, 1 to 60 shown")
    page.get_by_role("button", name="Next page").click()
    assert names(page)[0] == "Piece 60"
    page.get_by_role("button", name="Last page").click()
    expect(page.locator("#place")).to_have_text("167 of 167")
    assert names(page) == [f"Piece {number}" for number in range(9_960, 10_000)]
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.locator("#search").fill("piece 9998")
    status(page, "1 of 10,000 holdings, 1 to 1 shown")
    page.locator("#search").fill("piece")
    status(page, "10,000 holdings, 1 to 60 shown")
    page.get_by_role("button", name="Filter").click()
    wallets = page.locator("details").filter(has_text="Wallet")
    expect(wallets.locator(".option")).to_have_count(8)
    assert page.evaluate("document.querySelectorAll('*').length") < 60 * 50
    search = page.get_by_role("searchbox", name="Search Wallet")
    expect(search).to_have_attribute("placeholder", "Search all 50")
    search.fill(wallet(49))
    wallets.locator(".option input").check()
    status(page, "200 of 10,000 holdings, 1 to 60 shown")
    search.fill("")
    expect(wallets.locator(".option")).to_have_count(9)
    expect(wallets.locator("input:checked")).to_have_count(1)


def test_a_card_shows_its_holding_and_only_useful_orders_are_offered(saved):
    number, holder = str(2**200), "11111111-2222-4333-8444-555555555555"
    row = {
        "name": "Moon",
        "amount_text": str(2**256 - 1),
        "edition_id": 0,
        "total_edition": 100,
        "contract_address": "0x" + "ab" * 20,
        "wallet_id": holder,
        "held_since": pd.Timestamp("2026-03-01T10:11:12.5", tz="UTC"),
    }
    unnamed = {**row, "edition_id": 3, "amount_text": "1", "wallet_label": "V", "name": None}
    page = saved(nftsync.gallery(frame([row, {**unnamed, "blockchain_token_id": number}])))
    assert names(page) == ["Moon", f"0xabab…abab #{number[:8]}…{number[-4:]}"]
    offered = page.locator("#sort option").all_text_contents()
    orders = "pictures first, name, collection, wallet, edition, amount, held since"
    assert ", ".join(offered) == orders
    first, second = (page.locator(".card").nth(place) for place in (0, 1))
    assert first.locator(".line").all_inner_texts() == [
        *(f"×{2**256 - 1}", "0xabab…abab", "11111111…5555"),
        "seen since 2026-03-01",
    ]
    assert second.locator(".line").all_inner_texts()[0] == "edition 3 of 100"
    assert second.get_by_title(holder).inner_text() == "V"
    height = first.bounding_box()
    dialog = details(page, 0)
    assert "2026-03-01 10:11:12 UTC" in dialog.locator("dd").all_inner_texts()
    assert first.bounding_box() == height


def test_the_keyboard_reaches_everything_and_walks_through_large_pictures(saved, record, provider):
    """Also beyond the page's end; on closing, the focus returns."""
    good = f"{provider.url}/art/good.svg"
    rows = [{"name": f"Piece {one}", "collection": one, "image": good} for one in "012"]
    gallery = nftsync.gallery(frame([*rows, {"name": "Other"}]), base_url=provider.url, page_size=2)
    page = saved(gallery)
    expect(page.get_by_role("status")).to_have_text("4 NFTs, 1 to 2 shown")
    assert page.get_by_role("list", name="NFTs").get_by_role("listitem").count() == 2
    for reached in (
        "Search names, creators, collections, wallets and ids",
        *("Filter", "Sort by", "Descending", "Next page", "Last page"),
        *("Details: Piece 0", "Details: Piece 1"),
    ):
        page.keyboard.press("Tab")
        element = "document.activeElement"
        assert page.evaluate(f"{element}.ariaLabel ?? {element}.innerText") == reached

    def shows(number: int) -> Locator:
        dialog = page.get_by_role("dialog", name=f"Piece {number}")
        expect(dialog).to_be_visible()
        return dialog

    page.locator("#search").fill("piece")
    area = page.locator(".picture").nth(1).bounding_box() or {}
    page.mouse.click(area["x"] + 5, area["y"] + 5)
    image = shows(1).locator("img")
    expect(image).to_have_js_property("complete", value=True)
    expect(image).to_have_attribute("referrerpolicy", "no-referrer")
    assert (image.bounding_box() or {})["width"] > 2 * area["width"]
    page.keyboard.press("ArrowRight")
    shows(2)
    page.keyboard.press("ArrowRight")
    shows(2)
    page.get_by_role("button", name="Previous NFT").click()
    page.keyboard.press("ArrowLeft")
    shows(0)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.evaluate("document.activeElement.ariaLabel") == "Details: Piece 1"
    page.keyboard.press("Enter")
    shows(1)
    page.mouse.click(2, 2)
    expect(page.get_by_role("dialog")).to_be_hidden()
    asked = {urlsplit(url).path for url in record.requests if url.startswith("http")}
    assert asked == {"/art/good.svg"}
    assert record.errors() == []


def test_in_a_trusted_notebook_a_frame_without_origin_replaces_the_table(saved, opened):
    """It counts all holdings, and has JupyterLab's theme; a saved page has the system's."""
    equal = {"creator_name": "a", "collection": "b"}
    rows = [{"name": "odd" if number % 2 else "even", **equal} for number in range(1_234)]
    gallery = nftsync.gallery(frame(rows), limit=100)
    lab = opened(f"<!doctype html><meta charset=utf-8><body>{gallery._repr_html_()}")
    expect(lab.frame_locator("iframe").locator("#status")).not_to_be_empty()
    expect(lab.get_by_role("table")).to_be_hidden()
    expect(lab.locator("iframe")).to_be_visible()
    inside = lab.frames[-1]
    assert inside.evaluate("window.origin") == "null"
    reach = "(() => { try { parent.document; return 1 } catch { return 0 } })()"
    assert inside.evaluate(reach) == 0
    for words, told in (
        ("", "The first 100 of 1,234 NFTs, 1 to 60 shown"),
        ("odd", "50 of the first 100 of 1,234 NFTs, 1 to 50 shown"),
        ("nothing", "0 of the first 100 of 1,234 NFTs"),
    ):
        inside.locator("#search").fill(words)
        expect(inside.locator("#status")).to_have_text(told)
    expect(inside.locator("#filter")).to_be_hidden()
    system = saved(gallery)
    for scheme, color in COLORS.items():
        system.emulate_media(color_scheme=scheme)
        expect(system.locator("body")).to_have_css("background-color", color)
        lab.evaluate(f"document.body.dataset.jpThemeLight = '{scheme == 'light'}'.toLowerCase()")
        expect(inside.locator("body")).to_have_css("background-color", color)


@pytest.fixture(scope="module")
def faceted() -> Any:
    """30 holdings: Moons in two wallets, Suns in one; hostile and numbered traits."""
    rows = [
        {
            "name": f"{'Moon' if number % 3 else 'Sun'} {number}",
            "collection": "Moons" if number % 3 else "Suns",
            "contract_address": "0x" + ("Aa" if number % 2 else "aa") * 20
            if number % 3
            else "0x" + "bb" * 20,
            "wallet_id": wallet(number % 2),
            "wallet_label": "Vault",
            "wallet_group": "house" if number < 20 else None,
        }
        for number in range(30)
    ]
    holdings = frame(rows)
    holdings.attrs["hidden"] = 1_234
    traits = [
        (token(number), kind, value)
        for number in range(30)
        for kind, value in (("Phase", "Full" if number < 10 else "New"), (None, HOSTILE_TEXTS[0]))
        if number % 3
    ]
    return nftsync.gallery(
        holdings, traits=pd.DataFrame(traits, columns=["token_id", "trait_type", "value"])
    )


def options(page: Page, title: str) -> list[str]:
    part = page.locator("details", has=page.locator("summary").get_by_text(title, exact=True))
    part.evaluate("(one) => { one.open = true; }")
    return [" ".join(text.split()) for text in part.locator(".option").all_inner_texts()]


def pick(page: Page, label: str) -> None:
    page.locator(".option").filter(has_text=label).locator("input").first.click()


def test_filters_count_what_the_search_and_the_other_filters_leave(saved, faceted, record):
    page = saved(faceted)
    hidden = "; 1,234 hidden holdings are left out"
    status(page, f"30 holdings, 1 to 30 shown{hidden}")
    page.get_by_role("button", name="Filter").click()
    # A contract has one spelling; wallets with one label show their ids.
    assert options(page, "Collection") == ["Moons 20", "Suns 10"]
    assert options(page, "Wallet") == ["Vault (0000000a…0000) 15", "Vault (0000000a…0001) 15"]
    assert options(page, "Group") == ["house 20"]
    assert options(page, "Phase") == ["New 14", "Full 6"]
    (scripted,) = options(page, "Other")
    assert scripted.startswith("<script>")
    pick(page, "Full")
    assert options(page, "Collection") == ["Moons 6"]
    assert options(page, "Phase") == ["New 14", "Full 6"]
    pick(page, "Moons")
    assert names(page) == [f"Moon {number}" for number in (1, 2, 4, 5, 7, 8)]
    page.locator("#search").fill("5")
    assert names(page) == ["Moon 5"]
    page.locator("#search").fill("")
    pick(page, "New")
    status(page, f"20 of 30 holdings, 1 to 20 shown{hidden}")
    expect(page.get_by_role("button", name="Filter (3)")).to_be_visible()
    page.get_by_role("button", name="Remove Phase: Full").click()
    status(page, f"14 of 30 holdings, 1 to 14 shown{hidden}")
    page.get_by_role("button", name="Clear all").click()
    status(page, f"30 holdings, 1 to 30 shown{hidden}")
    # The keyboard filters and keeps its place.
    page.locator(".option input").first.focus()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Filters")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.press("Enter")
    page.locator(".option input").first.focus()
    for shown in ("20 of 30 holdings, 1 to 20", "30 holdings, 1 to 30"):
        page.keyboard.press("Space")
        status(page, f"{shown} shown{hidden}")
        focused = page.evaluate("document.activeElement.parentElement.innerText")
        assert focused.split() == ["Moons", "20"]
    assert ran(page, record) == record.errors() == []


def test_on_a_phone_the_filters_cover_the_page_until_they_are_done(saved, faceted):
    page = saved(faceted)
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Filter").click()
    filters = page.get_by_role("complementary", name="Filters")
    for scheme, color in COLORS.items():
        page.emulate_media(color_scheme=scheme)
        expect(filters).to_have_css("background-color", color)
    assert filters.bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
    expect(page.locator("#search")).not_to_be_focused()
    assert page.evaluate("document.querySelector('.bar').inert")
    pick(page, "Suns")
    page.get_by_role("button", name="Show 10 holdings").click()
    expect(filters).to_be_hidden()
    expect(page.get_by_role("button", name="Remove Collection: Suns")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.evaluate("document.querySelector('.bar').inert")
