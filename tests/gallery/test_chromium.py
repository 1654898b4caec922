"""The gallery in Chromium: scripts, requests, and use by a person."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import pandas as pd
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import nftsync
from nftsync.errors import NftsyncWarning
from tests.gallery.gallery_frames import CID, HOSTILE_TEXTS, RUN, frame, hostile, many, uuid
from tests.kit.browser import PATIENCE, Record, accessibility_problems
from tests.kit.database import Builder
from tests.kit.provider import Provider, reply

Gallery: TypeAlias = Any
Show = Callable[[Gallery], Page]

#: The colors of a light and of a dark page.
COLORS: dict[Literal["light", "dark"], str] = {
    "light": "rgb(255, 255, 255)",
    "dark": "rgb(17, 19, 23)",
}

_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"'
PICTURES = {
    "good.svg": f'{_SVG}><rect width="4" height="4"/></svg>',
    "scripted.svg": f'{_SVG} onload="{RUN}"><script>{RUN}</script>'
    '<image href="/from-svg.png" width="4" height="4"/></svg>',
    "page.png": f"<!doctype html><script>{RUN}</script>",
}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """Return a provider of good pictures, and of a page instead of a picture."""
    with Provider() as running:
        for name, body in PICTURES.items():
            kind = "text/html" if name == "page.png" else "image/svg+xml"
            running.on(f"/art/{name}", reply(body.encode(), content_type=kind))
        yield running


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1200, "height": 3000}, color_scheme="null")
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def record(context: BrowserContext) -> Record:
    return Record(context)


@pytest.fixture
def opened(context: BrowserContext, record: Record, tmp_path: Path) -> Callable[[str], Page]:
    """Return a function that opens a page."""

    def show(html: str) -> Page:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.goto(file.as_uri(), wait_until="commit")
        return page

    return show


@pytest.fixture
def saved(opened: Callable[[str], Page]) -> Show:
    """Return a function that opens a gallery's file and waits for its data."""

    def show(gallery: Gallery) -> Page:
        page = opened(gallery.html)
        expect(page.locator("#status")).not_to_be_empty()
        return page

    return show


def output(opened: Callable[[str], Page], gallery: Gallery) -> Page:
    """Show a gallery as a trusted notebook does."""
    page = opened(f"<!doctype html><meta charset=utf-8><body>{gallery._repr_html_()}")
    expect(page.frame_locator("iframe").locator("#status")).not_to_be_empty()
    return page


def names(page: Page) -> list[str]:
    return page.locator(".card h2").all_inner_texts()


def details(page: Page, number: int) -> Locator:
    """Open the details of a card."""
    page.get_by_role("button", name="Details").nth(number).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


# Scripts --------------------------------------------------------------------------------------


def ran(page: Page, record: Record) -> list[str]:
    """Return all signs of a script that ran."""
    flags = [str(each.evaluate("window.ran")) for each in page.frames]
    said = [text for _, text, _ in record.messages if text == "ran"]
    return [flag for flag in flags if flag != "None"] + said + record.dialogs


def test_a_script_that_runs_leaves_its_signs(opened, record):
    page = opened(f"<!doctype html><meta charset=utf-8><p>{HOSTILE_TEXTS[0]}</p>")
    page.wait_for_load_state()
    assert ran(page, record) == ["1", "ran", "ran"]


def test_hostile_metadata_runs_nothing_and_makes_no_other_request(saved, record, provider):
    title = HOSTILE_TEXTS[1] + HOSTILE_TEXTS[2]
    gallery = nftsync.gallery(hostile(), title=title, base_url=provider.url)
    page = saved(gallery)
    expect(page.locator(".card")).to_have_count(len(HOSTILE_TEXTS))
    page.get_by_role("button", name="Details").first.click()
    for _ in HOSTILE_TEXTS[1:]:
        page.get_by_role("button", name="Next NFT").click()
    expect(page.get_by_role("button", name="Next NFT")).to_be_disabled()
    page.get_by_role("button", name="Close").click()
    page.locator("#search").fill("script")
    page.locator("#sort").select_option("name")
    expect(page.locator(".card")).not_to_have_count(len(HOSTILE_TEXTS))
    page.locator("#search").fill("")
    expect(page.locator("h1")).to_have_text(title)
    assert ran(page, record) == []
    hosts = {urlsplit(url).netloc for url in record.requests}
    assert hosts <= {"", "images.invalid"}
    assert record.errors([r"ERR_NAME_NOT_RESOLVED"]) == []
    assert page.locator("iframe, object, embed, a, form, svg, base, link").count() == 0
    live = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    assert [name for name in page.evaluate(live) if name.startswith("on")] == []


