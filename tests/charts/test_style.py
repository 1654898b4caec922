"""All charts: style, layout, empty databases, bad input, and documentation."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest

from nftsync import charts, frames
from nftsync.errors import InputError, StoreError
from tests.charts.world import frame_of, played
from tests.kit.browser import open_chromium
from tests.kit.database import at
from tests.kit.serve_process import query

ALL = [getattr(charts, name) for name in charts.__all__]
COLOR = re.compile(r"#[0-9a-f]{6}", re.IGNORECASE)
WHITE, DARK = "#ffffff", "#111111"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    changes = [(wallet, token, "1", wallet) for wallet, token in ((1, 1), (1, 2), (2, 1), (2, 3))]
    changes += [(3, 4, "1", 3), (1, 3, "2", 20), (1, 1, None, 30)]
    webhook = {"created_at_utc": at(1), "received_at": at(2), "finished_at": at(3), "state": "done"}
    return played(tmp_path_factory.mktemp("look") / "nftsync.db", changes, read_at=99, **webhook)


@pytest.mark.parametrize("draw", ALL)
def test_a_chart_has_titles_and_hovers_and_an_empty_one_says_how_to_fill_it(path, draw, tmp_path):
    figure = draw(path)
    assert figure.data
    if draw is not charts.overlap:
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text or figure.layout.yaxis.ticktext
    if figure.layout.xaxis.type == "date":
        assert "UTC" in figure.layout.xaxis.title.text
    for trace in figure.data:
        assert trace.hoverinfo == "skip" or trace.hovertemplate.endswith("<extra></extra>")
    empty = draw(played(tmp_path / "empty.db", (), wallets=0, tokens=0))
    assert not empty.data
    assert empty.layout.title.text == figure.layout.title.text != ""
    (note,) = empty.layout.annotations
    text = note.text.replace("<br>", " ")
    assert re.match(r"No (holdings|changes|webhooks) in .*; .*nftsync (sync|serve)", text)
    with pytest.raises(StoreError, match=r"nowhere\.db"):
        draw(tmp_path / "nowhere.db")
    with pytest.raises(InputError):
        draw(42)


@pytest.mark.parametrize(
    ("read", "drawn"),
    [
        (frames.holdings, ["holdings_by_collection", "holders", "concentration", "overlap"]),
        (frames.holding_ages, ["holding_ages"]),
        (frames.webhooks, ["webhook_lag", "webhook_backlog"]),
    ],
)
def test_a_frame_gives_the_chart_of_its_database_and_is_not_changed(path, read, drawn):
    frame = read(path)
    before = frame.copy()
    for name in drawn:
        draw = getattr(charts, name)
        empty = draw(frame.iloc[:0])
        assert not empty.data
        if read is not frames.webhooks:
            assert empty.layout.annotations[0].text == "This frame has no holdings."
        assert draw(frame) == draw(path)
        with pytest.raises(InputError, match=rf"use a frame from frames\.{read.__name__}"):
            draw(frame.iloc[:, ::5])
    assert frame.equals(before)


@pytest.mark.parametrize(
    ("draw", "options", "message"),
    [
        (charts.holders, {"measure": "amounts"}, "did you mean 'amount'"),
        (charts.concentration, {"by": "contract_adress"}, "contract_address"),
        (charts.concentration, {"by": 5}, "by=5"),
        (charts.overlap, {"names": ["Alpha"]}, "names="),
        (charts.overlap, {"names": {"Alpha": None}}, "use text for both"),
        *((charts.holders, {"top": top}, r"^top=") for top in (0, 1.5, "5", None, True, 10**6)),
        *(
            (charts.arrivals_and_departures, {"every": every}, "period|duration")
            for every in ("1M", "M", "MS", "-1D", "0ME", "QE-XYZ", "", "0s", 5, timedelta(0), "1 d")
        ),
        (charts.holdings_over_time, {"every": "1d", "freq": "ME"}, "give only one"),
        (charts.holdings_over_time, {"freq": "1s", "since": "2020-01-01"}, "longer period"),
        *((charts.holdings_over_time, {"by": by}, "contract_address") for by in ("", 3, "name")),
    ],
)
def test_bad_options_are_refused_with_suggestions(path, draw, options, message):
    with pytest.raises(InputError, match=message):
        draw(path, **options)


@pytest.mark.parametrize("draw", ALL)
def test_figures_need_no_internet_and_are_readable_on_every_page(path, draw, tmp_path):
    """Marks contrast with white and dark, and each text with its own background."""
    import plotly.io

    before = plotly.io.templates.default
    text = draw(path).to_json()
    assert "http" not in text
    assert "//" not in text
    # A changed figure and the user's own templates do not affect the next figure.
    draw(path).update_layout(title_text="Mine", height=900).update_traces(opacity=0.5)
    try:
        plotly.io.templates.default = "plotly_dark"
        figure = draw(path)
        assert figure.to_json() == text
    finally:
        plotly.io.templates.default = before
    drawn = {color for trace in figure.data for color in COLOR.findall(str(trace))} - {WHITE}
    assert drawn or draw is charts.overlap
    assert all(contrast(color, page) >= 3 for color in drawn for page in (WHITE, DARK))
    for one in (figure, draw(played(tmp_path / "empty.db", (), wallets=0, tokens=0))):
        look = one.layout.template.layout
        assert look.paper_bgcolor == look.plot_bgcolor == WHITE
        texts = dict(colors_of_text(one.to_plotly_json()))
        assert len(texts) >= 5
        for place, color in texts.items():
            paper = look.hoverlabel.bgcolor if "hoverlabel" in place else WHITE
            assert contrast(color, paper) >= 4.5, place
        # All colors of texts are in the template, so a dark one replaces them.
        one.update_layout(template=None)
        assert not dict(colors_of_text(one.to_plotly_json()))


def colors_of_text(part: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the places and colors of all fonts and axes of a figure."""
    for key, value in part.items() if isinstance(part, dict) else ():
        is_text = key == "color" and place.lower().endswith(("font", "axis"))
        yield from [(place, value)] if is_text else colors_of_text(value, f"{place}.{key}")
    for value in part if isinstance(part, list | tuple) else ():
        yield from colors_of_text(value, place)


