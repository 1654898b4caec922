"""Charts of holdings, compared with the measures of frames, and their texts."""

import html
import json
import re
from itertools import accumulate, pairwise

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError
from tests.charts.world import HELD, frame_of, played
from tests.kit.database import at, wallet_id

OF_HOLDINGS = [charts.holdings_by_collection, charts.holders, charts.concentration, charts.overlap]


def more(count: int, noun: str) -> str:
    return f"+ {count} other {noun}{'s' * (count > 1)} with"


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 5))
def test_charts_of_holdings_show_the_measures_of_frames(held, top):
    frame = frame_of(held)
    sizes = frames.concentration(frame).sort_values(["tokens", "holders"], ascending=False)
    if sizes.empty:
        assert not any(draw(frame).data for draw in OF_HOLDINGS)
        return
    # Distinct NFTs and holders of collections; a line counts the others.
    figure = charts.holdings_by_collection(frame, top=top)
    (nfts,), shown, rest = figure.data, sizes[:top], sizes[top:]
    assert list(nfts.x) == shown["tokens"].tolist()
    counts = zip(shown["tokens"], shown["holders"], strict=True)
    assert list(nfts.text) == [f"{tokens:,} ({holders:,})" for tokens, holders in counts]
    assert len(figure.layout.yaxis.ticktext) == len(nfts.x)
    line = f"{more(len(rest), 'collection')} {rest['tokens'].sum()} NFT"
    assert (line in figure.layout.title.subtitle.text) == (len(rest) > 0)
    # Common holders over all holders of each pair.
    (heat,) = charts.overlap(frame).data if sizes["contract"].notna().any() else (None,)
    if heat:
        places = range(sizes["contract"].notna().sum())
        assert [heat.z[row][row] for row in places] == [None for _ in places]
        assert all(heat.z[a][b] == heat.z[b][a] for a in places for b in places)
        pairs = frames.overlap(frame)
        shares = [heat.z[a][b] for a in places for b in places if a < b and heat.z[a][b]]
        assert sorted(shares) == sorted(pairs["jaccard"])
        texts = str(heat.hovertext)
        assert all(f"common holders: {both:,};" in texts for both in pairs["both"])


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 4))
def test_holders_are_ranked_exactly_and_their_lorenz_curve_adds_them_up(held, top):
    frame = frame_of(held).assign(contract_address="KT1")
    sizes = frames.concentration(frame, by="wallet_id")
    for measure, column in (("nfts", "tokens"), ("amount", "amount")):
        ranks = sorted(sizes[column], reverse=True)
        figure = charts.holders(frame, top=top, measure=measure)
        sums, rest = ranks[:top], ranks[top:]
        assert [list(bar.x) for bar in figure.data] == ([[*map(float, sums)]] if ranks else [])
        if ranks:
            subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
            their = f"{sum(rest):,} holding" if measure == "nfts" else f"total amount {sum(rest):,}"
            assert ("other wallet" in subtitle) == bool(rest)
            assert (f"{more(len(rest), 'wallet')} {their}" in subtitle) == bool(rest)
    if ranks:
        (bar,) = figure.data
        assert [int(text) for text in bar.customdata] == sums
        assert all(f"{one:,}" in hover for one, hover in zip(sums, bar.hovertext, strict=True))
        assert ("approximate" in figure.layout.xaxis.title.text) == (max(sums) > 2**53)
    if any(ranks):
        equality, curve = charts.concentration(frame).data
        assert (equality.x, equality.y) == ((0, 100), (0, 100))
        known = sizes[sizes["unknown_amounts"] < sizes["tokens"]]["amount"]
        steps = [0, *accumulate(sorted(known))]
        counts = range(len(steps))
        assert list(curve.x) == pytest.approx([100 * count / counts[-1] for count in counts])
        assert list(curve.y) == pytest.approx([100 * step / steps[-1] for step in steps])
        (gini,) = frames.concentration(frame)["gini"]
        assert curve.name == f"KT1: Gini {gini:.3f}"


