"""Charts of holdings, compared with the measures of frames, with amounts of any size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError
from tests.charts.world import HELD, World, frame_of
from tests.kit.database import at, wallet_id

OF_HOLDINGS = [charts.holdings_by_collection, charts.holders, charts.concentration, charts.overlap]


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 5))
def test_collections_show_distinct_nfts_and_holders_and_a_line_counts_the_others(held, top):
    frame = frame_of(held)
    figure = charts.holdings_by_collection(frame, top=top)
    sizes = frames.concentration(frame).sort_values(["tokens", "holders"], ascending=False)
    if sizes.empty:
        assert not figure.data
        return
    (nfts,) = figure.data
    shown, rest = sizes[:top], sizes[top:]
    assert list(nfts.x) == shown["tokens"].tolist()
    counts = zip(shown["tokens"], shown["holders"], strict=True)
    assert list(nfts.text) == [f"{tokens:,} ({holders:,})" for tokens, holders in counts]
    assert len(figure.layout.yaxis.ticktext) == len(nfts.x)
    line = f"+ {len(rest)} other collection{'s' * (len(rest) > 1)} with {rest['tokens'].sum()} NFT"
    assert (line in figure.layout.title.subtitle.text) == (len(rest) > 0)


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 4), by_amount=st.booleans())
def test_holders_are_ranked_exactly_and_carry_their_exact_amounts(held, top, by_amount):
    frame = frame_of(held)
    figure = charts.holders(frame, top=top, measure="amount" if by_amount else "nfts")
    sizes = frames.concentration(frame, by="wallet_id")
    ranks = sorted(sizes["amount" if by_amount else "tokens"], reverse=True)
    if not ranks:
        assert not figure.data
        return
    (bar,) = figure.data
    sums, rest = ranks[:top], ranks[top:]
    assert list(bar.x) == [*map(float, sums)]
    subtitle = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert ("other wallet" in subtitle) == bool(rest)
    if rest:
        their = f"total amount {sum(rest):,}" if by_amount else f"{sum(rest):,} holding"
        assert f"+ {len(rest)} other wallet{'s' * (len(rest) > 1)} with {their}" in subtitle
    if by_amount:
        assert [int(text) for text in bar.customdata] == sums
        assert all(f"{one:,}" in hover for one, hover in zip(sums, bar.hovertext, strict=True))
        assert ("approximate" in figure.layout.xaxis.title.text) == (max(sums) > 2**53)


@settings(max_examples=25)
@given(held=HELD)
def test_lorenz_curves_go_through_the_shares_of_the_smallest_holders(held):
    one_contract = frame_of(held).assign(contract_address="KT1")
    figure = charts.concentration(one_contract)
    amounts: dict[int, int] = {}
    for (wallet, _), amount in held.items():
        if amount:
            amounts[wallet] = amounts.get(wallet, 0) + amount
    if not amounts:
        assert not figure.data
        return
    equality, curve = figure.data
    assert (equality.x, equality.y) == ((0, 100), (0, 100))
    x, total = sorted(amounts.values()), sum(amounts.values())
    counts = range(len(x) + 1)
    assert list(curve.x) == pytest.approx([100 * count / len(x) for count in counts])
    assert list(curve.y) == pytest.approx([100 * sum(x[:count]) / total for count in counts])
    (gini,) = frames.concentration(one_contract)["gini"]
    assert curve.name == f"KT1: Gini {gini:.3f}"


@settings(max_examples=25)
@given(held=HELD)
def test_fields_of_the_heatmap_are_common_holders_over_all_holders(held):
    frame = frame_of(held)
    figure = charts.overlap(frame)
    sizes = frames.concentration(frame).dropna(subset="contract_address")
    if sizes.empty:
        assert not figure.data
        return
    (heat,) = figure.data
    assert len(heat.z) == len(figure.layout.yaxis.ticktext) == len(sizes)
    fields = [(row, at) for row in range(len(sizes)) for at in range(len(sizes)) if row != at]
    assert all(heat.z[row][at] == heat.z[at][row] for row, at in fields)
    assert all(heat.z[row][row] is None for row in range(len(sizes)))
    pairs = frames.overlap(frame)
    shares = [heat.z[row][at] for row, at in fields if row < at and heat.z[row][at]]
    assert sorted(shares) == sorted(pairs["jaccard"])
    for both in pairs["both"]:
        words = f"common holders: {both:,};"
        assert any(words in text for row in heat.hovertext for text in row)


def test_ages_separate_initial_holdings_and_come_from_a_database_or_its_frame(tmp_path):
    world = World.empty(tmp_path / "nftsync.db")
    for token in (1, 2, 3):
        world.change(1, token, "1", 0)
    world.change(1, 4, "2", 86_400 * 10)
    world.change(1, 3, "0", 86_400 * 11)
    path = world.close()
    when = at(86_400 * 12)
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
    world = World.empty(tmp_path / "nftsync.db")
    for number in range(1, 5):
        world.change(number, number, "1", 0)
        world.change(number, number + 1, "3", number)
    path = world.close()
    values = {str(value) for value in frames.concentration(path, by=by)[by].dropna()}
    lines = {line.name for line in charts.holdings_over_time(path, by=by).data[:-1]}
    curves = charts.concentration(path, by=by).data[1:]
    assert lines == {curve.name.rpartition(": Gini")[0] for curve in curves}
    assert {name for name in lines if not name.startswith("no ")} == values
