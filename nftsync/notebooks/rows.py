"""What `%load_ext nftsync` makes of frames and of what they warn of: a line each."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from nftsync.errors import NftsyncWarning
from nftsync.text import visible

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell


#: Cells do not wrap, whatever JupyterLab says of tables; marks upon marks stay within theirs; and
#: `$` is no mathematics, which could be of any size.
_STYLE = "<style>table.nftsync-rows :is(td, th) { white-space: nowrap; overflow: clip }</style>"
_CLASSES = "nftsync-rows tex2jax_ignore mathjax_ignore"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Let all frames show a line a row, and warn in a line; what `%load_ext nftsync` calls.

    Frames themselves stay as they are. Those of a kind that shows itself in its own way still do.
    """
    import pandas as pd

    _formatter(shell).for_type(pd.DataFrame, _html)
    warnings.showwarning = partial(_tell, warnings.showwarning)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Let pandas alone show frames again; what `%unload_ext nftsync` calls."""
    import pandas as pd

    _formatter(shell).pop(pd.DataFrame, None)
    telling: Any = warnings.showwarning
    if isinstance(telling, partial) and telling.func is _tell:
        (warnings.showwarning,) = telling.args


def _formatter(shell: InteractiveShell) -> Any:
    """What makes pages of what is shown."""
    display: Any = shell.display_formatter
    return display.formatters["text/html"]


def _tell(others: Any, message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Say what nftsync warns of, without the line of code that it is about."""
    if issubclass(category, NftsyncWarning):
        text = visible(str(message))
        click.echo(f"{text[:1].upper()}{text[1:]}.")
    else:
        others(message, category, *where)


def _html(frame: pd.DataFrame) -> str | None:
    """What pandas shows, its cells unbroken; None where it is to show plain text."""
    import pandas as pd

    page: str | None = frame._repr_html_()
    if page is None or type(frame)._repr_html_ is not pd.DataFrame._repr_html_:
        return page
    # The table's own tag comes first; what it holds is escaped.
    return _STYLE + page.replace('class="dataframe"', f'class="dataframe {_CLASSES}"', 1)