def test_ages_separate_initial_holdings_and_come_from_a_database_or_its_frame(tmp_path):
    changes = [(1, token, "1", 0) for token in (1, 2, 3)]
    changes += [(1, 4, "2", 86_400 * 10), (1, 3, "0", 86_400 * 11)]
    path, when = played(tmp_path / "nftsync.db", changes), at(86_400 * 12)
    figure = charts.holding_ages(path, at=when)
    assert charts.holding_ages(frames.holding_ages(path, at=when)) == figure
    seen, censored = figure.data
    assert dict(zip(seen.x, seen.y, strict=True))["under a week"] == 1
    assert dict(zip(censored.x, censored.y, strict=True))["under a month"] == 2
    assert (sum(seen.y), sum(censored.y)) == (1, 2)
    # Distinct without colors, too.
    assert (seen.marker.pattern.shape, censored.marker.pattern.shape) == ("", "/")
    assert not charts.holding_ages(path, at=when, exclude=wallet_id(1)).data
    ages = frames.holding_ages(path)
    with pytest.raises(InputError, match="frames.holding_ages"):
        charts.holding_ages(ages, exclude=[wallet_id(1)])
    with pytest.raises(InputError, match="category"):
        charts.holding_ages(ages.assign(bucket="old"))


@pytest.mark.parametrize("draw", OF_HOLDINGS)
def test_wallets_can_be_left_out(draw):
    frame = frame_of({(1, 1): 1, (1, 2): 2**200, (2, 1): 3, (3, 5): None})
    without = frame[frame["wallet_id"] != wallet_id(2)]
    assert draw(frame, exclude=wallet_id(2)) == draw(without) != draw(frame)


def test_the_scale_fits_the_shown_bars_and_unknown_amounts_are_counted():
    held = {(wallet, 1): 1 for wallet in range(1, 101)}
    figure = charts.holders(frame_of(held), top=3)
    assert list(figure.data[0].x) == [1, 1, 1]
    assert figure.layout.xaxis.range == (0, 1)
    assert "+ 97 other wallets with 97 holdings" in figure.layout.title.subtitle.text
    assert "other" not in charts.holders(frame_of(held), top=100).layout.title.subtitle.text
    (bar,) = charts.holders(frame_of({(1, 1): None, (1, 2): 4}), measure="amount").data
    assert list(bar.x) == [4]
    assert "2 NFTs" in bar.hovertext[0]
    assert "1 amount unknown" in bar.hovertext[0]


@pytest.mark.parametrize("by", ["collection", "wallet_group", "wallet_label", "creator_name"])
def test_groups_can_be_any_column_of_the_frames(tmp_path, by):
    changes = [(number, number + more, "3", more) for more in (0, 1) for number in range(1, 5)]
    path = played(tmp_path / "nftsync.db", changes)
    values = {str(value) for value in frames.concentration(path, by=by)[by].dropna()}
    lines = {line.name for line in charts.holdings_over_time(path, by=by).data[:-1]}
    curves = charts.concentration(path, by=by).data[1:]
    assert lines == {curve.name.rpartition(": Gini")[0] for curve in curves}
    assert {name for name in lines if not name.startswith("no ")} == values


#: Tags of the charts themselves.
TAGS = re.compile(r"</?(?:b|i|br|extra)>")
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


def test_no_chart_passes_markup_on(build):
    for number, text in enumerate((*HOSTILE, HOSTILE[0]), start=1):
        stored = text.replace("\ud800", "?")
        build.wallet(number, label=stored, wallet_group=stored, synced_at=at(9))
        build.token(number, contract_address=stored, name=stored, creator_name=stored)
        for token in range(1, number + 1):
            build.change(number, token, None, "1", 0, baseline=1)
            build.balance(number, token, "1")
        build.change(1, number, "1" if number == 1 else None, "2", 5)
    build.change(2, 1, "1", None, 7)
    path = build.path
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
            bare = TAGS.sub("", shown).replace("%b\n%Y", "")  # the format of an axis of months
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
    frame, who, contract = frame_of({(1, 1): 1}), wallet_id(1), "0x" + "cd" * 20
    short = f"{who[:8]}…{who[-4:]}"
    no_text = frame.assign(wallet_label=pd.Series([5], dtype=object))
    for draw, held, names, label, hover in (
        *(
            (charts.holders, held, None, short, who)
            for held in (frame.drop(columns="wallet_label"), no_text)
        ),
        (charts.holders, frame, {who.upper(): "Ours"}, "Ours", who),
        (charts.holdings_by_collection, frame, None, "0xcdcd…cdcd", contract),
        (charts.holdings_by_collection, frame, {"0x" + "CD" * 20: "Punks"}, "Punks", contract),
    ):
        figure = draw(held, names=names)
        assert figure.layout.yaxis.ticktext == (label,)
        assert hover in figure.data[0].hovertext[0].lower()
