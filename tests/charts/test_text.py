"""Text from data shows literally in figures, and equal labels stay distinct."""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync import charts
from tests.charts.world import World, frame_of
from tests.kit.database import at, wallet_id

#: Tags of the charts themselves.
OURS = re.compile(r"</?(?:b|i|br|extra)>")
FILLED_IN = re.compile(r"%\{(?:hovertext|[xy](?:[:|][^}]*)?)\}")
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = (
    "<b>bold</b><br>" + '<a href="javascript:alert(1)">x</a>',
    r"&lt;b&gt; &#60;i&#62; &amp; $\sqrt{2}$ %{customdata} %{x}",
    "\u202egnp.exe a\nb\tc\x00d\x1b[31m \ud800 \u200b",
    "x" * 100_000,
    " ",
)


@settings(max_examples=20)
@given(text=st.text(st.characters() | st.sampled_from("<>&;#$%{}'\"\\\u202e\u2066\x1b\n ")))
@example(text="$" * 200)
@example(text="\ud800<b>&#36;%{x}")
def test_plotly_finds_no_markup_in_text(text):
    frame = frame_of({(1, 1): 1}).assign(wallet_label=pd.Series([text], dtype=object))
    (label,) = charts.holders(frame).layout.yaxis.ticktext
    label = label.replace("<br>", " ")
    assert not re.search(r"[<>$%\n\r\x00-\x1f\x7f-\x9f]", label)
    assert not set(label) & set(DIRECTIONS)
    assert re.sub(r"&(?:amp|lt|gt|#\d\d);", "", label).count("&") == 0
    shown = html.unescape(label)
    assert len(shown.replace(" ", "")) <= 40
    label.encode()
    # It shows the text as sent, except for spaces and invisible characters.
    if text.isascii() and text.isprintable() and len(text) <= 40 and text.strip():
        assert shown.replace(" ", "") == "".join(text.split())


def test_a_label_that_is_not_text_counts_as_missing():
    frame = frame_of({(1, 1): 1})
    (label,) = charts.holders(frame.drop(columns="wallet_label")).layout.yaxis.ticktext
    frame["wallet_label"] = pd.Series([5], dtype=object)
    assert charts.holders(frame).layout.yaxis.ticktext == (label,)


def test_no_chart_passes_markup_on(tmp_path):
    world = World.empty(tmp_path / "nftsync.db", wallets=0, tokens=0)
    for number, text in enumerate((*HOSTILE, HOSTILE[0]), start=1):
        stored = text.replace("\ud800", "?")
        world.build.wallet(number, label=stored, wallet_group=stored, synced_at=at(9))
        world.build.token(number, contract_address=stored, name=stored, creator_name=stored)
        for token in range(1, number + 1):
            world.change(number, token, "1", 0)
        world.change(1, number, "2", 5)
    world.change(2, 1, None, 7)
    path = world.close()
    frame = frame_of({(wallet, wallet % 3 + 1): 1 for wallet in range(1, len(HOSTILE) + 1)})
    texts = pd.Series(HOSTILE, dtype=object)
    dirty = frame.assign(wallet_label=texts, creator_name=texts)
    figures = [
        *(getattr(charts, name)(path) for name in charts.__all__ if "webhook" not in name),
        *(
            charts.holdings_by_collection(frame, names={"KT1abc": one, "0x" + "cd" * 20: other})
            for one, other in pairwise(HOSTILE)
        ),
        charts.holders(dirty),
        charts.concentration(path, by="wallet_group"),
        charts.concentration(dirty, by="creator_name", top=6),
        charts.overlap(frame, names={"KT1abc": HOSTILE[1]}),
        *(
            charts.holdings_over_time(path, by=by)
            for by in ("contract_address", "creator_name", "wallet_group", "wallet_id")
        ),
    ]
    for figure in figures:
        assert figure.data
        for shown in map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', figure.to_json())):
            bare = OURS.sub("", shown).replace("%b\n%Y", "")  # the format of an axis of months
            assert not re.search(r"[<>$]|&(?!amp;|lt;|gt;|#\d\d;)", bare), shown
            # Plotly fills in only the placeholders of charts.
            assert "%{" not in FILLED_IN.sub("", bare), shown
            assert not set(bare) & set(DIRECTIONS)
            assert not re.search(r"[\x00-\x1f]", bare.replace("%b\n%Y", ""))
            assert len(bare) < 1_000


def test_holders_with_equal_labels_stay_distinct():
    frame = frame_of({(1, 1): 1, (2, 2): 1, (3, 3): 1})
    # Two labels that differ only after the cut.
    frame["wallet_label"] = ["Vault " + "x" * 60 + "1", "Vault " + "x" * 60 + "2", "Other"]
    figure = charts.holders(frame)
    labels = figure.layout.yaxis.ticktext
    assert len(set(labels)) == len(set(figure.data[0].y)) == 3
    assert "Other" in labels
    assert sum(label.startswith("Vault xxx") for label in labels) == 2


def test_ids_are_shortened_on_the_axis_and_whole_in_the_hover_and_names_match_them():
    frame = frame_of({(1, 1): 1}).drop(columns="wallet_label")
    figure = charts.holders(frame)
    (label,) = figure.layout.yaxis.ticktext
    assert label == f"{wallet_id(1)[:8]}…{wallet_id(1)[-4:]}"
    assert wallet_id(1) in figure.data[0].hovertext[0]
    figure = charts.holdings_by_collection(frame)
    assert figure.layout.yaxis.ticktext == ("0xcdcd…cdcd",)
    assert "0x" + "cd" * 20 in figure.data[0].hovertext[0].lower()
    figure = charts.holders(frame, names={wallet_id(1).upper(): "Ours"})
    assert figure.layout.yaxis.ticktext == ("Ours",)
    figure = charts.holdings_by_collection(frame, names={"0x" + "CD" * 20: "Punks"})
    assert figure.layout.yaxis.ticktext == ("Punks",)
