"""The gallery's page as text and as a file, its data, and its documentation."""

import inspect
import json
import re
import resource
import stat
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nftsync
from nftsync import frames
from nftsync.errors import InputError, StoreError
from tests.gallery.gallery_frames import (
    HOSTILE_TEXTS,
    column,
    data_of,
    frame,
    hostile,
    many,
)
from tests.notebooks.hostile_world import CID


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"holdings": pd.DataFrame({"name": ["x"]})}, "needs the column token_id"),
        (
            {"holdings": pd.DataFrame([["a", "b"]], columns=["token_id"] * 2)},
            "several columns of one name",
        ),
        ({"holdings": 17}, "cannot read frames from type int"),
        *(({"limit": limit}, "not a whole number") for limit in (0, True, 1.5)),
        ({"page_size": 501}, "not a whole number"),
        ({"base_url": "provider.example"}, "cannot be used"),
        ({"images": "some"}, "use one of all, provider, none"),
        ({"traits": many(1)}, r"pass traits=frames.traits\(\)"),
    ],
)
def test_an_unusable_argument_is_an_error(bad, problem):
    with pytest.raises(InputError, match=problem):
        nftsync.gallery(**{"holdings": many(1), **bad})


@pytest.mark.parametrize(
    ("images", "policy", "shown"),
    [
        ("all", "img-src https:", 3),
        ("provider", "img-src https://api.example.com;", 1),
        ("none", "img-src 'none';", 0),
    ],
)
def test_images_of_strangers_can_be_turned_off(images, policy, shown):
    """Then neither the page nor its policy names other hosts."""
    urls = ("https://api.example.com/i/1", "https://stranger.example/1.png", f"ipfs://{CID}", "")
    held = frame([{"image": url} for url in urls])
    gallery = nftsync.gallery(held, base_url="https://api.example.com/v1", images=images)
    assert policy in gallery.html
    assert len([url for url in column(gallery, "image") or [] if url is not None]) == shown
    assert images != "provider" or "stranger.example" not in gallery.html


def test_pictures_in_metadata_are_bounded_together():
    """Beyond 20 MB, a card says why its picture is missing; other images stay."""
    pictures = [f"<svg><!--{number}{'x' * 149_000}--></svg>" for number in range(110)]
    rows = [{"image": image} for image in [*pictures, "https://a.example/", pictures[0]]]
    gallery = nftsync.gallery(frame(rows), pictures_first=False)
    inline = [url for url in column(gallery, "image") if url and url.startswith("data:")]
    assert 19_000_000 < sum(map(len, inline)) <= 20_000_000
    assert column(gallery, "image")[-2:] == ["https://a.example/", None]
    problem = "all pictures in metadata together are larger than 20 MB"
    assert column(gallery, "problem")[-1] == problem


def test_a_database_shows_traits_and_other_fields_where_the_image_is_missing(build):
    build.wallet(1)
    fields = {"thumbnailUri": f"ipfs://{CID}", "image_url": "https://a.example/{id}"}
    traits = [{"trait_type": "Fur", "value": "Gold"}, {"trait_type": "Age", "value": 7}]
    for number, metadata in enumerate(
        (
            {**fields, "attributes": traits},
            {"image_data": "<svg/>", "attributes": traits[:1]},
            {"image_url": "https://a.example/{id}"},
            {},
        ),
        start=1,
    ):
        extra = json.dumps({"metadata": metadata}, separators=(",", ":"))
        build.token(number, extra=extra, blockchain_token_id="188")
        build.balance(1, number, "1")
    path = build.close()
    expected = [
        f"https://ipfs.io/ipfs/{CID}",
        "data:image/svg+xml;base64,PHN2Zy8+",
        f"https://a.example/{188:064x}",
        None,
    ]
    gallery = nftsync.gallery(path)
    assert column(gallery, "image") == expected
    sets = {"of": [[0, 1], [0], []], "at": [0, 1, 2, 2]}
    assert data_of(gallery.html)["traits"] == {"of": [["Fur", "Gold"], ["Age", "7"]], "sets": sets}
    held = frames.holdings(path).merge(frames.tokens(path)[["token_id", "extra"]], on="token_id")
    assert column(nftsync.gallery(held), "image") == expected


