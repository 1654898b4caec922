"""What notebooks call: which database they open, short times, and a report that is one page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nftsync import settings
from nftsync.errors import NftsyncError, SettingsError
from nftsync.lab.demo_provider import begin_afresh, is_demo, kept_address

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = [
    "begin_charts",
    "database",
    "named_or_demo",
    "provider_address",
    "short_times",
    "show_chart",
    "show_table",
]


def provider_address(database: Path) -> str | None:
    """The address of the provider that a database was read from, as far as that is known.

    Args:
        database: the file.

    Returns:
        For a demo's database the address that its provider had, whether or not it runs: no other
        sent what is in there. Else the configured `base_url`, and None where there is none or the
        settings are broken.
    """
    if is_demo(database) and (kept := kept_address(database)):
        return kept
    try:
        return settings.load().base_url
    except SettingsError:
        return None


_DEFAULT = Path("data") / "nftsync.db"
_DEMO = Path("data") / "demo.db"


def database(path: str | Path | None = None) -> Path:
    """Which database a notebook opens.

    Args:
        path: the one to open. None for the one that the environment or `nftsync.toml` names; else
            the nearest `data/nftsync.db` from the working directory upwards; else the demo's: the
            nearest `data/demo.db`, or a new one that a run of the demo makes in the working
            directory.

    Returns:
        Its absolute path. A database that is named need not exist yet.

    Raises:
        SettingsError: the configured database is of the wrong form.
        NftsyncError: the demo's database cannot be made.
    """
    if path is not None:
        return Path(path).expanduser().absolute()
    configured, source = settings.database_and_source()
    return named_or_demo(configured, source, click.echo)


def named_or_demo(configured: Path, source: str, tell: Callable[[str], object]) -> Path:
    """The configured database if it is named, else the nearest, else the demo's; see `database`.

    Args:
        configured: the setting `database`.
        source: where that came from, as in `Settings.sources`.
        tell: is told what happens, a line at a time.

    Raises:
        NftsyncError: the demo's database cannot be made.
    """
    if source != "default":
        return configured
    here = Path.cwd()
    if found := _nearest(here / _DEFAULT, Path.is_file):
        return found
    from nftsync.lab.demo import run_demo

    if found := _nearest(here / _DEMO, is_demo):
        tell(f"No database is named, and there is no {_DEFAULT}: this is the demo's.")
        return found
    made = here / _DEMO
    tell(f"No database is named, and there is no {_DEFAULT}: the demo makes {made} ...")
    begin_afresh(made)
    run_demo(made, lambda _: None)
    return made


def _nearest(file: Path, fits: Callable[[Path], bool]) -> Path | None:
    """A file of the same name and folder, from where this one is upwards."""
    for folder in file.parents[1:]:
        candidate = folder / file.parent.name / file.name
        with suppress(OSError):  # a folder that may not be looked into
            if fits(candidate):
                return candidate
    return None


def short_times(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose times are cut to the second and no longer say that they are UTC; for reading.

    Args:
        frame: any frame; it stays as it is.

    Returns:
        A copy with the same rows and columns, of the same type.
    """
    times = frame.select_dtypes("datetimetz")
    cut = {name: times[name].dt.floor("s").dt.tz_localize(None) for name in times}
    # What is made of a frame that shows itself in its own way is a plain one.
    kind: type[pd.DataFrame] = type(frame)
    return kind(frame.assign(**cut))


_MIMETYPE = "plotly_mimetype"


def begin_charts() -> None:
    """Put plotly's script into the page, once, before the first chart.

    Raises:
        NftsyncError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise NftsyncError("charts need plotly: pip install 'nftsync[notebook]'") from error
    _display({"text/html": f"<script>{get_plotlyjs()}</script>"})


def show_chart(figure: Figure) -> None:
    """Show a chart in JupyterLab, and in the page that nbconvert makes.

    nbconvert draws nothing of what JupyterLab draws from, so the output holds both.

    Args:
        figure: from `nftsync.charts`, or any figure of plotly.
    """
    import plotly.io

    bundle = plotly.io.renderers[_MIMETYPE].to_mimebundle(figure.to_dict())
    page = figure.to_html(full_html=False, include_plotlyjs=False, include_mathjax=False)
    _display({**bundle, "text/html": page})


def show_table(frame: pd.DataFrame, most: int = 40) -> None:
    """Show a frame without its index, and tell how many rows were left out.

    Times are cut to the second, and UTC as all of nftsync's are.

    Args:
        frame: any frame; what it holds is escaped.
        most: how many rows are shown.
    """
    if frame.empty:
        _display({"text/html": "<p>None.</p>"})
        return
    head = frame.head(most)
    shown = head.apply(_as_text) if len(head.columns) else head
    table = shown.to_html(index=False, border=0)
    rest = len(frame) - most
    more = f"<p>{rest:,} more rows are not shown.</p>" if rest > 0 else ""
    _display({"text/html": table + more})


def _as_text(column: pd.Series) -> pd.Series:
    """A column as objects, so that what is missing is an empty cell."""
    if column.dtype.kind == "M":
        column = column.dt.strftime("%Y-%m-%d %H:%M:%S")
    elif column.dtype.kind == "m":
        column = column.dt.floor("s")
    return column.astype(object).where(column.notna(), "")


def _display(forms: dict[str, Any]) -> None:
    """Show one thing in the form that its reader knows best."""
    from IPython.display import display

    display(forms, raw=True)  # type: ignore[no-untyped-call]
