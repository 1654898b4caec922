"""What all charts have in common: the look, empty databases, bad input, no internet."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from charts_world import World, at

from nftsync import charts, frames
from nftsync.errors import InputError, StoreError

ALL = [getattr(charts, name) for name in charts.__all__]
COLOR = re.compile(r"#[0-9a-f]{6}", re.IGNORECASE)
WHITE, DARK = "#ffffff", "#111111"


@pytest.fixture
def path(tmp_path):
    world = World.empty(tmp_path / "nftsync.db", read_at=99)
    for wallet, token in ((1, 1), (1, 2), (2, 1), (2, 3), (3, 4)):
        world.change(wallet, token, "1", wallet)
    world.change(1, 3, "2", 20)
    world.change(1, 1, None, 30)
    world.build.insert(
        "webhooks",
        webhook_id="w-1",
        created_at_utc=at(1),
        body=b"{}",
        received_at=at(2),
        finished_at=at(3),
        state="done",
    )
    return world.close()


@pytest.mark.parametrize("draw", ALL)
def test_a_chart_has_a_title_named_axes_and_a_hover_of_its_own(path, draw):
    figure = draw(path)
    assert figure.data
    assert figure.layout.title.text
    if draw is not charts.overlap:
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text or figure.layout.yaxis.ticktext
    if figure.layout.xaxis.type == "date":
        assert "UTC" in figure.layout.xaxis.title.text
    for trace in figure.data:
        assert trace.hoverinfo == "skip" or trace.hovertemplate.endswith("<extra></extra>")


@pytest.mark.parametrize("draw", ALL)
def test_an_empty_database_gives_a_figure_that_says_what_would_fill_it(tmp_path, draw):
    figure = draw(World.empty(tmp_path / "nftsync.db", wallets=0, tokens=0).close())
    assert not figure.data
    assert figure.layout.title.text == draw_title(draw, tmp_path)
    (note,) = figure.layout.annotations
    assert re.match(r"No (holdings|changes|webhooks) in .*; .*nftsync (sync|serve)", note.text)
    figure.to_json()


def draw_title(draw, folder):
    """The title of a chart that is not empty."""
    world = World.empty(folder / "full.db")
    world.change(1, 1, "1", 0)
    world.change(1, 2, "1", 1)
    world.build.insert("webhooks", webhook_id="w", body=b"{}", received_at=at(2), state="pending")
    return draw(world.close()).layout.title.text


@pytest.mark.parametrize(
    ("draw", "read"),
    [
        (charts.holdings_by_collection, frames.holdings),
        (charts.holders, frames.holdings),
        (charts.concentration, frames.holdings),
        (charts.overlap, frames.holdings),
        (charts.holding_ages, frames.holding_ages),
        (charts.webhook_lag, frames.webhooks),
        (charts.webhook_backlog, frames.webhooks),
    ],
)
def test_a_frame_without_rows_is_as_empty_and_frames_are_not_changed(path, draw, read):
    frame = read(path)
    empty = draw(frame.iloc[:0])
    assert not empty.data
    if read is not frames.webhooks:
        assert empty.layout.annotations[0].text == "The given frame has no holdings."
    before = frame.copy()
    assert draw(frame) == draw(path)
    assert frame.equals(before)


@pytest.mark.parametrize("draw", ALL)
def test_what_is_no_database_is_refused(tmp_path, draw):
    with pytest.raises(StoreError, match=r"nowhere\.db"):
        draw(tmp_path / "nowhere.db")
    with pytest.raises(InputError):
        draw(42)


@pytest.mark.parametrize("draw", ALL)
def test_figures_need_no_internet_and_nothing_global(path, draw):
    import plotly.io

    before = plotly.io.templates.default, list(plotly.io.templates)
    text = draw(path).to_json()
    assert "http" not in text
    assert "//" not in text
    assert (plotly.io.templates.default, list(plotly.io.templates)) == before
    # Changing a figure leaves the next one alone.
    draw(path).update_layout(title_text="Mine", height=900).update_traces(opacity=0.5)
    try:
        plotly.io.templates.default = "plotly_dark"
        assert draw(path).to_json() == text
    finally:
        plotly.io.templates.default = before[0]


@pytest.mark.parametrize("draw", ALL)
def test_colours_stand_out_from_light_and_from_dark_pages(path, draw):
    figure = draw(path)
    layout = figure.layout.template.layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0, 0, 0, 0)"
    # No colour has 4.5 from both: white and #111 are only 18.9 apart, whose root is 4.34.
    for text in (layout.font.color, layout.xaxis.color, layout.yaxis.color):
        assert min(contrast(text, WHITE), contrast(text, DARK)) > 4.3
    assert contrast(layout.hoverlabel.font.color, layout.hoverlabel.bgcolor) > 4.5
    drawn = {color for trace in figure.data for color in COLOR.findall(str(trace))} - {WHITE}
    assert drawn or draw is charts.overlap
    for color in drawn:
        assert min(contrast(color, WHITE), contrast(color, DARK)) >= 3


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_plotly_is_loaded_when_a_chart_is_drawn():
    code = (
        "import sys, nftsync; print('pandas' in sys.modules);"
        "nftsync.charts.holders; print('plotly' in sys.modules)"
    )
    assert run(code).split() == ["False", "False"]


def test_without_plotly_the_error_says_what_to_install(path):
    code = (
        "import sys; sys.modules['plotly'] = None\n"
        "from nftsync import NftsyncError, charts\n"
        f"try: charts.holders({str(path)!r})\n"
        "except NftsyncError as error: print(error)"
    )
    assert "pip install 'nftsync[notebook]'" in run(code)