def test_amounts_are_exact_whatever_the_column_is():
    exact = [str(2**256 - 1), "12", "1", None]
    ids = frame([{}] * 4)
    for name, cells, shown in (
        ("amount", pd.Series([2**256 - 1, 12, 1, None], dtype=object), exact),
        ("amount_text", exact, exact),
        ("amount", [3.0, 12.0, 1.0, np.nan], ["3", "12", "1", None]),
        ("total_edition", [100.0, np.nan, 5, 0], ["100", None, "5", None]),
        (
            "edition_id",
            pd.array([0, 2**62 + 1, None, 7], dtype="Int64"),
            ["0", str(2**62 + 1), None, "7"],
        ),
    ):
        names = {"total_edition": "editions", "edition_id": "edition"}
        gallery = nftsync.gallery(ids.assign(**{name: cells}))
        assert column(gallery, names.get(name, "amount")) == shown


def test_the_page_says_how_many_it_leaves_out_and_needs_only_token_ids():
    zeros = frame([{"amount_text": text} for text in ("0", "000", "1", None, "")])
    gallery = nftsync.gallery(zeros)
    assert len(gallery) == 3
    assert "Left out: 2 with an amount of 0." in gallery.html
    assert len(nftsync.gallery(zeros, hide_zero=False)) == 5
    holdings = many(1_234)
    before = holdings.copy(deep=True)
    gallery = nftsync.gallery(holdings, limit=100)
    note = (
        "This page contains the first 100 of 1,234 holdings;"
        " filter the frame, or raise limit, to see others."
    )
    assert len(gallery) == data_of(gallery.html)["count"] == 100
    assert note in gallery.html
    assert gallery._repr_html_().count(note) == 2
    assert "Showing the first 24 of 100." in gallery._repr_html_()
    assert "100 of 1,234 holdings" in repr(gallery)
    pd.testing.assert_frame_equal(holdings, before)
    for rows in (0, 2):
        gallery = nftsync.gallery(many(rows)[["token_id"]])
        assert len(gallery) == data_of(gallery.html)["count"] == rows
        assert set(data_of(gallery.html)["columns"]) == ({"token", "name"} if rows else {"token"})
        assert "The first" not in gallery.html


def test_nfts_with_pictures_come_first_unless_the_frame_was_sorted():
    urls = [None, "https://images.invalid/1.png", "data:image/png,", "https://images.invalid/3.png"]
    given = frame([{"name": str(number), "image": url} for number, url in enumerate(urls)])
    backwards = given.sort_values("name", ascending=False)
    for shown, first, order in (
        (given, None, "1302"),
        (given, False, "0123"),
        (given.iloc[1:], None, "132"),
        (backwards, None, "3210"),
        (backwards, True, "3120"),
    ):
        gallery = nftsync.gallery(shown, pictures_first=first)
        assert column(gallery, "name") == list(order)
        option = "frame order" if order in {"0123", "3210"} else "pictures first"
        assert f">{option}</option>" in gallery.html


def test_a_collection_without_a_name_is_its_short_address(build):
    build.wallet(1)
    for number, contract in enumerate(("0x" + "aB" * 20, "KT1abc"), start=1):
        build.token(number, contract_address=contract)
        build.balance(1, number, "1")
    held = frames.holdings(build.close())
    assert set(held["collection"]) == {"0xabab…abab", "KT1abc"}
    addresses = held[["token_id", "contract_address"]]
    for shown in (held, addresses):
        assert column(nftsync.gallery(shown), "collection") == ["0xabab…abab", "KT1abc"]
    assert column(nftsync.gallery(held.assign(collection="Moons")), "collection") == ["Moons"] * 2


#: Characters that hide, reverse, break or control the text around them.
MARKS = "\u202a\u202e\u2066\u2069\u200f\u061c\u200b\ufeff\u00ad\x00\x1b\x85\n\u2028\ud800\udfff"


def creators(*texts: str) -> list[str | None]:
    gallery = nftsync.gallery(frame([{"creator_name": text} for text in texts]))
    return column(gallery, "creator") or [None] * len(texts)


@given(
    st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=20).map("".join)
    | st.text(min_size=100, max_size=300)
)
def test_text_becomes_one_short_line_without_direction_marks(text):
    (cleaned,) = creators(text)
    if cleaned is not None:
        assert 0 < len(cleaned) <= 200
        assert cleaned == " ".join(cleaned.split())
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", cleaned)
        assert creators(cleaned) == [cleaned]