def test_a_script_that_got_into_the_page_would_still_not_run(opened, record):
    """The policy alone blocks it."""
    attack = f"<script>{RUN}</script><img src=x onerror={RUN!r}><style>body{{color:red}}</style>"
    page = opened(nftsync.gallery(many(1)).html.replace("<main>", f"<main>{attack}"))
    page.wait_for_load_state()
    expect(page.locator(".card")).to_have_count(1)
    assert ran(page, record) == []
    assert sum("Content Security Policy" in text for _, text, _ in record.messages) >= 3
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


# Images ---------------------------------------------------------------------------------------


def test_images_load_or_show_a_reason(saved, record, provider):
    provider.seen.clear()
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
    context, record, provider, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    images = {"good.svg": "", "scripted.svg": "", "page.png": "not an image but text/html"}
    rows = [{"name": name, "image": f"{provider.url}/art/{name}"} for name in images]
    gallery = nftsync.gallery(frame(rows), base_url=provider.url)
    with pytest.warns(NftsyncWarning, match="1 of 3 images not embedded; the first: not an image"):
        path = gallery.save(tmp_path / "page.html", embed=True)
    provider.seen.clear()
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.locator(".missing")).to_have_text(f"Image not embedded{images['page.png']}")
    for image in page.locator("img").all():
        expect(image).to_have_js_property("complete", value=True)
        assert image.evaluate("(one) => one.naturalWidth") > 0
    assert page.locator("img").count() == 2
    assert [url for url in record.requests if not url.startswith(("file:", "data:image/"))] == []
    assert provider.requests() == []
    assert ran(page, record) == []
    assert record.errors() == []


def test_images_off_the_page_or_far_below_wait_and_say_so_without_a_network(chromium, tmp_path):
    with Provider() as server:
        server.always(reply(PICTURES["good.svg"].encode(), content_type="image/svg+xml"))
        rows = [{"image": f"{server.url}/{number}.svg"} for number in range(301)]
        gallery = nftsync.gallery(frame(rows), base_url=server.url, page_size=300)
        page = chromium.new_page(viewport={"width": 800, "height": 500})
        page.goto(gallery.save(tmp_path / "gallery.html").as_uri())
        expect(page.locator("img").first).to_have_js_property("complete", value=True)
        assert len(server.requests()) < 100
        page.locator("img").last.scroll_into_view_if_needed()
        expect(page.locator("img").last).to_have_js_property("complete", value=True)
        page.context.set_offline(True)
        page.get_by_role("button", name="Last page").click()
        expect(page.locator(".missing")).to_contain_text("you are offline")
        page.close()


# Use by a person ------------------------------------------------------------------------------


#: The NFT of `collection` without a name.
UNNAMED = f"0xabcd…0000 {uuid(3)[:8]}…{uuid(3)[-4:]}"


@pytest.fixture(scope="module")
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


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_gallery_is_accessible_also_with_filters_and_one_nft_open(
    saved, collection, width, scheme
):
    page = saved(nftsync.gallery(collection))
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.locator("#filter").wait_for()
    if page.locator("#filters").is_hidden():
        page.locator("#filter").click()
    assert accessibility_problems(page) == []
    page.locator("#done" if width == 390 else "#filter").click()
    assert accessibility_problems(page) == []
    details(page, 0)
    assert accessibility_problems(page) == []