def contrast(*colors: str) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    parts = [[byte / 255 for byte in bytes.fromhex(color[1:])] for color in colors]
    low, high = sorted(
        sum(
            weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), color, strict=True)
        )
        for color in parts
    )
    return (high + 0.05) / (low + 0.05)


def test_plotly_loads_with_the_first_chart_and_its_absence_is_an_error(path):
    code = (
        "import sys, nftsync; print('pandas' in sys.modules)\n"
        "nftsync.charts.holders; print('plotly' in sys.modules)\n"
        "sys.modules['plotly'] = None\n"
        f"try: nftsync.charts.holders({str(path)!r})\n"
        "except nftsync.NftsyncError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False\nFalse\n")
    assert "charts need plotly; to install: " in done.stdout


NAMES = ("Short", "A long name of a collection with many words", "حدائق الضوء في الليل الطويل")
NAMES += ("漢" * 40, "CRYPTO-COLLECTIBLES-OF-THE-1990S")


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as chromium:
        yield chromium


DRAWN = (charts.holdings_by_collection, charts.holders, charts.overlap, charts.concentration)
TEXTS = (".ytick text", ".g-gtitle text", ".xtick text", ".legendtext", ".bartext", ".point path")
#: Boxes of the texts on the page: left, right, top, bottom.
BOXES = """selector => [...document.querySelectorAll(selector)].map(text => {
  const box = text.getBoundingClientRect();
  return [box.left, box.right, box.top, box.bottom];
})"""


@pytest.mark.parametrize("width", [390, 1200])
def test_texts_do_not_overlap_and_are_within_the_page(browser, tmp_path, width):
    frame = frame_of({(wallet, wallet): wallet for wallet in range(1, 31)})
    number = range(len(frame))
    frame["contract_address"] = [f"KT{one:04}" for one in number]
    frame["collection"] = [f"{NAMES[one % 5]} {one}" for one in number]
    frame["wallet_label"] = frame["collection"]
    drawn = [
        draw(frame).to_html(full_html=False, include_plotlyjs=not place, div_id=f"chart{place}")
        for place, draw in enumerate(DRAWN)
    ]
    (tmp_path / "charts.html").write_text(f"<!doctype html><meta charset=utf-8>{''.join(drawn)}")
    page = browser.new_page(viewport={"width": width, "height": 1_600})
    page.goto((tmp_path / "charts.html").as_uri())
    for place in range(len(DRAWN)):
        page.wait_for_selector(f"#chart{place} .main-svg")
        ticks, *others, bars = (page.evaluate(BOXES, f"#chart{place} {one}") for one in TEXTS)
        assert ticks
        texts = [*ticks, *chain(*others)]
        for number, (left, right, top, bottom) in enumerate(texts):
            assert left >= 0
            assert right <= width
            for other in (*texts[:number], *bars):
                apart_across = right <= other[0] + 1 or other[1] <= left + 1
                assert apart_across or bottom <= other[2] + 3 or other[3] <= top + 3
    page.close()


PAGE = (Path(__file__).parents[2] / "docs" / "use" / "charts.md").read_text(encoding="utf-8")


def test_every_chart_has_a_row_with_its_own_options():
    calls = dict(re.findall(r"^\| `charts\.(\w+)\(([^`]*)\)`", PAGE, flags=re.M))
    assert sorted(calls) == charts.__all__
    rows = re.findall(r"^\| ((?:`\w+=`(?:, )?)+) \|", PAGE, flags=re.M)
    everywhere = {option for row in rows for option in re.findall(r"\w+", row)}
    for name, written in calls.items():
        parameters = inspect.signature(getattr(charts, name)).parameters
        first, *named = written.split(", ")
        assert next(iter(parameters)) == first
        for option in named:
            option_name, _, default = option.partition("=")
            assert repr(parameters[option_name].default) == default.replace('"', "'")
        own = {option.partition("=")[0] for option in named}
        assert set(parameters) - {first} <= own | everywhere


def test_the_example_runs(tmp_path, monkeypatch):
    path = played(tmp_path / "nftsync.db", [(1, 1, "1", 0)])
    query(path, "UPDATE wallets SET wallet_group = 'house'")
    monkeypatch.setenv("NFTSYNC_DATABASE", str(path))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(code, names)
    assert "What the house holds" in (tmp_path / "house.html").read_text(encoding="utf-8")
