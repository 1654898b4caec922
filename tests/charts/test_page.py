"""docs/use/charts.md names every chart and every option, and its example runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from nftsync import charts
from tests.charts.world import World

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
    world = World.empty(tmp_path / "nftsync.db")
    world.change(1, 1, "1", 0)
    world.build.connection.execute("UPDATE wallets SET wallet_group = 'house'")
    monkeypatch.setenv("NFTSYNC_DATABASE", str(world.close()))
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names: dict[str, object] = {}
    exec(code, names)
    assert "What the house holds" in (tmp_path / "house.html").read_text(encoding="utf-8")