def test_search_covers_names_creators_contracts_wallets_and_ids(saved, collection):
    page = saved(nftsync.gallery(collection))
    for words, found in {
        "piece": ["Piece 10", "Piece 9", "piece 2"],
        "ADA": ["Piece 10", "piece 2"],
        "ada 10": ["Piece 10"],
        "vault": ["Piece 10"],
        "0xabcd": [UNNAMED],
        "ünï": ["Ünïcode"],
        collection["token_id"][1]: ["Piece 9"],
        "nothing of the kind": [],
    }.items():
        page.locator("#search").fill(words)
        assert names(page) == found
    expect(page.locator("#nothing")).to_be_visible()
    expect(page.locator("#status")).to_have_text("0 of 5 NFTs")


def test_sorting_is_exact_with_missing_values_last(saved, collection):
    """Amounts above 2**53 are distinct, and numbers in names are numbers."""
    page = saved(nftsync.gallery(collection.assign(name=["b10", "A2", "b9", None, "c"])))
    place = {"b10": "1", "A2": "2", "b9": "3", UNNAMED: "4", "c": "5"}

    def order() -> str:
        return " ".join(place[name] for name in names(page))

    for by, ascending, descending in (
        ("name", "4 2 3 1 5", "5 1 3 2 4"),
        ("amount", "3 1 2 4 5", "4 2 1 3 5"),
        ("edition", "2 3 1 4 5", "3 2 1 4 5"),
        ("held", "3 4 1 2 5", "1 4 3 2 5"),
        ("", "1 2 3 4 5", "5 4 3 2 1"),
    ):
        page.locator("#sort").select_option(by)
        assert order() == ascending
        page.get_by_role("button", name="Descending").click()
        assert order() == descending
        page.get_by_role("button", name="Descending").click()


def test_ten_thousand_nfts_leave_the_document_small(saved):
    page = saved(nftsync.gallery(many(10_000)))
    expect(page.locator("#status")).to_have_text("10,000 holdings, 1 to 60 shown")
    page.get_by_role("button", name="Next page").click()
    assert names(page)[0] == "Piece 60"
    page.get_by_role("button", name="Last page").click()
    expect(page.locator("#place")).to_have_text("167 of 167")
    assert names(page) == [f"Piece {number}" for number in range(9_960, 10_000)]
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    page.locator("#search").fill("piece 9998")
    expect(page.locator("#status")).to_have_text("1 of 10,000 holdings, 1 to 1 shown")
    page.locator("#search").fill("piece")
    expect(page.locator("#status")).to_have_text("10,000 holdings, 1 to 60 shown")
    assert page.evaluate("document.querySelectorAll('*').length") < 60 * 50


def test_a_card_shows_its_holding_and_only_useful_orders_are_offered(saved):
    number, wallet = str(2**200), "11111111-2222-4333-8444-555555555555"
    row = {
        "name": "Moon",
        "amount_text": str(2**256 - 1),
        "edition_id": 0,
        "total_edition": 100,
        "contract_address": "0x" + "ab" * 20,
        "wallet_id": wallet,
        "held_since": pd.Timestamp("2026-03-01T10:11:12.5", tz="UTC"),
    }
    unnamed = {**row, "edition_id": 3, "amount_text": "1", "wallet_label": "V", "name": None}
    page = saved(nftsync.gallery(frame([row, {**unnamed, "blockchain_token_id": number}])))
    assert names(page) == ["Moon", f"0xabab…abab #{number[:8]}…{number[-4:]}"]
    offered = page.locator("#sort option").all_text_contents()
    assert (
        ", ".join(offered)
        == "pictures first, name, collection, wallet, edition, amount, held since"
    )
    first, second = (page.locator(".card").nth(place) for place in (0, 1))
    assert first.locator(".line").all_inner_texts() == [
        *(f"×{2**256 - 1}", "0xabab…abab", "11111111…5555"),
        "seen since 2026-03-01",
    ]
    assert second.locator(".line").all_inner_texts()[0] == "edition 3 of 100"
    assert second.get_by_title(wallet).inner_text() == "V"
    height = first.bounding_box()
    dialog = details(page, 0)
    assert "2026-03-01 10:11:12 UTC" in dialog.locator("dd").all_inner_texts()
    assert first.bounding_box() == height