def test_emoji_and_scripts_that_join_characters_stay_whole():
    texts = ["👨‍👩‍👧", "می‌خواهم", "क्‍ष", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
    assert column(nftsync.gallery(frame([{"name": text} for text in texts])), "name") == texts


@settings(max_examples=30)
@given(
    st.text(st.characters(), max_size=80) | st.sampled_from([*HOSTILE_TEXTS, "<!--<script>", "]]>"])
)
def test_no_text_adds_an_element_to_the_page(text):
    def outline(name: str) -> list[object]:
        tags: list[object] = []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, pairs: tags.append((tag, [name for name, _ in pairs]))
        gallery = nftsync.gallery(frame([{"name": name, "wallet_label": name}]), title=name)
        parser.feed(gallery.html)
        parser.feed(gallery._repr_html_())
        return tags

    # An invisible text counts as missing.
    assert outline(text) == outline("" if creators(text) == [None] else "x")


def test_the_policy_allows_one_script_one_style_and_images():
    """Chromium refuses a script and a style with other hashes: test_chromium."""
    html = nftsync.gallery(many(1), base_url="http://127.0.0.1:8788/api").html
    assert re.search(
        "default-src 'none'; script-src 'sha256-[^' ]+'; style-src 'sha256-[^' ]+'; "
        "img-src https: data: http://127.0.0.1:8788; base-uri 'none'; form-action 'none'",
        html,
    )
    assert "innerHTML" not in html
    assert "http:" not in html.replace("http://127.0.0.1:8788", "").replace("http-equiv", "")


def test_the_gateway_and_the_provider_come_from_the_settings(monkeypatch):
    monkeypatch.setenv("NFTSYNC_BASE_URL", "http://127.0.0.1:8788")
    monkeypatch.setenv("NFTSYNC_IPFS_GATEWAY", "https://gateway.example/ipfs")
    given = frame([{"image": "http://127.0.0.1:8788/x.png"}, {"image": CID}])
    assert column(nftsync.gallery(given), "image") == [
        "http://127.0.0.1:8788/x.png",
        f"https://gateway.example/ipfs/{CID}",
    ]
    other = nftsync.gallery(
        given, base_url="https://a.example", ipfs_gateway="https://b.example", pictures_first=False
    )
    assert column(other, "image") == [None, f"https://b.example/{CID}"]


def test_settings_that_are_broken_warn_and_the_gallery_is_there(monkeypatch):
    monkeypatch.setenv("NFTSYNC_TIMEOUT", "soon")
    with pytest.warns(UserWarning, match="NFTSYNC_TIMEOUT"):
        assert len(nftsync.gallery(many(3))) == 3
    nftsync.gallery(many(3), base_url="https://a.example", ipfs_gateway="https://b.example")


def test_saving_writes_the_whole_page_or_keeps_the_older_one_with_an_error(tmp_path):
    gallery = nftsync.gallery(hostile())
    target = tmp_path / "gallery.html"
    target.write_text("older")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StoreError, match=r"cannot write .*gallery\.html: File too large"):
            gallery.save(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_text() == "older"
    with pytest.raises(InputError, match="is a directory; name a file"):
        gallery.save(tmp_path)
    with pytest.raises(StoreError, match="cannot write"):
        gallery.save(target / "gallery.html")
    assert gallery.save(str(target)) == target
    assert target.read_text(encoding="utf-8") == gallery.html
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]
    assert gallery.save(tmp_path / "new" / "gallery.html").is_file()


def test_a_page_of_many_stays_small():
    holdings = many(1_500).assign(
        image=[f"https://images.example/collection/{number}.png" for number in range(1_500)],
        description=[f"Number {number}: {'a long story. ' * 50}" for number in range(1_500)],
    )
    assert len(json.dumps(nftsync.gallery(holdings, limit=1_000)._repr_html_())) < 160_000
    gallery = nftsync.gallery(holdings)
    assert data_of(gallery.html)["count"] == 1_500
    assert len(gallery.html) < 170_000


PAGE = (Path(__file__).parents[2] / "docs" / "use" / "gallery.md").read_text(encoding="utf-8")


def test_the_documentation_has_each_argument_with_its_default():
    rows = dict(re.findall(r"^\| (`.+?) \| (.+?) \|", PAGE, re.M))
    described = {name: default for names, default in rows.items() for name in names.split(", ")}
    arguments = inspect.signature(nftsync.gallery).parameters
    assert [name.strip("`") for name in described] == list(arguments)
    for name, argument in arguments.items():
        if argument.default is not None:
            assert described[f"`{name}`"] == str(argument.default).lower()
