"""Charts of holdings: against plain Python, on frames with amounts of any size."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
from charts_frames import HELD, frame_of, key_of
from charts_world import CONTRACTS, World
from frames.frames_database import at, wallet_id
from hypothesis import given, settings
from hypothesis import strategies as st

from nftsync import charts, frames
from nftsync.errors import InputError

NAMES = {"0x" + "ab" * 20: "Alpha", "0x" + "CD" * 20: "Beta", "KT1abc": "Gamma"}
#: By what charts call them; addresses in lower case.
KEYS = {name: address.lower() for address, name in NAMES.items()}
OF_HOLDINGS = [charts.holdings_by_collection, charts.holders, charts.concentration, charts.overlap]


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 5))
def test_collections_count_distinct_nfts_and_wallets_and_so_does_the_rest(held, top):
    figure = charts.holdings_by_collection(frame_of(held), top=top, names=NAMES)
    tokens, wallets = defaultdict(set), defaultdict(set)
    for (wallet, token), amount in held.items():
        if amount != 0:
            tokens[key_of(token)].add(token)
            wallets[key_of(token)].add(wallet)
    order = sorted(tokens, key=lambda key: (-len(tokens[key]), -len(wallets[key])))
    if not order:
        assert not figure.data
        return
    nfts, holders = figure.data
    labels = figure.layout.yaxis.ticktext
    # Of equally large ones any may be shown: count the rest by what the labels leave over.
    seen = [KEYS.get(text, text) for text in labels[:top]]
    assert list(nfts.x)[: len(seen)] == [len(tokens[key]) for key in order][: len(seen)]
    assert list(holders.x)[: len(seen)] == [len(wallets[key]) for key in seen]
    rest = [key for key in order if key not in seen]
    assert len(labels) == len(nfts.x) == len(seen) + bool(rest)
    if rest:
        assert labels[-1].removeprefix("<i>").startswith(f"{len(rest)} other")
        assert nfts.x[-1] == sum(len(tokens[key]) for key in rest)
        assert holders.x[-1] == len(set().union(*(wallets[key] for key in rest)))


@settings(max_examples=25)
@given(held=HELD, top=st.integers(1, 4), by_amount=st.booleans())
def test_holders_are_ranked_exactly_and_carry_their_exact_amounts(held, top, by_amount):
    measure = "amount" if by_amount else "nfts"
    figure = charts.holders(frame_of(held), top=top, measure=measure)
    count, total = defaultdict(int), defaultdict(int)
    for (wallet, _), amount in held.items():
        if amount != 0:
            count[wallet] += 1
            total[wallet] += amount or 0
    measured = total if by_amount else count
    ranks = sorted(measured.values(), reverse=True)
    if not ranks:
        assert not figure.data
        return
    (bar,) = figure.data
    shown = min(top, len(ranks))
    rest = ranks[shown:]
    assert list(bar.x) == [*map(float, ranks[:shown]), *([float(sum(rest))] if rest else [])]
    assert sum(map(int, bar.customdata)) == sum(total.values())
    if by_amount:
        sums = [*ranks[:shown], *([sum(rest)] if rest else [])]
        assert [int(text) for text in bar.customdata] == sums
        assert all(f"{one:,}" in hover for one, hover in zip(sums, bar.hovertext, strict=True))
        assert ("approximately" in figure.layout.xaxis.title.text) == (max(sums) > 2**53)


@settings(max_examples=25)
@given(held=HELD)
def test_lorenz_curves_go_through_the_shares_of_the_smallest_holders(held):
    figure = charts.concentration(frame_of(held), top=6, names=NAMES)
    sums = defaultdict(lambda: defaultdict(int))
    for (wallet, token), amount in held.items():
        if amount:
            sums[key_of(token)][wallet] += amount
    assert len(figure.data) == (len(sums) + 1 if sums else 0)
    measured = frames.concentration(frame_of(held))
    for curve in figure.data[1:]:
        name, _, gini = curve.name.rpartition(": Gini ")
        key = KEYS.get(name, name)
        amounts = sorted(sums[key].values())
        shares = [
            Fraction(100 * sum(amounts[:count]), sum(amounts)) for count in range(len(amounts) + 1)
        ]
        assert list(curve.y) == pytest.approx([float(share) for share in shares])
        assert list(curve.x) == pytest.approx(
            [100 * count / len(amounts) for count in range(len(amounts) + 1)]
        )
        address = measured["contract_address"].str.lower().fillna("no contract")
        (wanted,) = measured.loc[address == key, "gini"]
        assert float(gini) == pytest.approx(wanted, abs=0.0005)
    if sums:
        line = figure.data[0]
        assert (line.x, line.y) == ((0, 100), (0, 100))


def test_a_curve_of_many_holders_is_thinned_and_exact_at_its_points():
    wallets = 1_000
    frame = frame_of({(number, 2): number for number in range(1, wallets + 1)})
    curve = charts.concentration(frame).data[1]
    assert len(curve.x) <= 300
    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 100, 100)
    for x, y in zip(curve.x, curve.y, strict=True):
        count = round(x / 100 * wallets)
        assert y == pytest.approx(100 * count * (count + 1) / (wallets * (wallets + 1)))


@settings(max_examples=25)
@given(held=HELD)
def test_fields_of_the_heatmap_are_common_holders_over_all_holders(held):
    figure = charts.overlap(frame_of(held), names=NAMES)
    wallets = defaultdict(set)
    for (wallet, token), amount in held.items():
        if amount != 0 and CONTRACTS[token % len(CONTRACTS)] is not None:
            wallets[key_of(token)].add(wallet)
    if not wallets:
        assert not figure.data
        return
    (heat,) = figure.data
    keys = [KEYS[text] for text in figure.layout.yaxis.ticktext]
    assert sorted(keys) == sorted(wallets)
    assert [len(wallets[key]) for key in keys] == sorted(map(len, wallets.values()), reverse=True)
    for row, a in enumerate(keys):
        for column, b in enumerate(keys):
            both, either = wallets[a] & wallets[b], wallets[a] | wallets[b]
            wanted = None if a == b else len(both) / len(either)
            assert heat.z[row][column] == wanted
            if wanted:
                words = "1 wallet hold" if len(both) == 1 else f"{len(both)} wallets hold"
                assert words in heat.hovertext[row][column]


def test_ages_keep_those_apart_that_were_there_first_and_come_from_a_database_or_its_frame(
    tmp_path,
):
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
    # Told apart without colours too.
    assert (seen.marker.pattern.shape, censored.marker.pattern.shape) == ("", "/")
    assert not charts.holding_ages(path, at=when, exclude=wallet_id(1)).data
    ages = frames.holding_ages(path)
    for frame, options, said in (
        (ages, {"exclude": [wallet_id(1)]}, r"frames\.holding_ages"),
        (ages.drop(columns="bucket"), {}, r"'bucket'; give what frames\.holding_ages returns"),
        (ages.assign(bucket="old"), {}, "category"),
    ):
        with pytest.raises(InputError, match=said):
            charts.holding_ages(frame, **options)


@pytest.mark.parametrize("draw", OF_HOLDINGS)
def test_wallets_can_be_left_out_and_what_is_no_number_of_rows_is_refused(draw):
    frame = frame_of({(1, 1): 1, (1, 2): 2**200, (2, 1): 3, (3, 5): None})
    without = frame[frame["wallet_id"] != wallet_id(2)]
    assert draw(frame, exclude=wallet_id(2)) == draw(without) != draw(frame)
    for top in (0, -1, 1.5, "5", None, True, 10**6):
        with pytest.raises(InputError, match=r"^top="):
            draw(frame, top=top)


def test_the_rest_does_not_squeeze_what_is_shown_and_unknown_amounts_are_said():
    held = {(wallet, 1): 1 for wallet in range(1, 101)}
    figure = charts.holders(frame_of(held), top=3)
    (bar,) = figure.data
    assert list(bar.x) == [1, 1, 1, 97]
    assert figure.layout.xaxis.range[1] < 2
    assert bar.text[-1] == "97 (longer than drawn)"
    assert charts.holders(frame_of(held), top=100).layout.xaxis.range is None
    (bar,) = charts.holders(frame_of({(1, 1): None, (1, 2): 4}), measure="amount").data
    assert list(bar.x) == [4]
    assert "2 NFTs" in bar.hovertext[0]
    assert "1 that are no numbers" in bar.hovertext[0]


@pytest.mark.parametrize(
    ("draw", "options", "said"),
    [
        (charts.holders, {"measure": "amounts"}, "did you mean 'amount'"),
        (charts.concentration, {"by": "contract"}, "no 'contract'.*contract_address"),
        (charts.concentration, {"by": 5}, "by=5"),
        (charts.overlap, {"names": ["Alpha"]}, "names="),
        (charts.overlap, {"names": {"Alpha": None}}, "give text for both"),
    ],
)
def test_bad_options_are_refused_with_the_near_ones(draw, options, said):
    with pytest.raises(InputError, match=said):
        draw(frame_of({(1, 1): 1}), **options)