def test_the_keyboard_reaches_everything_in_order(saved):
    page = saved(nftsync.gallery(many(5), page_size=2))
    expect(page.locator(".card")).to_have_count(2)
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText")
        )
    search = "Search names, creators, collections, wallets and ids"
    buttons = ["Next page", "Last page", "Details: Piece 0", "Details: Piece 1"]
    assert reached == [search, "Filter", "Sort by", "Descending", *buttons]
    assert page.get_by_role("list", name="NFTs").get_by_role("listitem").count() == 2
    expect(page.get_by_role("status")).to_have_text("5 holdings, 1 to 2 shown")


def test_the_page_fits_any_width(saved):
    page = saved(nftsync.gallery(hostile(), title="W" * 150))
    for width in (320, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        dialog = details(page, HOSTILE_TEXTS.index("x" * 100_000))
        assert dialog.evaluate("(all) => all.scrollWidth <= all.clientWidth")
        for part in (".beside", ".stage"):
            assert dialog.locator(part).evaluate("(one) => one.scrollWidth <= one.clientWidth")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()


def test_a_picture_opens_large_and_the_keyboard_walks_through_all_matches(saved, record, provider):
    """Also beyond the page's end; on closing, the focus returns."""
    good = f"{provider.url}/art/good.svg"
    rows = [{"name": f"Piece {number}", "image": good} for number in range(3)]
    gallery = nftsync.gallery(frame([*rows, {"name": "Other"}]), base_url=provider.url, page_size=2)
    page = saved(gallery)
    page.locator("#search").fill("piece")
    area = page.locator(".picture").nth(1).bounding_box()
    assert area is not None
    page.mouse.click(area["x"] + 5, area["y"] + 5)
    dialog = page.get_by_role("dialog", name="Piece 1")
    image = dialog.locator("img")
    expect(image).to_have_js_property("complete", value=True)
    expect(image).to_have_attribute("referrerpolicy", "no-referrer")
    large = image.bounding_box()
    assert large is not None
    assert large["width"] > 2 * area["width"]
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("dialog", name="Piece 2")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("dialog", name="Piece 2")).to_be_visible()
    page.get_by_role("button", name="Previous NFT").click()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("dialog", name="Piece 0")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    focused = page.evaluate("document.activeElement.ariaLabel")
    assert focused == "Details: Piece 1"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Piece 1")).to_be_visible()
    page.mouse.click(2, 2)
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert {urlsplit(url).path for url in record.requests if url.startswith("http")} == {
        "/art/good.svg"
    }
    assert record.errors() == []


def test_the_frame_replaces_the_table_has_no_origin_and_counts_all_holdings(opened):
    rows = [{"name": "odd" if number % 2 else "even"} for number in range(1_234)]
    page = output(opened, nftsync.gallery(frame(rows), limit=100))
    expect(page.get_by_role("table")).to_be_hidden()
    expect(page.locator("iframe")).to_be_visible()
    inside = page.frames[-1]
    assert inside.evaluate("window.origin") == "null"
    reach = "(() => { try { parent.document; return 1 } catch { return 0 } })()"
    assert inside.evaluate(reach) == 0
    status = inside.locator("#status")
    for words, told in (
        ("", "The first 100 of 1,234 NFTs, 1 to 60 shown"),
        ("odd", "50 of the first 100 of 1,234 NFTs, 1 to 50 shown"),
        ("nothing", "0 of the first 100 of 1,234 NFTs"),
    ):
        inside.locator("#search").fill(words)
        expect(status).to_have_text(told)


def test_the_page_follows_the_system_and_the_frame_jupyterlabs_theme(saved, opened):
    gallery = nftsync.gallery(many(2))
    system = saved(gallery)
    lab = opened(f"<!doctype html><meta charset=utf-8><body>{gallery._repr_html_()}")
    for scheme, color in COLORS.items():
        system.emulate_media(color_scheme=scheme)
        expect(system.locator("body")).to_have_css("background-color", color)
        light = str(scheme == "light").lower()
        lab.evaluate(f"document.body.dataset.jpThemeLight = '{light}'")
        inside = lab.frame_locator("iframe").locator("body")
        expect(inside).to_have_css("background-color", color)


# Filters --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faceted() -> Gallery:
    """30 holdings: Moons in two wallets, Suns in one; hostile and numbered traits."""
    rows = [
        {
            "name": f"{'Moon' if number % 3 else 'Sun'} {number}",
            "collection": "Moons" if number % 3 else "Suns",
            "contract_address": "0x" + ("Aa" if number % 2 else "aa") * 20
            if number % 3
            else "0x" + "bb" * 20,
            "wallet_id": uuid(number % 2, 0xA),
            "wallet_label": "Vault",
            "wallet_group": "house" if number < 20 else None,
        }
        for number in range(30)
    ]
    holdings = frame(rows)
    holdings.attrs["hidden"] = 1_234
    traits = [
        (holdings["token_id"][number], kind, value)
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
    expect(page.locator("#status")).to_have_text(
        "30 holdings, 1 to 30 shown; 1,234 hidden holdings are left out"
    )
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
    expect(page.locator("#status")).to_contain_text("20 of 30 holdings")
    expect(page.get_by_role("button", name="Filter (3)")).to_be_visible()
    page.get_by_role("button", name="Remove Phase: Full").click()
    expect(page.locator("#status")).to_contain_text("14 of 30 holdings")
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator("#status")).to_contain_text("30 holdings, 1 to 30 shown")
    assert ran(page, record) == []
    assert record.errors() == []


def test_the_keyboard_filters_and_keeps_its_place(saved, faceted):
    page = saved(faceted)
    page.get_by_role("button", name="Filter").focus()
    page.keyboard.press("Enter")
    page.locator(".option input").first.focus()
    page.keyboard.press("Space")
    expect(page.locator("#status")).to_contain_text("20 of 30 holdings")
    focused = "document.activeElement.parentElement.innerText"
    assert page.evaluate(focused).split() == ["Moons", "20"]
    page.keyboard.press("Space")
    expect(page.locator("#status")).to_contain_text("30 holdings")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Filters")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "filter"


@pytest.mark.parametrize("scheme", COLORS)
def test_on_a_phone_the_filters_cover_the_page_until_they_are_done(saved, faceted, scheme):
    page = saved(faceted)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Filter").click()
    filters = page.get_by_role("complementary", name="Filters")
    expect(filters).to_have_css("background-color", COLORS[scheme])
    assert filters.bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
    expect(page.locator("#search")).not_to_be_focused()
    assert page.evaluate("document.querySelector('.bar').inert")
    pick(page, "Suns")
    page.get_by_role("button", name="Show 10 holdings").click()
    expect(filters).to_be_hidden()
    expect(page.get_by_role("button", name="Remove Collection: Suns")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.evaluate("document.querySelector('.bar').inert")


def test_a_filter_of_many_values_is_searched_and_stays_small(saved):
    page = saved(nftsync.gallery(many(10_000).assign(wallet_label=None)))
    page.get_by_role("button", name="Filter").click()
    wallets = page.locator("details").filter(has_text="Wallet")
    expect(wallets.locator(".option")).to_have_count(8)
    search = page.get_by_role("searchbox", name="Search Wallet")
    expect(search).to_have_attribute("placeholder", "Search all 50")
    search.fill(uuid(49, 0xA))
    wallets.locator(".option input").check()
    expect(page.locator("#status")).to_contain_text("200 of 10,000 holdings")
    search.fill("")
    expect(wallets.locator(".option")).to_have_count(9)
    expect(wallets.locator("input:checked")).to_have_count(1)


def test_traits_of_a_database_are_filters_and_equal_values_are_not(saved, tmp_path):
    build = Builder(tmp_path / "nftsync.db")
    build.wallet(1)
    attributes = [{"trait_type": "Fur", "value": "Gold"}, {"trait_type": "Age", "value": 7}]
    for number in (1, 2):
        extra = json.dumps({"metadata": {"attributes": attributes[: 3 - number]}})
        build.token(number, extra=extra.replace(": ", ":"))
        build.balance(1, number, "1")
    page = saved(nftsync.gallery(build.close()))
    page.get_by_role("button", name="Filter").click()
    assert options(page, "Age") == ["7 1"]
    assert options(page, "Fur") == ["Gold 2"]
    page = saved(nftsync.gallery(frame([{"name": "a", "collection": "b"}] * 2)))
    expect(page.get_by_role("button", name="Filter")).to_be_hidden()
